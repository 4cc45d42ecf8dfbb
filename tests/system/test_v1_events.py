"""The event log over /api/v1: live and by pages, for those who may see it, over crashes, for slow
readers. Each class has a server of its own."""
import csv
import io
import json
import os
import pathlib
import socket
import sqlite3
import tempfile
import threading
import time
import unittest

from harness import postgres
from harness.sandbox import Sandbox
from harness.server import Server
from harness.together import arrange_classes
from harness.v1 import Api, Follower

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
LIFE = ['sandbox.created', 'sandbox.started', 'sandbox.ended', 'sandbox.removed']
TOKEN = 'the-operator-of-this-test'


class Case(unittest.TestCase):
    OPTIONS = ()

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-events-')
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)
        cls.scratch.chmod(0o755)
        (cls.scratch / 'token').write_text(TOKEN)
        cls.server = Server(BUILD, cls.scratch, '--pool', '2', '--stop-sandboxes',
                            '--admin-token-file', cls.scratch / 'token', *cls.OPTIONS)
        cls.addClassCleanup(cls.server.stop)
        cls.server.start()
        cls.api = Api(cls.server)

    def tearDown(self):
        self.assertEqual(self.server.sanitizer_findings(), '')

    def box(self, **body):
        return Sandbox(env=self.server.env(), **body)

    def some_events(self, n, name='s'):
        """Cheap ones: each is a secret that is set."""
        for i in range(n):
            self.api.ask('PUT', f'/secrets/{name}', {'value': f'value-{i}'})


class Reading(Case):
    def test_a_life_is_told_live_and_again_from_any_number(self):
        with Follower(self.api) as live:
            with self.box() as box:
                pass
            mine = lambda seen: [e for e in seen if e['subject'] == box.id]
            live.wait(lambda seen: len(mine(seen)) == 4)
            self.assertEqual([e['kind'] for e in mine(live.seen)], LIFE)
            first = mine(live.seen)[0]
        self.assertEqual(first['data']['template'], 'base')
        started = mine(live.seen)[1]['data']
        self.assertGreaterEqual(started['us'], started['quota_us'] + started['runtime_us'])
        with Follower(self.api, after=first['seq']) as again:
            again.wait(lambda seen: len(mine(seen)) == 3)
            self.assertEqual([e['kind'] for e in mine(again.seen)], LIFE[1:])
        stored = [e for e in self.api.events(subject=box.id)]
        self.assertEqual(stored, mine(live.seen))

    def test_the_query_says_after_and_the_header_wins(self):
        self.some_events(3)
        everything = self.api.events()
        with Follower(self.api, **{'after': everything[-2]['seq']}) as by_query:
            by_query.wait(lambda seen: len(seen) >= 1)
            self.assertEqual(by_query.seen[0], everything[-1])
        with Follower(self.api, after=everything[-3]['seq'],
                      **{'filter': 1}) as by_header:
            by_header.query = {'after': 0}
            by_header.wait(lambda seen: len(seen) >= 2)
            self.assertEqual(by_header.seen[0], everything[-2])

    def test_filters_live_and_stored_agree(self):
        with Follower(self.api) as everything, \
             Follower(self.api, kind='secret.') as by_kind, \
             Follower(self.api, kind='sandbox.started,sandbox.ended') as two, \
             Follower(self.api, agent_id='ag-1') as by_agent, \
             Follower(self.api, task_id='job-1') as by_task:
            agent, _ = self.api.key_for(agent_id='ag-1')
            made = agent.ask('POST', '/sandboxes', {'template': 'base', 'task_id': 'job-1'})
            with Follower(self.api, subject=made['id']) as by_subject:
                self.some_events(2, 'filtered')
                agent.ask('DELETE', f"/sandboxes/{made['id']}")
                by_subject.wait(lambda seen: 'sandbox.removed' in by_subject.kinds())
                everything.wait(lambda seen: 'sandbox.removed' in everything.kinds())
            by_task.wait(lambda seen: 'sandbox.removed' in by_task.kinds())
            by_agent.wait(lambda seen: 'sandbox.removed' in by_agent.kinds())
            by_kind.wait(lambda seen: len(seen) >= 2)
            two.wait(lambda seen: len(seen) >= 2)
            time.sleep(0.2)
        mine = [e for e in everything.seen if e['subject'] == made['id']]
        self.assertEqual([e['kind'] for e in mine], LIFE)
        self.assertTrue(all(e['agent_id'] == 'ag-1' and e['task_id'] == 'job-1' for e in mine))
        self.assertEqual(by_task.seen, mine)
        self.assertEqual(by_agent.seen, [e for e in everything.seen if e['agent_id'] == 'ag-1'])
        self.assertEqual(set(by_kind.kinds()), {'secret.created', 'secret.updated'})
        self.assertEqual(two.kinds(), ['sandbox.started', 'sandbox.ended'])
        first = everything.seen[0]['seq'] - 1
        for query in ({'kind': 'secret.'}, {'agent_id': 'ag-1'}, {'task_id': 'job-1'},
                      {'subject': made['id']}, {'kind': 'sandbox.started,sandbox.ended'}):
            stored = self.api.events(after=first, **query)
            live = {'kind': {'secret.': by_kind}.get(query.get('kind'), two), 'agent_id': by_agent,
                    'task_id': by_task}.get(next(iter(query)))
            if live:
                self.assertEqual(stored, live.seen, query)

    def test_pages_have_neither_hole_nor_overlap(self):
        self.some_events(12)
        whole = self.api.events()
        found, cursor = [], {}
        while True:
            page = self.api.get('/events', format='json', limit=5, **cursor).json()
            self.assertLessEqual(len(page['items']), 5)
            found += page['items']
            if not page['next_cursor']:
                break
            cursor = {'cursor': page['next_cursor']}
        self.assertEqual([e['seq'] for e in found], [e['seq'] for e in whole])
        everything = Api(self.server, operator=TOKEN).events()
        self.assertEqual([e['seq'] for e in everything], list(range(1, len(everything) + 1)))
        newest = self.api.get('/events', format='json', order='desc', limit=3).json()
        self.assertEqual(newest['items'], whole[:-4:-1])
        more = self.api.get('/events', format='json', order='desc', limit=2,
                            cursor=newest['next_cursor']).json()
        self.assertEqual(more['items'], whole[-4:-6:-1])

    def test_what_is_wrong_is_said(self):
        for path in ('/events?after=x', '/events?kind=,', '/events?kind=a,b,c,d,e', '/events?format=xml',
                     '/events?format=json&limit=0', '/events?format=json&cursor=zzz',
                     '/audit?from=yesterday', '/audit?format=sse', '/audit?cursor=-1',
                     '/usage?group_by=colour', '/usage?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z',
                     '/usage?format=ndjson', f'/events?subject={"x" * 300}'):
            answer = self.api.call('GET', path)
            self.assertEqual(answer.status, 400, path)
            self.assertLessEqual({'code', 'message', 'hint', 'request_id'}, set(answer.json()), path)
        answer = self.api.call('GET', '/events', headers={'Last-Event-ID': 'abc'})
        self.assertEqual(answer.status, 400)

    def test_a_number_that_never_was_is_told(self):
        with Follower(self.api, after=10 ** 9) as lost:
            deadline = time.monotonic() + 60
            while not lost.notices and time.monotonic() < deadline:
                time.sleep(0.02)
            self.assertEqual(lost.notices[0][0], 'reset')
            self.some_events(1)
            lost.wait(lambda seen: seen)

    def test_the_head_says_what_proxies_must_know(self):
        with socket.create_connection((self.server.host, self.server.port), 60) as link:
            link.sendall(f'GET /api/v1/events HTTP/1.1\r\nHost: x\r\nX-API-Key: {self.api.key}\r\n\r\n'
                         .encode())
            link.settimeout(60)
            text = b''
            while b'retry: 1000' not in text:
                text += link.recv(4096)
        head = text.decode().split('\r\n\r\n')[0].lower()
        for wanted in ('content-type: text/event-stream', 'cache-control: no-store, no-transform',
                       'x-accel-buffering: no', 'x-request-id: '):
            self.assertIn(wanted, head)


class Beats(Case):
    def test_a_heartbeat_comes_within_fifteen_seconds(self):
        """They take turns, one of fifteen each second: the first waits longest, the sixth five seconds."""
        idle = []
        for _ in range(6):
            idle.append(Follower(self.api, kind='nothing.'))
            self.addCleanup(idle[-1].close)
            self.assertTrue(idle[-1].opened.wait(60))
        deadline = time.monotonic() + 15 + 10  # for a busy machine
        while not all(follower.beats for follower in idle[1:]) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual([follower.beats > 0 for follower in idle[1:]], [True] * 5)


class WhoSees(Case):
    def test_scopes_are_needed(self):
        for path, scope in (('/events?format=json', 'sandboxes:read'), ('/audit', 'audit'),
                            ('/usage', 'usage'), ('/metrics', 'usage')):
            without, _ = self.api.key_for(scopes=['files'])
            answer = without.call('GET', path)
            self.assertEqual((answer.status, answer.json()['code']), (403, 'missing_scope'), path)
            having, _ = self.api.key_for(scopes=[scope])
            self.assertEqual(having.call('GET', path).status, 200, path)
            nobody = Api(self.server, 'e2b_' + '0' * 40)
            self.assertEqual(nobody.call('GET', path).status, 401, path)

    def test_without_audit_only_sandboxes_are_seen(self):
        reader, _ = self.api.key_for(scopes=['sandboxes:read'])
        with Follower(reader) as live, Follower(self.api) as all_of_it:
            self.some_events(2, 'unseen')
            with self.box():
                pass
            all_of_it.wait(lambda seen: 'sandbox.removed' in all_of_it.kinds())
            live.wait(lambda seen: 'sandbox.removed' in live.kinds())
        self.assertIn('secret.created', all_of_it.kinds())
        self.assertEqual(live.kinds(), LIFE)
        self.assertTrue(all(e['kind'].startswith('sandbox.') for e in reader.events()))

    def test_an_agent_sees_its_own(self):
        one, _ = self.api.key_for(agent_id='one')
        two, _ = self.api.key_for(agent_id='two')
        with Follower(one, kind='sandbox.') as of_one, Follower(two, kind='sandbox.') as of_two:
            made = one.ask('POST', '/sandboxes', {'template': 'base'})
            one.ask('DELETE', f"/sandboxes/{made['id']}")
            of_one.wait(lambda seen: 'sandbox.removed' in of_one.kinds())
            time.sleep(0.3)
        self.assertEqual(of_one.kinds(), LIFE)
        self.assertEqual(of_two.seen, [])
        self.assertEqual([e for e in two.events() if e['agent_id'] != 'two'], [])
        self.assertEqual(two.events(subject=made['id']), [])
        answer = two.get('/events', format='json', agent_id='one')
        self.assertEqual((answer.status, answer.json()['code']), (403, 'not_your_agent'))
        if one.call('GET', '/usage').status == 200:
            self.assertEqual(two.get('/usage').json()['total']['runs'], 0)

    def test_a_revoked_key_sees_nothing_more(self):
        key, made = self.api.key_for()
        with Follower(key, again=False) as live:
            self.some_events(1)
            live.wait(lambda seen: seen)
            self.api.ask('DELETE', f"/keys/{made['id']}")
            self.some_events(1, 'later')
            self.assertTrue(live.ended.wait(60))
        self.assertNotIn('later', json.dumps(live.seen))

    def test_the_operator_sees_all_teams_or_one(self):
        operator = Api(self.server, operator=TOKEN)
        self.some_events(1)
        teams = {e['team_id'] for e in operator.events() if e['team_id']}
        self.assertEqual(len(teams), 1)
        team = teams.pop()
        self.assertTrue(operator.events(team_id=team))
        self.assertEqual(operator.events(team_id='another'), [])
        self.assertEqual(operator.get('/usage', group_by='team').status, 200)


class Audit(Case):
    def test_who_did_what_and_when(self):
        key, made = self.api.key_for(name='auditor')
        begin = time.time()
        key.ask('PUT', '/secrets/audited', {'value': 'a-value-that-nobody-sees'})
        rows = self.api.get('/audit', actor=made['id']).json()['items']
        self.assertEqual([r['kind'] for r in rows], ['secret.created'])
        self.assertEqual(self.api.get('/audit', actor=made['id'], from_=int(begin) + 100).json()['items'], [])
        self.assertEqual(len(self.api.get('/audit', actor=made['id'], from_=int(begin) - 1).json()['items']), 1)
        self.assertEqual(self.api.get('/audit', actor=made['id'], to=int(begin) - 1).json()['items'], [])
        self.assertEqual(self.api.get('/audit', actor=made['id'], to=0).json()['items'], [])
        whole = self.api.get('/audit', limit=1000).json()['items']
        self.assertEqual([r['seq'] for r in whole], sorted((r['seq'] for r in whole), reverse=True))
        self.assertNotIn('a-value-that-nobody-sees', json.dumps(whole))

    def test_the_keys_name_and_the_address_stand_beside_the_id(self):
        key, made = self.api.key_for(name='deploy bot')
        key.ask('PUT', '/secrets/named', {'value': 'a-value-that-nobody-sees'})
        renamed = key.raw('PATCH', f"/api-keys/{made['id']}", '{"name": "called otherwise"}',
                          {'Content-Type': 'application/json'})
        self.assertLess(renamed.status, 300, renamed.body)
        row = self.api.get('/audit', actor=made['id'], kind='secret.').json()['items'][0]
        self.assertEqual((row['actor'], row['actor_name'], row['source']),
                         (made['id'], 'deploy bot', '127.0.0.1'))
        operator = Api(self.server, operator=TOKEN)
        team = row['team_id']
        operator.call('PUT', '/quota', {'sandboxes': 100}, {'X-Team-ID': team})
        row = operator.get('/audit', kind='team.quota').json()['items'][0]
        self.assertEqual((row['actor'], row['actor_name'], row['source']), ('admin', None, '127.0.0.1'))
        lines = list(csv.DictReader(io.StringIO(self.api.get('/audit', actor=made['id'], kind='secret.',
                                                             format='csv').body.decode())))
        self.assertEqual([(r['actor_name'], r['source']) for r in lines], [('deploy bot', '127.0.0.1')])
        child, _ = key.key_for(name='child')  # who made a key is the id alone
        self.assertEqual(child.get('/keys').json()['items'][0]['created_by'], made['id'])

    def test_a_change_of_the_network_is_told_without_what_headers_hold(self):
        key, made = self.api.key_for(name='network keeper')
        with self.box() as box:
            change = {'allowOut': ['198.51.100.7', 'example.com'], 'denyOut': ['0.0.0.0/0'],
                      'rules': {'example.com': [{'transform': {'headers': {
                          'X-Key': 'a-value-that-nobody-sees'}}}]}}
            answer = key.raw('PUT', f'/sandboxes/{box.id}/network', json.dumps(change),
                             {'Content-Type': 'application/json'})
            self.assertEqual(answer.status, 204, answer.body)
            rows = self.api.get('/audit', kind='sandbox.network', subject=box.id).json()['items']
            key.raw('PUT', f'/sandboxes/{box.id}/network', '{"denyOut": ["no address"]}',
                    {'Content-Type': 'application/json'})
            self.assertEqual(self.api.get('/audit', kind='sandbox.network', subject=box.id).json()['items'], rows)
        self.assertEqual([(r['actor_name'], r['source']) for r in rows], [('network keeper', '127.0.0.1')])
        self.assertEqual(rows[0]['data'], {
            'internet': None, 'deny_out': ['0.0.0.0/0'], 'allow_out': ['198.51.100.7/32', 'example.com'],
            'rules': [{'host': 'example.com', 'headers': ['X-Key']}]})

    def test_the_export_has_the_same_rows(self):
        for i in range(5):
            self.some_events(1, f'exported-{i}')
        whole = self.api.get('/audit', limit=1000, kind='secret.').json()['items']
        lines = self.api.get('/audit', kind='secret.', format='ndjson')
        self.assertEqual(lines.headers['Content-Type'], 'application/x-ndjson')
        self.assertEqual([json.loads(line) for line in lines.body.splitlines()], whole)
        table = self.api.call('GET', '/audit?kind=secret.', headers={'Accept': 'text/csv'})
        self.assertIn('attachment', table.headers['Content-Disposition'])
        rows = list(csv.DictReader(io.StringIO(table.body.decode())))
        self.assertEqual([int(r['seq']) for r in rows], [r['seq'] for r in whole])
        self.assertEqual([json.loads(r['data']) for r in rows], [r['data'] for r in whole])

    def test_a_long_export_comes_whole(self):
        flood(self.server, 3000, 2000)
        self.some_events(1)
        rows = self.api.get('/audit', kind='flood.', format='ndjson').body.splitlines()
        self.assertEqual(len(rows), 3000)
        numbers = [json.loads(r)['seq'] for r in rows]
        self.assertEqual(numbers, list(range(numbers[0], numbers[0] - 3000, -1)))


def flood(server, n, size):
    """Writes events behind the server's back, as many as a busy day has: it finds them with the next
    one of its own."""
    if url := server.environment.get('ATOLL_DATABASE'):
        postgres.ask(url, 'INSERT INTO events (seq, at_us, actor, kind, subject, data, team_id) '
                     f"SELECT last + i, {int(time.time() * 1e6)}, 'test', 'flood.one', 'flood', "
                     f"'{json.dumps({'pad': 'x' * size})}', team FROM generate_series(1, {n}) i, "
                     '(SELECT COALESCE(MAX(seq), 0) AS last FROM events) l, '
                     '(SELECT MIN(id) AS team FROM teams) t')
        return
    db = sqlite3.connect(server.data / 'state/atoll.db', timeout=30, isolation_level=None)
    db.execute('BEGIN IMMEDIATE')
    team = db.execute('SELECT id FROM teams').fetchone()[0]
    last = db.execute('SELECT COALESCE(MAX(seq), 0) FROM events').fetchone()[0]
    data = json.dumps({'pad': 'x' * size})
    db.executemany('INSERT INTO events (seq, at_us, actor, kind, subject, data, team_id) '
                   "VALUES (?, ?, 'test', 'flood.one', 'flood', ?, ?)",
                   [(last + i, int(time.time() * 1e6), data, team) for i in range(1, n + 1)])
    db.execute('COMMIT')
    db.close()


def memory_of(pid):
    for line in pathlib.Path(f'/proc/{pid}/status').read_text().splitlines():
        if line.startswith('VmRSS'):
            return int(line.split()[1]) * 1024
    return 0


class SlowReaders(Case):
    def mute(self, **more):
        """One that asks and never reads."""
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.connect((self.server.host, self.server.port))
        link.sendall(f'GET /api/v1/events?after=0 HTTP/1.1\r\nHost: x\r\nX-API-Key: {self.api.key}\r\n\r\n'
                     .encode())
        self.addCleanup(link.close)
        return link

    def test_one_that_never_reads_costs_little_and_disturbs_nobody(self):
        before = memory_of(self.server.process.pid)
        mute = [self.mute() for _ in range(5)]
        with Follower(self.api) as live:
            for i in range(1, 11):
                flood(self.server, 400, 2000)  # less than may wait for one: or this one would be slow itself
                self.some_events(1)
                live.wait(lambda seen: len(seen) >= 401 * i, 120)
            numbers = [e['seq'] for e in live.seen]
        self.assertEqual(numbers, list(range(numbers[0], numbers[0] + len(numbers))))
        self.assertEqual(live.notices, [])
        if 'asan' not in BUILD.name:  # the sanitizer keeps what is freed
            self.assertLess(memory_of(self.server.process.pid) - before, 64 << 20)
        self.assertEqual(len(mute), 5)

    def test_a_slow_one_hears_of_its_gap_and_gets_everything(self):
        link = self.mute()
        flood(self.server, 12000, 1500)
        self.some_events(1)
        time.sleep(2)
        flood(self.server, 1000, 10)
        self.some_events(1, 'last')
        link.settimeout(90)
        text, numbers, gaps = b'', [], []
        last = self.api.get('/events', format='json', order='desc', limit=1).json()['items'][0]['seq']
        while not numbers or numbers[-1] < last:
            piece = link.recv(1 << 16)
            self.assertTrue(piece)
            text += piece
            lines = text.split(b'\n')
            text = lines.pop()
            for line in lines:
                if line.startswith(b'id: '):
                    numbers.append(int(line[4:]))
                if line.startswith(b'data: {"from":'):
                    gaps.append(json.loads(line[6:]))
        self.assertEqual(numbers, list(range(1, last + 1)))
        self.assertTrue(gaps, 'it was behind and was not told')
        self.assertTrue(all(g['from'] <= g['to'] for g in gaps))


class Crashes(Case):
    def test_nothing_is_lost_or_repeated_over_crashes(self):
        """Events are made as fast as the API takes them while the server is killed again and again. Who
        was answered finds its event, each once."""
        answered, stop = [], threading.Event()

        def work(name):
            i = 0
            while not stop.is_set():
                i += 1
                try:
                    self.api.ask('PUT', f'/secrets/{name}-{i}', {'value': 'x' * 8})
                    answered.append(f'{name}-{i}')
                except (OSError, RuntimeError, ValueError, Exception):  # it is down just now
                    time.sleep(0.02)

        with Follower(self.api, after=0) as live, Follower(self.api, kind='secret.') as part:
            workers = [threading.Thread(target=work, args=(f'w{i}',)) for i in range(4)]
            for worker in workers:
                worker.start()
            for _ in range(4):
                time.sleep(0.7)
                self.server.kill()
                self.server.start()
            time.sleep(0.7)
            stop.set()
            for worker in workers:
                worker.join()
            last = self.api.get('/events', format='json', order='desc', limit=1).json()['items'][0]
            live.wait(lambda seen: seen and seen[-1]['seq'] >= last['seq'], 90)
            part.wait(lambda seen: seen and seen[-1]['seq'] >= last['seq'], 90)
        numbers = [e['seq'] for e in live.seen]
        self.assertEqual(numbers, list(range(1, last['seq'] + 1)))
        self.assertEqual(live.seen, self.api.events())
        of_part = [e['seq'] for e in part.seen]
        stored = [e['seq'] for e in self.api.events(kind='secret.') if e['seq'] >= of_part[0]]
        self.assertEqual(of_part, stored)
        self.assertGreater(len(answered), 50)
        made = [e for e in live.seen if e['kind'] == 'secret.created']
        self.assertGreaterEqual(len(made), len(answered))

    def test_a_stop_does_not_wait_for_streams(self):
        for _ in range(5):  # of several times the best: a busy machine is slow now and then
            followers = [Follower(self.api, again=False) for _ in range(30)]
            for f in followers:
                self.assertTrue(f.opened.wait(60))
            began = time.monotonic()
            self.assertEqual(self.server.stop(), 0)
            took = time.monotonic() - began
            for f in followers:
                self.assertTrue(f.ended.wait(30))
            self.server.start()
            if took < 2.5:
                break
        self.assertLess(took, 2.5)


def load_tests(_loader, standard, _pattern):
    """Classes side by side: each has a server of its own. But who must not be slow is alone."""
    return arrange_classes(standard, lambda test: not isinstance(test, SlowReaders), 4)
