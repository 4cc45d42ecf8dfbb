"""Sandboxes and their files over /api/v1: made, listed, changed, ended; the frame around every call."""
import base64
import concurrent.futures
import datetime
import hashlib
import http.client
import json
import os
import pathlib
import tempfile
import time
import unittest
import urllib.parse
import uuid

from harness.server import Server
from harness.v1 import Api, Shared

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
NOBODY = 'i' + '0' * 20


class Case(unittest.TestCase):
    def setUp(self):
        self.api = Api(Shared())

    def make(self, **body):
        made = self.api.ask('POST', '/sandboxes', body)
        self.addCleanup(self.api.call, 'DELETE', f"/sandboxes/{made['id']}")
        return made

    def fails(self, status, code, method, path, body=None, **more):
        answer = self.api.call(method, path, body, **more)
        told = answer.json()
        self.assertEqual((answer.status, told['code']), (status, code), told)
        self.assertEqual(set(told), {'code', 'message', 'hint', 'origin', 'request_id'})
        self.assertEqual(told['request_id'], answer.headers['X-Request-Id'])
        return told


class Frame(Case):
    def test_a_sane_request_id_comes_back_and_another_is_replaced(self):
        for sent, kept in (('my-request.1:2', True), ('x' * 64, True), ('x' * 65, False),
                           ('a b', False), ('<x>', False)):
            answer = self.api.call('GET', '/quota', headers={'X-Request-Id': sent})
            self.assertEqual(answer.headers['X-Request-Id'] == sent, kept, sent)
            self.assertRegex(answer.headers['X-Request-Id'], r'^[A-Za-z0-9._:-]{1,64}$')
        one, two = (self.api.call('GET', '/quota').headers['X-Request-Id'] for _ in range(2))
        self.assertNotEqual(one, two)

    def test_what_is_wrong_with_the_call_itself(self):
        self.fails(404, 'not_found', 'GET', '/nothing')
        self.fails(404, 'not_found', 'GET', '')
        self.fails(405, 'method_not_allowed', 'PATCH', '/sandboxes')
        self.assertEqual(self.api.call('PATCH', '/sandboxes').headers['Allow'], 'POST, GET')
        self.fails(400, 'invalid_request', 'POST', '/sandboxes', [])
        for raw in (b'{', b'\xff', b'{"template": 5}', b'{"nobody": 1}', b'{"cpu": 1, "cpu": 2}'):
            answer = self.api.raw('POST', '/api/v1/sandboxes', raw)
            self.assertEqual((answer.status, answer.json()['code']), (400, 'invalid_request'), raw)
        answer = self.api.raw('POST', '/api/v1/sandboxes', b'{"x":"' + b'x' * (17 << 20) + b'"}')
        self.assertEqual((answer.status, answer.json()['code']), (413, 'too_large'))
        self.assertEqual(self.api.raw('GET', '/api/v1/sandboxes?limit=%zz').status, 400)

    def test_without_a_key_nothing_but_the_document(self):
        nobody = Api(Shared(), key='e2b_' + '0' * 40)
        answer = nobody.call('GET', '/sandboxes')
        self.assertEqual((answer.status, answer.json()['code']), (401, 'unauthorized'))
        self.assertEqual(nobody.call('GET', '/openapi.json').json()['openapi'], '3.1.0')

    def test_v1s_prefix_is_a_whole_word(self):
        self.assertEqual(self.api.raw('GET', '/api/v10').json(), {'code': 404, 'message': 'no such path'})


class Life(Case):
    def test_made_with_all_that_can_be_asked_for(self):
        trace = f'00-{uuid.uuid4().hex}-{uuid.uuid4().hex[:16]}-01'
        self.api.ask('PUT', '/secrets/v1-life', {'value': 'a value that nobody sees'})
        made = self.api.call('POST', '/sandboxes', {
            'agent_id': 'agent-1', 'task_id': 'task/7', 'template': 'base', 'runtime': 'local', 'cpu': 1,
            'memory_mb': 256, 'disk_mb': 128, 'limits': {'max_pids': 64}, 'timeout': 60, 'on_timeout': 'pause',
            'auto_resume': True, 'envs': {'COLOUR': 'blue'}, 'secrets': {'TOKEN': 'v1-life'},
            'metadata': {'k': 'v'}, 'internet': False,
            'network': {'deny_out': ['0.0.0.0/0'], 'allow_out': ['1.1.1.1'], 'https_ports': [8443]},
            'files': [{'path': '/tmp/a/b.txt', 'content': 'text', 'mode': '0640'},
                      {'path': 'c.bin', 'content_base64': base64.b64encode(bytes(range(256))).decode()},
                      {'path': '/root/r', 'content': '', 'user': 'root'}],
        }, headers={'traceparent': trace})
        self.assertEqual(made.status, 201, made.body)
        told = made.json()
        box = f"/sandboxes/{told['id']}"
        self.addCleanup(self.api.call, 'DELETE', box)
        self.assertEqual((told['agent_id'], told['task_id'], told['state'], told['timeout'], told['on_timeout'],
                          told['traceparent'], told['metadata'], told['secrets'], told['auto_resume']),
                         ('agent-1', 'task/7', 'running', 60, 'pause', trace, {'k': 'v'},
                          {'TOKEN': 'v1-life'}, True))
        self.assertEqual((told['internet'], told['network']),
                         (False, {'deny_out': ['0.0.0.0/0'], 'allow_out': ['1.1.1.1'], 'https_ports': [8443]}))
        self.assertEqual({k: told['limits'][k] for k in ('cpu', 'memory_mb', 'disk_mb', 'max_pids')},
                         {'cpu': 1, 'memory_mb': 256, 'disk_mb': 128, 'max_pids': 64})
        self.assertNotIn(b'a value that nobody sees', made.body)
        self.assertEqual(self.api.raw('GET', f'/api/v1{box}/files?path=/tmp/a/b.txt').body, b'text')
        self.assertEqual(self.api.raw('GET', f'/api/v1{box}/files?path=c.bin').body, bytes(range(256)))
        listed = {e['name']: e for e in self.api.get(f'{box}/files/list', path_='/tmp/a').json()['items']}
        self.assertEqual(listed['b.txt']['permissions'], '-rw-r-----')
        self.assertEqual(self.api.get(f'{box}/files/list', path_='/root', user='root').json()['items'][0]['owner'],
                         'root')
        again = self.api.ask('GET', box)
        moving = {'usage', 'health', 'cost', 'used'}
        self.assertEqual({k: v for k, v in again.items() if k not in moving},
                         {k: v for k, v in told.items() if k not in moving})

    def test_paused_resumed_extended_ended(self):
        box = f"/sandboxes/{self.make()['id']}"
        self.assertEqual(self.api.ask('POST', f'{box}/pause')['state'], 'paused')
        time.sleep(0.2)  # who asks at the same moment shares the pause
        self.fails(409, 'already_paused', 'POST', f'{box}/pause')
        self.fails(409, 'sandbox_paused', 'GET', f'{box}/files?path=/etc/passwd')
        self.fails(409, 'sandbox_paused', 'POST', f'{box}/extend', {'by': 10})
        self.assertEqual(self.api.ask('POST', f'{box}/resume', {'timeout': 100})['state'], 'running')
        time.sleep(1.1)
        self.fails(409, 'already_running', 'POST', f'{box}/resume')
        before = self.api.ask('GET', box)['ends_at']
        self.assertGreater(self.api.ask('POST', f'{box}/extend', {'by': 500})['ends_at'], before)
        now = self.api.ask('GET', box)
        for body in ({'timeout': 9 * 86400}, {'by': 9 * 86400}):
            told = self.fails(400, 'out_of_range', 'POST', f'{box}/extend', body)
            self.assertRegex(told['message'], r'can run until 2\S+Z at the latest, \d+ seconds from now')
        self.assertEqual(self.api.ask('GET', box)['ends_at'], now['ends_at'])
        for body in ({}, {'by': 1, 'timeout': 1}, {'by': 0}, {'timeout': -1}, {'by': 'x'}):
            self.assertEqual(self.api.call('POST', f'{box}/extend', body).status, 400, body)
        self.assertEqual(self.api.call('DELETE', box).status, 204)
        self.assertEqual(self.api.call('DELETE', box).status, 204)
        ended = self.api.ask('GET', box)
        self.assertEqual((ended['state'], ended['ended_by'], ended['ends_at']), ('ended', 'user', None))
        self.assertIn('killed', ended['ended_why'])
        for method, what in (('POST', 'pause'), ('POST', 'resume'), ('GET', 'files?path=/x'), ('POST', 'fork'),
                             ('POST', 'snapshot'), ('DELETE', 'files?path=/x')):
            self.fails(409, 'sandbox_ended', method, f'{box}/{what}')

    def test_the_timeout_that_is_shown_is_the_one_that_holds(self):
        def lasts(told):
            seconds = [datetime.datetime.fromisoformat(told[k]).timestamp() for k in ('started_at', 'ends_at')]
            self.assertAlmostEqual(seconds[1] - seconds[0], told['timeout'], delta=0.6)
            return told['timeout']
        made = self.make(timeout=3600)
        box = f"/sandboxes/{made['id']}"
        self.assertEqual(lasts(made), 3600)
        self.assertEqual(self.api.ask('POST', f'{box}/pause')['timeout'], 3600)
        self.assertEqual(lasts(self.api.ask('POST', f'{box}/resume')), 3600)
        self.api.ask('POST', f'{box}/pause')
        self.assertEqual(lasts(self.api.ask('POST', f'{box}/resume', {'timeout': 100})), 100)
        self.assertAlmostEqual(lasts(self.api.ask('POST', f'{box}/extend', {'by': 50})), 150, delta=1)

    def test_one_that_never_was(self):
        for wrong in (NOBODY, 'x', 'I' * 21, '%2e%2e', 'a' * 300):
            for method, what in (('GET', ''), ('DELETE', ''), ('POST', '/pause'), ('POST', '/resume'),
                                 ('GET', '/files?path=/x'), ('PUT', '/files?path=/x'), ('POST', '/fork')):
                self.fails(404, 'sandbox_not_found', method, f'/sandboxes/{wrong}{what}')

    def test_ended_by_its_time(self):
        made = self.make(timeout=1)
        deadline = time.monotonic() + 60
        while (told := self.api.ask('GET', f"/sandboxes/{made['id']}"))['state'] != 'ended':
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)
        self.assertEqual((told['ended_by'], told['ended_why']), ('timeout', 'its time was up'))

    def test_a_snapshot_and_forks_have_the_files(self):
        made = self.make(files=[{'path': '/home/user/kept', 'content': 'yes'}], agent_id='snap', task_id='t')
        box = f"/sandboxes/{made['id']}"
        name = f'v1{uuid.uuid4().hex[:8]}'
        answer = self.api.call('POST', f'{box}/snapshot', {'name': name})
        self.assertEqual(answer.status, 201, answer.body)
        snap = answer.json()
        self.assertEqual((snap['name'], snap['snapshot'], snap['agent_id']), (name, f'{name}:default', 'snap'))
        self.addCleanup(self.api.raw, 'DELETE', f'/templates/{name}')
        forks = self.api.ask('POST', f'{box}/fork', {'count': 2})['items']
        self.assertEqual(len({f['id'] for f in forks}), 2)
        for other in [*forks, self.make(template=snap['snapshot'])]:
            self.addCleanup(self.api.call, 'DELETE', f"/sandboxes/{other['id']}")
            self.assertEqual(self.api.raw('GET', f"/api/v1/sandboxes/{other['id']}/files?path=kept").body, b'yes')
        self.assertEqual([(f['agent_id'], f['task_id']) for f in forks], [('snap', 't')] * 2)

    def test_what_cannot_be_asked_for(self):
        for body, status, code in (
                ({'template': 'nowhere'}, 404, 'not_found'), ({'template': '!'}, 400, 'invalid_request'),
                ({'runtime': 'nothing'}, 400, 'invalid_request'), ({'language': 'cobol'}, 400, 'invalid_request'),
                ({'timeout': 10 ** 8}, 400, 'out_of_range'), ({'cpu': 0}, 400, 'invalid_request'),
                ({'memory_mb': 4194304}, 400, 'out_of_range'), ({'agent_id': '-x'}, 400, 'invalid_request'),
                ({'task_id': 'a b'}, 400, 'invalid_request'), ({'agent_id': ''}, 400, 'invalid_request'),
                ({'on_timeout': 'fly'}, 400, 'invalid_request'),
                ({'envs': {'a=b': 'x'}}, 400, 'invalid_request'),
                ({'envs': {'A': 'x'}, 'secrets': {'A': 'any'}}, 400, 'invalid_request'),
                ({'metadata': {'atoll.run': 'x'}}, 400, 'invalid_request'),
                ({'secrets': {'A': 'no-such-secret'}}, 422, 'secret_not_found'),
                ({'volumes': [{'name': 'none', 'path': '/v'}]}, 400, 'invalid_request'),
                ({'files': [{'path': '/x'}]}, 400, 'invalid_request'),
                ({'files': [{'path': '/x', 'content': 'a', 'mode': '9'}]}, 400, 'invalid_request'),
                ({'files': [{'path': '/etc', 'content': 'a'}]}, 422, 'invalid_path'),
                ({'files': [{'path': '/x', 'content': 'a', 'user': 'nobody-here'}]}, 422, 'unknown_user'),
                ({'wait': 601}, 400, 'invalid_request'), ({'network': {'allow_out': 5}}, 400, 'invalid_request')):
            told = self.api.call('POST', '/sandboxes', body)
            self.assertEqual((told.status, told.json()['code']), (status, code), (body, told.body))
        left = self.api.get('/sandboxes', task_id='a b').json()['items']
        self.assertEqual(left, [])

    def test_what_fails_half_way_leaves_nothing(self):
        task = f'half-{uuid.uuid4().hex[:8]}'
        self.fails(422, 'invalid_path', 'POST', '/sandboxes',
                   {'task_id': task, 'files': [{'path': '/ok', 'content': 'x'}, {'path': '/etc', 'content': 'x'}]})
        self.assertEqual(self.api.get('/sandboxes', task_id=task).json()['items'], [])
        ended = self.api.get('/sandboxes', task_id=task, state='ended').json()['items']
        self.assertEqual([box['ended_by'] for box in ended], ['user'])

    def test_what_nearly_does_not_fit_is_done_to_the_last_file(self):
        """A request has 16 MiB, of which this one takes nearly all: its many paths need room of their own."""
        task = f'full-{uuid.uuid4().hex}'
        deep = '/tmp/' + '/'.join(['\u00e4' * 125] * 15)
        files = [{'path': f'{deep}/{n}', 'content': ''} for n in range(255)]
        body = {'task_id': task, 'files': [*files, {'path': '/tmp/last', 'content': 'x' * (14 << 20)}]}
        answer = self.api.raw('POST', '/api/v1/sandboxes', json.dumps(body, ensure_ascii=False).encode(),
                              {'Content-Type': 'application/json'})
        self.assertEqual(answer.status, 201, answer.body)
        place = f"/api/v1/sandboxes/{answer.json()['id']}"
        self.addCleanup(self.api.raw, 'DELETE', place)
        self.assertEqual(self.api.raw('GET', f'{place}/files?path=/tmp/last').body, b'x' * (14 << 20))
        last = urllib.parse.quote(f'{deep}/254')
        self.assertEqual(self.api.raw('GET', f'{place}/files?path={last}').status, 200)

    def test_what_a_row_would_hold_too_much_of_is_refused(self):
        task = f'large-{uuid.uuid4().hex}'
        for body in ({'metadata': {'k': 'x' * (16 << 10)}}, {'metadata': {f'{n:08}': 'x' * 100 for n in range(160)}},
                     {'envs': {'K': 'x' * (256 << 10)}}):
            message = self.fails(400, 'invalid_request', 'POST', '/sandboxes', {'task_id': task, **body})['message']
            self.assertRegex(message, 'bytes of names and values are more than the (16384|262144)')
        status = self.api.raw('POST', '/v2/sandboxes', json.dumps({'templateID': 'base', 'metadata': {'k': 'x' * 20000}}),
                              {'Content-Type': 'application/json'}).status
        self.assertEqual(status, 400)
        self.assertEqual(self.api.get('/sandboxes', task_id=task).json()['items'], [])
        metadata = {'k': '\x01' * ((16 << 10) - 1)}  # six times as long where it is written
        box = self.make(metadata=metadata, envs={'K': 'x' * (100 << 10)}, disk_mb=128)['id']
        self.assertEqual(self.api.ask('GET', f'/sandboxes/{box}')['metadata'], metadata)

    def test_e2bs_events_of_it_come_in_pages(self):
        box = self.make(disk_mb=128)['id']
        for n in range(3):
            self.api.raw('PUT', f'/api/v1/sandboxes/{box}/files?path=/tmp/{n}', b'x')
        path = f'/events/sandboxes/{box}?orderAsc=true'
        deadline, before, whole = time.monotonic() + 60, None, []
        while (len(whole) < 4 or whole != before) and time.monotonic() < deadline:  # what was written is told later
            time.sleep(1)
            before, whole = whole, self.api.raw('GET', f'{path}&limit=100').json()
        self.assertGreater(len(whole), 3)
        for at, event in enumerate(whole):
            self.assertEqual(self.api.raw('GET', f'{path}&limit=1&offset={at}').json(), [event])
        self.assertEqual(self.api.raw('GET', f'{path}&offset={len(whole)}').json(), [])


class Listing(Case):
    def test_filters_and_pages_meet_each_sandbox_once(self):
        task = f'list-{uuid.uuid4().hex[:8]}'
        made = [self.make(task_id=task, agent_id=f'a{i % 2}', metadata={'n': str(i), 'x': 'y'})['id']
                for i in range(5)]
        self.api.call('DELETE', f'/sandboxes/{made[0]}')
        self.api.ask('POST', f'/sandboxes/{made[1]}/pause')

        def ids(**query):
            found, cursor = [], {}
            while True:
                page = self.api.get('/sandboxes', task_id=task, limit=2, **query, **cursor)
                self.assertEqual(page.status, 200, page.body)
                page = page.json()
                found += [box['id'] for box in page['items']]
                if not page['next_cursor']:
                    return found
                cursor = {'cursor': page['next_cursor']}

        newest = made[::-1]
        self.assertEqual(ids(), newest[:-1])
        self.assertEqual(ids(state='running'), newest[:-2])
        self.assertEqual(ids(state='paused'), [made[1]])
        self.assertEqual(ids(state='ended'), [made[0]])
        self.assertEqual(ids(state='running,paused,ended'), newest)
        self.assertEqual(ids(agent_id='a1', state='running,paused,ended'), [made[3], made[1]])
        self.assertEqual(ids(metadata='n=2,x=y'), [made[2]])
        self.assertEqual(ids(metadata='n=0,x=y', state='ended'), [made[0]])
        self.assertEqual(ids(template='base'), newest[:-1])
        self.assertEqual(ids(template='other'), [])

    def test_pages_are_as_large_as_there_is_room_for_what_they_show(self):
        """The metadata of seven such sandboxes is more than one page may hold: none is shown without it."""
        task = f'wide-{uuid.uuid4().hex}'

        def pages(**query):
            found, cursor = [], {}
            while True:
                page = self.api.get('/sandboxes', task_id=task, **query, **cursor).json()
                found.append([(box['metadata'].get('n'), len(box['metadata'].get('wide', '')))
                              for box in page['items']])
                if not page['next_cursor']:
                    return found
                cursor = {'cursor': page['next_cursor']}

        all_of_them = [(str(n), 15 << 10) for n in range(6, -1, -1)]
        boxes = [self.make(task_id=task, metadata={'n': str(n), 'wide': 'x' * (15 << 10)}, disk_mb=128)['id']
                 for n in range(7)]
        for state in ('running', 'ended'):
            found = pages(state=state, limit=3)
            self.assertEqual((sum(found, []), len(found) > 1), (all_of_them, True))
            self.assertEqual(sum(pages(state=state, metadata='n=0'), []), all_of_them[-1:])
            for box in boxes:
                self.api.call('DELETE', f'/sandboxes/{box}')

    def test_what_is_no_filter(self):
        for query in ({'limit': 0}, {'limit': 501}, {'limit': 'x'}, {'cursor': '!'}, {'cursor': 'eA'},
                      {'state': 'gone'}, {'state': ''}, {'metadata': 'x'}, {'metadata': '=x'}):
            self.assertEqual(self.api.get('/sandboxes', **query).status, 400, query)


class Once(Case):
    def again(self, key, body, path='/api/v1/sandboxes'):
        return self.api.raw('POST', path, json.dumps(body),
                            {'Idempotency-Key': key, 'Content-Type': 'application/json'})

    def test_the_same_request_again_is_the_same_sandbox_on_both_surfaces(self):
        for path, body, name in (('/api/v1/sandboxes', {'timeout': 60}, 'id'),
                                 ('/v2/sandboxes', {'templateID': 'base'}, 'sandboxID'),
                                 ('/sandboxes', {'templateID': 'base', 'timeout': 60}, 'sandboxID')):
            key = str(uuid.uuid4())
            first, second = self.again(key, body, path), self.again(key, body, path)
            self.assertEqual((first.status, second.status), (201, 201), first.body)
            self.addCleanup(self.api.call, 'DELETE', f'/sandboxes/{first.json()[name]}')
            self.assertEqual(first.body, second.body)
            self.assertEqual(second.headers['Idempotent-Replayed'], 'true')
            other = self.again(key, {**body, 'metadata': {'a': 'b'}}, path)
            self.assertEqual(other.status, 422, other.body)
            third = self.again(str(uuid.uuid4()), body, path)
            self.addCleanup(self.api.call, 'DELETE', f'/sandboxes/{third.json()[name]}')
            self.assertNotEqual(first.json()[name], third.json()[name])

    def test_one_whose_answer_is_too_large_to_keep_is_the_same_too(self):
        rules = {f'h{n}.example.com': [{'transform': {'headers': {f'X-{i}': 'v' * 2000 for i in range(20)}}}]
                 for n in range(8)}
        key, body = str(uuid.uuid4()), {'timeout': 60, 'network': {'rules': rules}}
        first, second = self.again(key, body), self.again(key, body)
        self.addCleanup(self.api.call, 'DELETE', f"/sandboxes/{first.json()['id']}")
        self.assertEqual((second.status, second.json()['id']), (201, first.json()['id']))

    def test_many_at_once_are_one(self):
        key = str(uuid.uuid4())
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: self.again(key, {'timeout': 60}), range(8)))
        ids = {answer.json()['id'] for answer in answers}
        self.addCleanup(self.api.call, 'DELETE', f'/sandboxes/{min(ids)}')
        self.assertEqual(([a.status for a in answers], len(ids)), ([201] * 8, 1))

    def test_a_failure_is_not_remembered_and_a_bad_key_is_none(self):
        key = str(uuid.uuid4())
        self.assertEqual(self.again(key, {'template': 'nowhere'}).status, 404)
        answer = self.again(key, {'timeout': 60})
        self.assertEqual(answer.status, 201)
        self.addCleanup(self.api.call, 'DELETE', f"/sandboxes/{answer.json()['id']}")
        for bad in ('', 'x' * 256, 'a b', '\xe4'):
            self.assertEqual(self.again(bad, {}).status, 400, bad)

    def test_what_it_used_before_a_restart_is_still_known(self):
        with tempfile.TemporaryDirectory(prefix='atoll-samples-') as name:
            pathlib.Path(name).chmod(0o755)
            server = Server(BUILD, name, '--pool', '1')
            with server:
                api = Api(server)
                box = api.ask('POST', '/sandboxes', {'timeout': 600})['id']
                deadline = time.monotonic() + 120
                while len(before := api.raw('GET', f'/sandboxes/{box}/metrics').json()) < 2:
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.3)
                server.stop()
                server.start()
                after = api.raw('GET', f'/sandboxes/{box}/metrics').json()
                self.assertEqual(after[:len(before)], before)
                api.call('DELETE', f'/sandboxes/{box}')

    def test_a_crash_between_does_not_make_a_second_one(self):
        with tempfile.TemporaryDirectory(prefix='atoll-once-') as name:
            pathlib.Path(name).chmod(0o755)
            server = Server(BUILD, name, '--pool', '1', '--stop-sandboxes')
            with server:
                api = Api(server)
                headers = {'Idempotency-Key': 'the-one', 'Content-Type': 'application/json'}
                first = api.raw('POST', '/api/v1/sandboxes', '{"timeout": 200}', headers)
                self.assertEqual(first.status, 201, first.body)
                server.kill()
                server.start()
                again = api.raw('POST', '/api/v1/sandboxes', '{"timeout": 200}', headers)
                self.assertEqual((again.status, again.json()['id']), (201, first.json()['id']), again.body)
                other = api.raw('POST', '/api/v1/sandboxes', '{"timeout": 201}', headers)
                self.assertEqual(other.status, 422)


class Files(Case):
    def setUp(self):
        super().setUp()
        self.box = f"/sandboxes/{self.make(disk_mb=128)['id']}"

    def path(self, path, **more):
        query = '&'.join(f'{k}={v}' for k, v in {'path': path, **more}.items())
        return f'/api/v1{self.box}/files?{query}'

    def test_any_bytes_go_in_and_come_back_whole_and_in_parts(self):
        data = os.urandom(3 << 20)
        put = self.api.raw('PUT', self.path('/tmp/big', mode='0600'), data)
        self.assertEqual((put.status, put.json()), (200, {'path': '/tmp/big', 'size': len(data)}))
        got = self.api.raw('GET', self.path('/tmp/big'))
        self.assertEqual((got.status, got.body == data, got.headers['Accept-Ranges']), (200, True, 'bytes'))
        tag = got.headers['ETag']
        for header, want in (('bytes=0-0', data[:1]), ('bytes=100-', data[100:]), ('bytes=-7', data[-7:]),
                             (f'bytes=5-{len(data) * 2}', data[5:])):
            part = self.api.raw('GET', self.path('/tmp/big'), headers={'Range': header, 'If-Range': tag})
            self.assertEqual((part.status, part.body == want), (206, True), header)
        whole = self.api.raw('GET', self.path('/tmp/big'), headers={'Range': 'bytes=5-', 'If-Range': '"other"'})
        self.assertEqual((whole.status, len(whole.body)), (200, len(data)))
        none = self.api.raw('GET', self.path('/tmp/big'), headers={'Range': f'bytes={len(data)}-'})
        self.assertEqual((none.status, none.headers['Content-Range'], none.json()['code']),
                         (416, f'bytes */{len(data)}', 'range_not_satisfiable'))
        same = self.api.raw('GET', self.path('/tmp/big'), headers={'If-None-Match': tag})
        self.assertEqual((same.status, same.body), (304, b''))
        self.api.raw('PUT', self.path('/tmp/big'), b'other')
        self.assertNotEqual(self.api.raw('GET', self.path('/tmp/big')).headers['ETag'], tag)
        empty = self.api.raw('PUT', self.path('/tmp/empty'), b'')
        self.assertEqual((empty.status, self.api.raw('GET', self.path('/tmp/empty')).body), (200, b''))

    def test_a_chunked_upload_and_a_download_that_goes_on(self):
        pieces = [os.urandom(64 << 10) for _ in range(40)]
        server = self.api.server
        link = http.client.HTTPConnection(server.host, server.port, timeout=60)
        link.request('PUT', self.path('/tmp/chunked'), iter(pieces), self.api.headers({}), encode_chunked=True)
        self.assertEqual(link.getresponse().status, 200)
        link.close()
        data = b''.join(pieces)
        link = http.client.HTTPConnection(server.host, server.port, timeout=60)
        link.request('GET', self.path('/tmp/chunked'), headers=self.api.headers({}))
        answer = link.getresponse()
        part, tag = answer.read(100000), answer.headers['ETag']
        link.close()  # broken off
        rest = self.api.raw('GET', self.path('/tmp/chunked'),
                            headers={'Range': f'bytes={len(part)}-', 'If-Range': tag})
        self.assertEqual((rest.status, part + rest.body == data), (206, True))

    def test_each_failure_has_its_own_code(self):
        def told(method, path, body=None, **more):
            answer = self.api.raw(method, path, body, **more)
            return answer.status, answer.json()['code']

        self.assertEqual(told('GET', self.path('/nowhere')), (404, 'file_not_found'))
        self.assertEqual(told('GET', self.path('/etc/passwd/x')), (422, 'not_a_directory'))
        self.assertEqual(told('GET', self.path('/etc')), (422, 'is_a_directory'))
        self.assertEqual(told('PUT', self.path('/etc'), b'x'), (422, 'is_a_directory'))
        self.assertEqual(told('GET', self.path('/dev/null')), (422, 'invalid_path'))
        self.assertEqual(told('PUT', self.path('/tmp/x', mode='99'), b''), (400, 'invalid_request'))
        self.assertEqual(told('GET', f'/api/v1{self.box}/files'), (400, 'invalid_request'))
        self.assertEqual(told('GET', self.path('/etc/passwd', user='nobody-here')), (422, 'unknown_user'))
        self.assertEqual(told('DELETE', self.path('/nowhere')), (404, 'file_not_found'))
        lists = f'/api/v1{self.box}/files/list?path='
        self.assertEqual(told('GET', f'{lists}/nowhere'), (404, 'file_not_found'))
        self.assertEqual(told('GET', f'{lists}/etc/passwd')[0], 422)
        self.assertEqual(told('GET', f'{lists}/etc&depth=0'), (400, 'invalid_request'))
        link = http.client.HTTPConnection(self.api.server.host, self.api.server.port, timeout=20)
        link.putrequest('PUT', self.path('/tmp/x'))
        link.putheader('X-API-Key', self.api.key)
        link.putheader('Content-Length', str(1 << 40))
        link.endheaders()
        answer = link.getresponse()
        self.assertEqual((answer.status, json.loads(answer.read())['code']), (413, 'file_too_large'))
        link.close()
        full = self.api.raw('PUT', self.path('/home/user/full'), b'x' * (127 << 20), timeout=120)
        self.assertEqual((full.status, full.json()['code']), (507, 'no_space'), full.body)

    def test_trees_are_listed_and_deleted(self):
        for name in ('t/a', 't/b/c', 't/b/d/e'):
            self.assertEqual(self.api.raw('PUT', self.path(f'/tmp/{name}'), name.encode()).status, 200)
        for depth, want in ((1, {'a', 'b'}), (2, {'a', 'b', 'c', 'd'}), (3, {'a', 'b', 'c', 'd', 'e'})):
            items = self.api.get(f'{self.box}/files/list', path_='/tmp/t', depth=depth).json()['items']
            self.assertEqual({e['name'] for e in items}, want)
        kinds = {e['name']: (e['type'], e['size']) for e in
                 self.api.get(f'{self.box}/files/list', path_='/tmp/t').json()['items']}
        self.assertEqual((kinds['a'], kinds['b'][0]), (('file', 3), 'directory'))
        self.assertEqual(self.api.raw('DELETE', self.path('/tmp/t')).status, 204)
        self.assertEqual(self.api.raw('GET', self.path('/tmp/t/a')).status, 404)

    def test_names_with_everything_in_them(self):
        for name in ('a b', 'ä', '100%', 'a&b=c', '?', '#', "'\"", '\n', '%2e%2e'):
            path = '/tmp/names/' + ''.join(f'%{b:02x}' for b in name.encode())
            self.assertEqual(self.api.raw('PUT', self.path(path), name.encode()).status, 200, name)
            self.assertEqual(self.api.raw('GET', self.path(path)).body, name.encode(), name)

    def test_a_client_that_leaves_leaves_nothing_behind(self):
        server = self.api.server
        for method in ('PUT', 'GET'):
            self.api.raw('PUT', self.path('/tmp/left'), b'x' * (4 << 20))
            for _ in range(10):
                link = http.client.HTTPConnection(server.host, server.port, timeout=20)
                link.putrequest(method, self.path('/tmp/left'))
                link.putheader('X-API-Key', self.api.key)
                if method == 'PUT':
                    link.putheader('Content-Length', '1000000')
                link.endheaders(b'part' if method == 'PUT' else None)
                if method == 'GET':
                    link.getresponse().read(10)
                link.close()
        box = self.box.rsplit('/', 1)[1]
        deadline = time.monotonic() + 60
        while True:  # its connections are counted: none may stay
            told = self.api.raw('GET', f'/sandboxes/{box}').json()
            if not told.get('limitsReached') and self.api.raw('GET', self.path('/etc/hostname')).status == 200:
                break
            self.assertLess(time.monotonic(), deadline, told)
            time.sleep(0.2)


class Secrets(Case):
    def test_written_listed_and_never_read_back(self):
        name = f'v1-{uuid.uuid4().hex[:8]}'
        value = f'planted-{uuid.uuid4().hex}'
        made = self.api.call('PUT', f'/secrets/{name}', {'value': value, 'metadata': {'for': 'test'}})
        self.assertEqual((made.status, made.json()['version']), (201, 1), made.body)
        again = self.api.call('PUT', f'/secrets/{name}', {'value': value + '2'})
        self.assertEqual((again.status, again.json()['version'], again.json()['metadata']), (200, 2, {'for': 'test'}))
        listed, cursor = b'', {}
        while True:
            page = self.api.get('/secrets', limit=2, **cursor)
            listed += page.body
            if not page.json()['next_cursor']:
                break
            cursor = {'cursor': page.json()['next_cursor']}
        self.assertIn(name.encode(), listed)
        for body in (made.body, again.body, listed):
            self.assertNotIn(value.encode(), body)
        self.fails(405, 'method_not_allowed', 'GET', f'/secrets/{name}')
        for bad in ({}, {'value': 5}, {'value': 'x', 'name': 'y'}, {'value': 'x' * 70000}, {'value': ''}):
            self.assertEqual(self.api.call('PUT', f'/secrets/{name}', bad).status, 400, str(bad)[:50])
        self.assertEqual(self.api.call('PUT', '/secrets/bad%20name', {'value': 'x'}).status, 400)
        self.assertEqual(self.api.call('DELETE', f'/secrets/{name}').status, 204)
        self.fails(404, 'not_found', 'DELETE', f'/secrets/{name}')

    def test_given_to_a_sandbox_it_is_in_its_environment_and_nowhere_else(self):
        value = f'planted-{uuid.uuid4().hex}'
        digest = hashlib.sha256(value.encode()).hexdigest()
        self.api.ask('PUT', '/secrets/v1-env', {'value': value})
        answer = self.api.call('POST', '/sandboxes', {'secrets': {'S': 'v1-env'}, 'envs': {'E': 'e'}})
        made = answer.json()
        self.addCleanup(self.api.call, 'DELETE', f"/sandboxes/{made['id']}")
        ran = self.api.call('POST', f"/sandboxes/{made['id']}/execute",
                            {'shell': 'printf %s "$S" | sha256sum; echo "$E"'})
        if ran.status != 404:
            self.assertIn(digest, ran.json()['stdout'])
        for answer in (answer, self.api.call('GET', f"/sandboxes/{made['id']}"), self.api.get('/sandboxes'),
                       self.api.raw('GET', f"/v2/sandboxes/{made['id']}/logs"),
                       self.api.raw('GET', f"/sandboxes/{made['id']}")):
            self.assertLess(answer.status, 300)
            self.assertNotIn(value.encode(), answer.body)
        data = pathlib.Path(os.environ['ATOLL_TEST_DATA'])
        for path in data.rglob('state/*'):
            if path.is_file():
                self.assertNotIn(value.encode(), path.read_bytes(), path)


if __name__ == '__main__':
    unittest.main()
