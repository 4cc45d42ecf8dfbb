"""What is done in sandboxes is in the event log, whatever door it came by: once, masked, bounded, also when the
server is killed. Each class has a server of its own."""
import base64
import concurrent.futures
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import shutil
import socketserver
import struct
import subprocess
import tempfile
import threading
import time
import unittest

from harness.sandbox import Sandbox, frames
from harness.server import Server
from harness.together import arrange_classes
from harness.v1 import Api

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
TOKEN = 'the-operator-of-this-test'
PROCESSES = {'process.started', 'process.ended'}
TERMINALS = {'terminal.opened', 'terminal.closed'}


class Case(unittest.TestCase):
    OPTIONS, BUILD = (), BUILD

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-activity-')
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)
        cls.scratch.chmod(0o755)
        (cls.scratch / 'token').write_text(TOKEN)
        cls.server = Server(cls.BUILD, cls.scratch, '--pool', '2', '--stop-sandboxes', '--admin-token-file',
                            cls.scratch / 'token', *cls.OPTIONS)
        cls.addClassCleanup(cls.server.stop)
        cls.server.start()
        cls.api = Api(cls.server)
        cls.operator = Api(cls.server, operator=TOKEN)

    def tearDown(self):
        self.assertEqual(self.server.sanitizer_findings(), '')

    def box(self, **body):
        return Sandbox(env=self.server.env(), **body)

    def told(self, box_id, *kinds):
        """What the log has of it, of these kinds (or of all that a guest reports)."""
        events = self.api.events(subject=box_id)
        return [e for e in events if e['kind'] in kinds or (not kinds and 'guest_seq' in e['data'])]

    def wait(self, box_id, test, *kinds, seconds=90):
        deadline = time.monotonic() + seconds
        while not test(found := self.told(box_id, *kinds)):
            self.assertLess(time.monotonic(), deadline, [(e['kind'], e['data']) for e in found][-20:])
            time.sleep(0.1)
        return found

    def post(self, box, path, body, **headers):
        link = box.connection()
        with contextlib.closing(link):
            link.request('POST', path, json.dumps(body), box.headers(**{'Content-Type': 'application/json', **headers}))
            answer = link.getresponse()
            text = answer.read()
        self.assertEqual(answer.status, 200, text)
        return json.loads(text)

    def ran(self, started, ended):
        """The two belong together."""
        self.assertEqual((started['data']['pid'], started['data']['guest_seq']),
                         (ended['data']['pid'], ended['data']['begun']))


class Doors(Case):
    def test_a_command_of_an_sdk(self):
        with self.box() as box:
            self.assertEqual(box.run('echo one "two words"; exit 3', user='root').exit_code, 3)
            started, ended = self.wait(box.id, lambda seen: len(seen) == 2, *PROCESSES)
        self.assertEqual((started['kind'], ended['kind']), ('process.started', 'process.ended'))
        self.ran(started, ended)
        self.assertEqual((started['actor'], started['source']), ('client', '127.0.0.1'))
        self.assertEqual((started['data']['program'], started['data']['args'], started['data']['user']),
                         ('/bin/bash', ['-l', '-c', 'echo one "two words"; exit 3'], 'root'))
        self.assertEqual((ended['data']['exit_code'], ended['data']['cause'], ended['data']['program']),
                         (3, 'exit', '/bin/bash'))
        self.assertNotIn('signal', ended['data'])
        self.assertGreater(ended['data']['us'], 0)
        self.assertLessEqual(started['at'], ended['at'])
        self.assertEqual({e['team_id'] for e in (started, ended)}, {e['team_id'] for e in self.told(box.id, 'sandbox.created')})

    def test_how_it_ended(self):
        with self.box() as box:
            box.run('kill -TERM $$')
            message = json.dumps({'process': {'cmd': '/bin/sleep', 'args': ['100']}, 'stdin': False,
                                  'timeoutMs': 200}).encode()
            link = box.connection()
            with contextlib.closing(link):
                link.request('POST', '/process.Process/Start', struct.pack('>BI', 0, len(message)) + message,
                             box.headers(**{'Content-Type': 'application/connect+json'}))
                list(frames(link.getresponse()))
            first, second = self.wait(box.id, lambda seen: len(seen) == 2, 'process.ended')
        self.assertEqual((first['data']['signal'], first['data']['cause']), ('SIGTERM', 'signal'))
        self.assertEqual((second['data']['signal'], second['data']['cause']), ('SIGKILL', 'timeout'))

    def test_a_terminal(self):
        with self.box() as box:
            message = json.dumps({'process': {'cmd': '/bin/sh', 'args': ['-c', 'exit 0']}, 'tag': 'mine',
                                  'pty': {'size': {'cols': 80, 'rows': 24}}}).encode()
            link = box.connection()
            with contextlib.closing(link):
                link.request('POST', '/process.Process/Start', struct.pack('>BI', 0, len(message)) + message,
                             box.headers(**{'Content-Type': 'application/connect+json'}))
                list(frames(link.getresponse()))
            opened, closed = self.wait(box.id, lambda seen: len(seen) == 2, *TERMINALS)
            self.assertEqual(self.told(box.id, *PROCESSES), [])
        self.ran(opened, closed)
        self.assertEqual((opened['data']['tag'], closed['data']['tag']), ('mine', 'mine'))

    def test_files(self):
        with self.box() as box:
            self.assertEqual(box.write('/home/user/a', b'12345')[0], 200)
            self.post(box, '/filesystem.Filesystem/MakeDir', {'path': '/home/user/d'})
            self.post(box, '/filesystem.Filesystem/Move', {'source': '/home/user/a', 'destination': '/home/user/d/b'})
            self.post(box, '/filesystem.Filesystem/Remove', {'path': '/home/user/d'})
            self.post(box, '/filesystem.Filesystem/ListDir', {'path': '/home/user'})
            events = self.wait(box.id, lambda seen: len(seen) >= 4)
        self.assertEqual([e['kind'] for e in events],
                         ['file.written', 'file.directory_made', 'file.moved', 'file.deleted'])
        self.assertEqual((events[0]['data']['path'], events[0]['data']['size']), ('/home/user/a', 5))
        self.assertEqual((events[2]['data']['path'], events[2]['data']['to']), ('/home/user/a', '/home/user/d/b'))
        self.assertEqual({(e['actor'], e['source'], e['data']['user']) for e in events}, {('client', '127.0.0.1', 'user')})

    def test_an_upload_that_breaks_off_is_told(self):
        with self.box() as box:
            link = box.connection()
            link.putrequest('POST', '/files?path=/home/user/half&username=user')
            for name, value in box.headers(**{'Content-Type': 'application/octet-stream',
                                              'Content-Length': '1000000'}).items():
                link.putheader(name, value)
            link.endheaders(b'x' * 300000)
            self.assertEqual(box.run('until [ -s /home/user/half ]; do sleep 0.05; done').exit_code, 0)
            link.close()
            [event] = self.wait(box.id, lambda seen: len(seen) == 1, 'file.written')
        self.assertEqual((event['data']['path'], event['data']['partly']), ('/home/user/half', True))

    def test_the_command_line_and_executions(self):
        box = self.api.ask('POST', '/sandboxes', {})['id']
        self.addCleanup(self.api.call, 'DELETE', f'/sandboxes/{box}')
        run = self.api.ask('POST', f'/sandboxes/{box}/execute', {'shell': 'echo the-line; exit 4'})
        self.assertEqual(run['exit_code'], 4)
        subprocess.run([BUILD / 'atoll', 'sandbox', 'exec', box, '--', 'true'], check=True, capture_output=True,
                       env={**os.environ, **self.server.env()})
        events = self.wait(box, lambda seen: len(seen) == 4, *PROCESSES)
        [told] = self.told(box, 'execution.started')
        first = [e for e in events if e['data'].get('tag') == told['data']['tag']]
        self.assertEqual([e['kind'] for e in first], ['process.started', 'process.ended'])
        self.assertEqual({e['data']['via'] for e in first}, {'execution'})
        self.assertEqual(first[1]['data']['exit_code'], 4)
        self.assertNotIn('the-line', json.dumps(first))
        self.assertEqual({'program', 'args', 'cwd'} & {key for e in first for key in e['data']}, set())
        second = [e for e in events if e not in first]
        self.assertEqual([e['source'] for e in second][:1], ['127.0.0.1'])
        self.assertNotIn('via', second[0]['data'])

    def test_what_the_server_tells_itself_comes_once(self):
        box = self.api.ask('POST', '/sandboxes', {})['id']
        self.addCleanup(self.api.call, 'DELETE', f'/sandboxes/{box}')
        path = f'/api/v1/sandboxes/{box}/files?path=/home/user/f'
        self.assertEqual(self.api.raw('PUT', path, b'hello', {'Content-Type': 'application/octet-stream'}).status, 200)
        self.assertEqual(self.api.raw('DELETE', path).status, 204)
        self.api.ask('POST', f'/sandboxes/{box}/execute', {'argv': ['true']})
        self.wait(box, lambda seen: len(seen) == 2, *PROCESSES)
        found = self.told(box, 'file.written', 'file.deleted')
        self.assertEqual([(e['kind'], 'request_id' in e['data'], e['actor_name'] is not None) for e in found],
                         [('file.written', True, True), ('file.deleted', True, True)])

    def test_a_client_can_neither_hide_nor_pretend(self):
        with self.box() as box:
            forged = {'Atoll-Recorded': '1', 'Atoll-Source': '192.0.2.1', 'aToLL-recorded': '1'}
            self.post(box, '/filesystem.Filesystem/MakeDir', {'path': '/home/user/d'}, **forged)
            [event] = self.wait(box.id, lambda seen: len(seen) == 1, 'file.directory_made')
            self.assertEqual(event['source'], '127.0.0.1')
            for path in ('/activity', '/activity?after=1000', '/activity/'):
                link = box.connection()
                with contextlib.closing(link):
                    link.request('GET', path, headers=box.headers())
                    self.assertEqual(link.getresponse().status, 404, path)

    def test_secrets_are_masked_also_where_they_are_cut(self):
        value = 'swordfish-' + 'q' * 30
        self.api.ask('PUT', '/secrets/door', {'value': value})
        box = self.api.ask('POST', '/sandboxes', {'secrets': {'DOOR': 'door'}})['id']
        self.addCleanup(self.api.call, 'DELETE', f'/sandboxes/{box}')
        exec_ = [BUILD / 'atoll', 'sandbox', 'exec', box, '--']
        env = {**os.environ, **self.server.env()}
        subprocess.run([*exec_, 'echo', value, base64.b64encode(value.encode()).decode()], check=True,
                       capture_output=True, env=env)
        # 5 bytes of it are left when the arguments are cut at 1,024.
        subprocess.run([*exec_, 'echo', 'x' * (1024 - 4 - 5) + value], check=True, capture_output=True, env=env)
        events = self.wait(box, lambda seen: len(seen) == 4, *PROCESSES)
        text = json.dumps(events)
        self.assertIn('[secret:door]', text)
        for part in (value, base64.b64encode(value.encode()).decode()[:20], 'sword'):
            self.assertNotIn(part, text)
        self.assertTrue(any(e['data'].get('args_cut') for e in events))

    def test_ports_that_people_come_to(self):
        with self.box() as box:
            box.run('cd /tmp; echo hello > index.html; setsid python3 -m http.server 8000 >/dev/null 2>&1 </dev/null & '
                    'until curl -s localhost:8000 >/dev/null; do sleep 0.1; done')
            for _ in range(5):
                link = box.connection()
                with contextlib.closing(link):
                    link.request('GET', '/', headers=box.headers(8000))
                    self.assertEqual(link.getresponse().status, 200)
            self.wait(box.id, lambda seen: any(e['data'].get('port') == 8000 for e in seen), 'port.visited')
        found = self.wait(box.id, lambda seen: sum(e['data']['requests'] for e in seen if e['data']['port'] == 8000) == 5,
                          'port.visited')
        mine = [e for e in found if e['data']['port'] == 8000]
        self.assertLessEqual(len(mine), 2)
        self.assertEqual({(e['actor'], e['source']) for e in mine}, {('client', '127.0.0.1')})
        self.assertTrue(any(e['data']['port'] == 49983 for e in found))


class Lives(Case):
    """Of a sandbox that stops in one way or another."""

    def test_one_that_is_ended_at_once_has_told_everything(self):
        for _ in range(5):
            with self.box() as box:
                box.run('exit 7')
            events = self.wait(box.id, lambda seen: len(seen) == 2, *PROCESSES, seconds=10)
            self.assertEqual(events[1]['data']['exit_code'], 7)

    def test_a_whole_run(self):
        run = self.api.ask('POST', '/run', {'shell': 'exit 5'})
        events = self.wait(run['sandbox_id'], lambda seen: len(seen) == 2, *PROCESSES)
        self.assertEqual(events[1]['data']['exit_code'], 5)

    def test_pausing_and_resuming_neither_loses_nor_doubles(self):
        with self.box() as box:
            box.run('exit 1')
            for memory in (True, False, True):
                box.api('POST', f'/sandboxes/{box.id}/pause', {'memory': memory})
                box.api('POST', f'/sandboxes/{box.id}/connect', {'timeout': 300})
                box.run('exit 2')
        events = self.wait(box.id, lambda seen: len(seen) >= 8, *PROCESSES)
        self.assertEqual([e['data'].get('exit_code') for e in events], [None, 1, None, 2, None, 2, None, 2])
        # The third boot has another guest, which counts from one again.
        self.assertEqual([e['data']['guest_seq'] for e in events], [1, 2, 3, 4, 1, 2, 3, 4])
        self.assertEqual(self.told(box.id, 'activity.lost'), [])

    def test_a_fork_begins_anew(self):
        with self.box() as box:
            box.run('true')
            self.wait(box.id, lambda seen: len(seen) == 2, *PROCESSES)
            [fork] = box.api('POST', f'/sandboxes/{box.id}/fork', {'count': 1})
            fork = fork.get('sandbox', fork)
            twin = Sandbox.__new__(Sandbox)
            twin.env, twin.made, twin.id = box.env, fork, fork['sandboxID']
            with twin:
                twin.run('exit 9')
                events = self.wait(twin.id, lambda seen: len(seen) == 2, *PROCESSES)
                self.assertEqual([e['data']['guest_seq'] for e in events], [1, 2])
            self.assertEqual(len(self.told(box.id, *PROCESSES)), 2)


class Runtimes(Case):
    # A guest with sanitizers is not static, and finds its libraries in no template.
    BUILD = next((b for b in [BUILD.parent / 'build'] if (b / 'atoll').exists()), BUILD)

    def test_every_runtime_tells_the_same(self):
        for name, program in {'local': None, 'runc': 'runc', 'crun': 'crun', 'gvisor': 'runsc'}.items():
            if program and not shutil.which(program):
                continue
            with self.subTest(name):
                box = self.api.ask('POST', '/sandboxes', {'runtime': name})['id']
                try:
                    self.api.ask('POST', f'/sandboxes/{box}/execute', {'argv': ['sh', '-c', 'exit 6']})
                finally:
                    self.api.call('DELETE', f'/sandboxes/{box}')
                events = self.wait(box, lambda seen: len(seen) == 2, *PROCESSES)
                self.assertEqual(events[1]['data']['exit_code'], 6)


class Crashes(Case):
    def test_a_server_that_is_killed_loses_and_doubles_nothing(self):
        with self.box(timeout=600) as box:
            ran, over = [0], threading.Event()

            def work():
                while not over.is_set():
                    try:
                        box.run(f'exit {ran[0] % 200}')
                        ran[0] += 1
                        time.sleep(0.15)  # a guest keeps 512 of what was not asked for yet
                    except (OSError, http.client.HTTPException, RuntimeError, struct.error):
                        time.sleep(0.05)

            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                job = pool.submit(work)
                for pause in (6, 2, 5.3, 7):
                    time.sleep(pause)
                    self.server.kill()
                    self.server.start()
                over.set()
                job.result()
            box.run('exit 201')
            events = self.wait(box.id, lambda seen: seen and seen[-1]['data'].get('exit_code') == 201)
        self.assertEqual(self.told(box.id, 'activity.lost'), [])
        self.assertEqual([e['data']['guest_seq'] for e in events], list(range(1, len(events) + 1)))
        self.assertGreaterEqual(sum(e['kind'] == 'process.ended' for e in events), ran[0])


@unittest.skipUnless((BUILD / 'atoll').read_bytes().find(b'activity.heard') > 0, 'this build has no crash points')
class Steps(Case):
    def test_a_server_that_dies_at_either_step_loses_and_doubles_nothing(self):
        for step in ('activity.heard', 'activity.written', 'activity.heard:2'):
            with self.subTest(step):
                self.server.stop()
                self.server.environment['ATOLL_CRASH_AT'] = step
                self.server.start()
                box = self.box(timeout=600)
                n = 0
                deadline = time.monotonic() + 60
                while self.server.process.poll() is None:
                    self.assertLess(time.monotonic(), deadline, 'nothing died: is the step ever reached?')
                    with contextlib.suppress(OSError, http.client.HTTPException, RuntimeError, struct.error):
                        box.run(f'exit {n % 200}')
                        n += 1
                    time.sleep(0.3)
                self.server.environment['ATOLL_CRASH_AT'] = ''
                self.server.start()
                box.run('exit 201')
                events = self.wait(box.id, lambda seen: seen and seen[-1]['data'].get('exit_code') == 201)
                self.assertEqual([e['data']['guest_seq'] for e in events], list(range(1, len(events) + 1)))
                self.assertGreaterEqual(sum(e['kind'] == 'process.ended' for e in events), n)
                self.assertEqual(self.told(box.id, 'activity.lost'), [])
                box.kill()


class Bounds(Case):
    def test_a_flood_is_counted_and_not_written(self):
        n = 3000
        with self.box() as box:
            message = json.dumps({'source': '/home/user/a', 'destination': '/home/user/a'}).encode()
            box.write('/home/user/a', b'')

            def some():
                link = box.connection()
                with contextlib.closing(link):
                    for _ in range(n // 4):
                        link.request('POST', '/filesystem.Filesystem/Move', message,
                                     box.headers(**{'Content-Type': 'application/json'}))
                        link.getresponse().read()

            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                for job in [pool.submit(some) for _ in range(4)]:
                    job.result()
            counted = lambda seen: sum(e['data']['n'] if e['kind'] == 'activity.lost' else 1 for e in seen)
            events = self.wait(box.id, lambda seen: counted(seen) >= n + 1, 'file.moved', 'file.written', 'activity.lost')
        self.assertEqual(counted(events), n + 1)
        written = [e for e in events if e['kind'] != 'activity.lost']
        self.assertLess(len(written), 1500)
        self.assertLess(len(events) - len(written), 30)
        numbers = [e['data']['guest_seq'] for e in written]
        self.assertEqual(numbers, sorted(set(numbers)))

    def test_of_many_visitors_most_are_one_number(self):
        n = 45
        with self.box() as box:
            for i in range(n):
                link = http.client.HTTPConnection(self.server.host, self.server.port, timeout=60,
                                                  source_address=(f'127.0.1.{i + 1}', 0))
                with contextlib.closing(link):
                    link.request('GET', '/', headers=box.headers(9))
                    link.getresponse().read()
        events = self.wait(box.id, lambda seen: sum(e['data']['requests'] for e in seen) >= n, 'port.visited')
        self.assertEqual(sum(e['data']['requests'] for e in events), n)
        apart = [e for e in events if 'port' in e['data']]
        self.assertEqual(len({e['source'] for e in apart}), 32)
        self.assertEqual({e['source'] for e in events if e['data'].get('others')}, {None})

    def test_long_arguments_are_cut(self):
        with self.box() as box:
            box.run('true ' + 'ä' * 50000)
            started, _ = self.wait(box.id, lambda seen: len(seen) == 2, *PROCESSES)
        self.assertTrue(started['data']['args_cut'])
        self.assertLess(len(json.dumps(started['data'], ensure_ascii=False).encode()), 2048)
        self.assertNotIn('\ufffd', ''.join(started['data']['args']))


class Liar:
    """In the place of a sandbox's guest: says whatever a program that has taken it over could."""

    def __init__(self, server, box, answers):
        liar = self
        self.answers, self.asked = answers, 0
        self.path = server.data / 'run' / box.id / 'guest.sock'
        self.moved = self.path.with_name('moved.sock')
        os.rename(self.path, self.moved)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = {'activity': (1 << 50) + (liar.asked << 40)} if self.path == '/metrics' else liar.answer()
                text = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(200)
                self.send_header('Content-Length', str(len(text)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(text)

            def address_string(self):
                return 'nobody'

            def log_message(self, *_):
                pass

        class Listener(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self.listener = Listener(str(self.path), Handler)
        os.chmod(self.path, 0o777)
        self.thread = threading.Thread(target=self.listener.serve_forever, daemon=True)
        self.thread.start()

    def answer(self):
        self.asked += 1
        return self.answers[self.asked % len(self.answers)](self.asked)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown()
        self.listener.server_close()
        os.replace(self.moved, self.path)


def page(epoch, first, step, n, **record):
    records = [{'seq': first + i * step, 'at': 1 << 60, 'kind': 'file.moved', 'path': '/p', **record} for i in range(n)]
    return {'epoch': epoch, 'last': first + n * step, 'records': records, 'more': True}


class Hostile(Case):
    ANSWERS = (
        lambda i: page(f'epoch{i}', 1, 1, 500),                      # each time another guest
        lambda i: page('same', i * 10**6, 1000, 500),                # gaps everywhere
        lambda i: page('same', 1 << 40, 1, 500, source='admin 10.0.0.1', user='x' * 700),
        lambda i: page('same', 5, -1, 3),
        lambda i: b'[' * 60000,
        lambda i: b'{"epoch":"a","last":1,"records":[' + b'{},' * 100000 + b'{}]}',
    )

    def test_what_a_guest_says_is_bounded_and_harms_nobody(self):
        with self.box() as box, self.box() as other:
            with Liar(self.server, box, self.ANSWERS) as liar:
                deadline = time.monotonic() + 240
                while liar.asked < 14:
                    self.assertLess(time.monotonic(), deadline, liar.asked)
                    time.sleep(0.1)
            other.run('exit 8')
            events = self.wait(other.id, lambda seen: len(seen) == 2, *PROCESSES)
            self.assertEqual(events[1]['data']['exit_code'], 8)
            told = self.told(box.id, 'file.moved')
            lost = self.told(box.id, 'activity.lost')
            self.assertGreater(len(told), 0)
            self.assertLess(len(told) + len(lost), 1200 + 2 * 120 + 60)
            self.assertGreater(sum(e['data']['n'] for e in lost), 1000)
            self.assertEqual({(e['actor'], e['source']) for e in told}, {('system', None)})
            newest = max(e['at'] for e in self.api.events(subject=other.id))
            self.assertLessEqual(max(e['at'] for e in told)[:4], newest[:4])
            self.assertTrue(self.server.healthy())


class Less(Case):
    """Turned down for a team, by the operator."""

    def tearDown(self):
        self.set(None)
        super().tearDown()

    def path(self):
        return f"/admin/teams/{self.api.call('GET', '/quota').json()['team_id']}/activity"

    def set(self, activity, status=204):
        answer = self.operator.raw('PUT', self.path(), json.dumps({'activity': activity}),
                                   {'Content-Type': 'application/json'})
        self.assertEqual(answer.status, status, answer.body)

    def test_none_and_then_all_again(self):
        self.set('none')
        with self.box() as box:
            box.run('exit 1')
            box.write('/home/user/a', b'')
            time.sleep(11)  # two rounds of questions
            self.assertEqual(self.told(box.id), [])
            self.set('all')
            box.run('exit 2')
            events = self.wait(box.id, lambda seen: len(seen) == 2)
        self.assertEqual(events[1]['data']['exit_code'], 2)
        self.assertEqual(self.told(box.id, 'activity.lost'), [])
        [*_, changed] = self.operator.events(kind='team.activity')
        self.assertEqual((changed['data'], changed['actor'], changed['source']),
                         ({'activity': 'all'}, 'admin', '127.0.0.1'))

    def test_processes_alone(self):
        self.set('processes')
        with self.box() as box:
            box.write('/home/user/a', b'')
            box.run('exit 1')
        events = self.wait(box.id, lambda seen: len(seen) == 2)
        self.assertEqual({e['kind'] for e in events}, PROCESSES)
        self.assertEqual(self.told(box.id, 'port.visited'), [])

    def test_on_the_command_line(self):
        env = {**os.environ, **self.server.env(), 'ATOLL_ADMIN_TOKEN_FILE': str(self.scratch / 'token')}
        atoll = lambda *words: subprocess.run([BUILD / 'atoll', 'team', 'activity', *words], env=env, text=True,
                                              capture_output=True, check=False)
        self.assertEqual(atoll('default').stdout, 'all (as the server was started)\n')
        self.assertEqual(atoll('default', 'processes').stdout, 'processes\n')
        self.assertEqual(json.loads(atoll('default', '--json').stdout)['holds'], 'processes')
        self.assertEqual(atoll('default', 'usual').stdout, 'all (as the server was started)\n')
        self.assertEqual(atoll('default', 'some').returncode, 2)

    def test_what_is_no_setting_is_refused(self):
        for wrong in ('some', '', 7, ['all'], {'x': 1}):
            self.set(wrong, 400)
        answer = self.operator.raw('PUT', self.path(), '{"activty": "none"}', {'Content-Type': 'application/json'})
        self.assertEqual(answer.status, 400)


class Usual(Case):
    OPTIONS = ('--activity', 'none')

    def test_the_server_may_be_started_so(self):
        with self.box() as box:
            box.run('true')
        self.wait(box.id, lambda seen: seen, 'sandbox.removed')
        self.assertEqual(self.told(box.id), [])
        self.assertEqual(self.told(box.id, 'port.visited'), [])


def load_tests(_loader, standard, _pattern):
    return arrange_classes(standard, lambda test: not isinstance(test, (Crashes, Steps, Bounds)), 4)
