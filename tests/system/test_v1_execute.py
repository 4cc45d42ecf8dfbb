"""Commands over /api/v1: run, recorded, masked, followed, cancelled, and whole runs. Each class has a server
of its own, which some of them kill."""
import base64
import concurrent.futures
import hashlib
import http.client
import json
import os
import pathlib
import socket
import tempfile
import threading
import time
import unittest

from harness.server import Server
from harness.v1 import Api

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent


class Case(unittest.TestCase):
    OPTIONS = ('--stop-sandboxes',)

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-execute-')
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)
        cls.scratch.chmod(0o755)
        cls.server = Server(BUILD, cls.scratch, '--pool', '2', *cls.OPTIONS)
        cls.addClassCleanup(cls.stopped)
        cls.server.start()
        cls.api = Api(cls.server)

    @classmethod
    def stopped(cls):
        """In order, and nothing of what was under way is left behind."""
        status = cls.server.stop()
        if status or cls.server.sanitizer_findings():
            raise AssertionError(f'it ended with {status}: {cls.server.sanitizer_findings() or cls.server.tail()}')

    def tearDown(self):
        self.assertEqual(self.server.sanitizer_findings(), '')

    def make(self, **body):
        made = self.api.ask('POST', '/sandboxes', body)
        self.addCleanup(self.api.call, 'DELETE', f"/sandboxes/{made['id']}")
        return made['id']

    def run_in(self, sandbox, shell=None, status=200, **body):
        if shell is not None:
            body['shell'] = shell
        answer = self.api.call('POST', f'/sandboxes/{sandbox}/execute', body)
        self.assertEqual(answer.status, status, answer.body)
        return answer.json()

    def stream(self, method, path, body=None, headers=None, api=None):
        """The connection and its server-sent events, as they come."""
        link = http.client.HTTPConnection(self.server.host, self.server.port, timeout=60)
        link.request(method, '/api/v1' + path, None if body is None else json.dumps(body),
                     (api or self.api).headers({'Content-Type': 'application/json', **(headers or {})}))
        return link, link.getresponse()

    def wait_for(self, sandbox, n, state='ended', timeout=90):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            found = self.api.ask('GET', f'/sandboxes/{sandbox}/executions/{n}')
            if found['state'] == state:
                return found
            time.sleep(0.05)
        self.fail(f'{found} is not {state}')

    def wait_for_output(self, sandbox, n):
        """Until it has said something: by then it is what it was to be."""
        deadline = time.monotonic() + 60
        while not self.logs(sandbox, n)['stdout']:
            self.assertLess(time.monotonic(), deadline, 'it says nothing')
            time.sleep(0.05)

    def no_sleep_is_left(self, sandbox):
        """Nor soon after: who was killed is there until somebody has asked how it ended."""
        self.assertEqual(self.run_in(sandbox, 'for i in $(seq 600); do n=$(pgrep -c "^sleep"); [ $n = 0 ] && break; '
                                     'read -t 0.05 < <(:); done; echo $n')['stdout'], '0\n')

    def logs(self, sandbox, n):
        """All that is kept, by pages, as bytes; numbers must have no gap."""
        out, start, seen = {'stdout': b'', 'stderr': b''}, 1, 0
        while True:
            page = self.api.ask('GET', f'/sandboxes/{sandbox}/executions/{n}/logs?from={start}&limit=50')
            for item in page['items']:
                seen += 1
                self.assertEqual(item['seq'], seen)
                out[item['stream']] += bytes_of(item)
            start = page['next']
            if page['complete'] or not page['items']:
                return out


def bytes_of(item):
    return base64.b64decode(item['base64']) if 'base64' in item else item['text'].encode()


def events(response):
    """(event, id, data) of each message."""
    event, seen, data = '', None, ''
    for raw in response:
        line = raw.decode().rstrip('\n')
        if not line:
            if data:
                yield event, seen, json.loads(data)
            event, seen, data = '', None, ''
        elif line.startswith('event: '):
            event = line[7:]
        elif line.startswith('id: '):
            seen = int(line[4:])
        elif line.startswith('data: '):
            data += line[6:]


class Commands(Case):
    def setUp(self):
        self.sandbox = self.make()

    def test_shell_line_and_argv(self):
        got = self.run_in(self.sandbox, 'echo out; echo err >&2; exit 3')
        self.assertEqual((got['stdout'], got['stderr'], got['exit_code']), ('out\n', 'err\n', 3))
        self.assertEqual((got['ended_by'], got['signal'], got['truncated'], got['state']),
                         ('process', None, False, 'ended'))
        self.assertEqual(got['execution'], 1)
        self.assertGreaterEqual(got['duration_ms'], 0)
        got = self.run_in(self.sandbox, argv=['printf', '%s|', 'a b', '$HOME', '*'])
        self.assertEqual((got['stdout'], got['execution']), ('a b|$HOME|*|', 2))
        got = self.run_in(self.sandbox, argv=['no-such-program'])
        self.assertEqual((got['exit_code'], got['ended_by']), (127, 'process'))

    def test_cwd_user_envs_and_stdin(self):
        got = self.run_in(self.sandbox, 'pwd; id -un; echo $A; cat', cwd='/tmp', user='root',
                          envs={'A': 'ä b'}, stdin='from\nstdin')
        self.assertEqual(got['stdout'], '/tmp\nroot\nä b\nfrom\nstdin')
        big = os.urandom(1 << 20)
        got = self.run_in(self.sandbox, argv=['sha256sum'], stdin_base64=base64.b64encode(big).decode())
        self.assertEqual(got['stdout'].split()[0], hashlib.sha256(big).hexdigest())
        got = self.run_in(self.sandbox, argv=['cat'])
        self.assertEqual(got['stdout'], '')

    def test_traceparent_is_passed_on(self):
        trace = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
        answer = self.api.call('POST', f'/sandboxes/{self.sandbox}/execute', {'shell': 'echo $TRACEPARENT'},
                               headers={'traceparent': trace})
        self.assertEqual(answer.json()['stdout'].strip(), trace)
        self.assertEqual(answer.json()['traceparent'], trace)

    def test_the_rest_of_the_trace_context_is_passed_on(self):
        trace = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
        line = {'shell': 'echo "$TRACEPARENT|$TRACESTATE|$BAGGAGE"'}
        sent = {'traceparent': trace, 'tracestate': 'a=1,b@c=2', 'baggage': 'user=x%20y;p=1, k=v'}

        def told(body, headers):
            path = f'/sandboxes/{self.sandbox}/execute'
            return self.api.call('POST', path, body, headers=headers).json()['stdout'].strip().split('|')

        self.assertEqual(told(line, sent), [trace, 'a=1,b@c=2', 'user=x%20y;p=1, k=v'])
        self.assertEqual(told(line, {**sent, 'traceparent': 'none'}), ['', '', 'user=x%20y;p=1, k=v'])
        self.assertEqual(told(line, {**sent, 'baggage': 'k=' + 'v' * 9000}), [trace, 'a=1,b@c=2', ''])
        own = {**line, 'envs': {'TRACEPARENT': 'mine', 'BAGGAGE': 'too'}}
        self.assertEqual(told(own, sent), ['mine', '', 'too'])
        # It may come in pieces, which are one list.
        self.assertEqual(told(line, {**sent, 'tracestate': 'a=1', 'TraceState': 'b=2'})[1], 'a=1,b=2')

    def test_what_is_wrong_is_said(self):
        path = f'/sandboxes/{self.sandbox}/execute'
        for body, status, code in [
                ({}, 422, 'invalid_command'),
                ({'shell': 'ls', 'argv': ['ls']}, 422, 'invalid_command'),
                ({'shell': 'ls', 'cwd': '/no/such/place'}, 422, 'invalid_command'),
                ({'shell': 'ls', 'user': 'nobody-here'}, 422, 'invalid_command'),
                ({'shell': 'ls', 'user': 'a:b'}, 422, 'invalid_command'),
                ({'shell': 'ls', 'envs': {'A=B': 'c'}}, 422, 'invalid_command'),
                ({'shell': 'ls', 'secrets': {'A': 'none'}}, 422, 'invalid_command'),
                ({'shell': 'ls', 'timeout_ms': 0}, 400, None),
                ({'shell': 'ls', 'nonsense': 1}, 400, None),
                ({'shell': 'ls', 'stdin': 'a', 'stdin_base64': 'YQ=='}, 400, None)]:
            answer = self.api.call('POST', path, body)
            self.assertEqual(answer.status, status, (body, answer.body))
            if code:
                self.assertEqual(answer.json()['code'], code, body)
        # What never began leaves no record.
        self.assertEqual(self.api.ask('GET', f'/sandboxes/{self.sandbox}/executions')['items'], [])
        self.assertEqual(self.api.call('POST', '/sandboxes/i00000000000000000000/execute', {'shell': 'ls'}).status, 404)
        self.assertEqual(self.api.call('GET', f'/sandboxes/{self.sandbox}/executions/1').status, 404)
        self.assertEqual(self.api.call('GET', f'/sandboxes/{self.sandbox}/executions/x').status, 404)

    def test_ten_megabytes_and_binary(self):
        got = self.run_in(self.sandbox, 'head -c 10000000 /dev/zero | tr "\\0" x')
        self.assertEqual((len(got['stdout']), got['stdout_encoding']), (10000000, 'utf-8'))
        self.assertEqual(got['stdout_bytes'], 10000000)
        got = self.run_in(self.sandbox, 'head -c 300000 /dev/urandom | tee /tmp/r; sha256sum < /tmp/r >&2')
        self.assertEqual(got['stdout_encoding'], 'base64')
        plain = base64.b64decode(got['stdout'])
        self.assertEqual(hashlib.sha256(plain).hexdigest(), got['stderr'].split()[0])
        self.assertEqual(self.logs(self.sandbox, got['execution'])['stdout'], plain)

    def test_what_json_would_blow_up_is_no_text(self):
        got = self.run_in(self.sandbox, 'head -c 16000000 /dev/zero | tr "\\0" "\\1"; yes | head -c 2000000 >&2',
                          max_output_bytes=16 << 20)
        self.assertEqual((got['stdout_encoding'], got['stderr_encoding'], got['truncated']), ('base64', 'utf-8', False))
        self.assertEqual(base64.b64decode(got['stdout']), b'\1' * 16000000)
        got = self.run_in(self.sandbox, 'printf "\\1\\1"')
        self.assertEqual((got['stdout'], got['stdout_encoding']), ('\1\1', 'utf-8'))

    def test_output_beyond_the_limit_is_cut_and_counted(self):
        got = self.run_in(self.sandbox, 'head -c 5000 /dev/zero | tr "\\0" x; echo e >&2', max_output_bytes=1000)
        self.assertEqual((len(got['stdout']), got['truncated'], got['stdout_bytes'], got['stderr']),
                         (1000, True, 5000, 'e\n'))

    def test_the_list_and_one(self):
        for i in range(5):
            self.run_in(self.sandbox, f'exit {i}')
        page = self.api.ask('GET', f'/sandboxes/{self.sandbox}/executions?limit=2')
        self.assertEqual([item['execution'] for item in page['items']], [5, 4])
        page = self.api.ask('GET', f"/sandboxes/{self.sandbox}/executions?limit=10&cursor={page['next_cursor']}")
        self.assertEqual([item['exit_code'] for item in page['items']], [2, 1, 0])
        self.assertIsNone(page['next_cursor'])
        self.assertEqual(page['items'][0]['command'], {'shell': 'exit 2'})

    def test_a_long_command_is_in_its_record_and_not_in_the_log(self):
        line = ': ' + 'x' * 20000
        self.run_in(self.sandbox, line)
        self.assertEqual(self.api.ask('GET', f'/sandboxes/{self.sandbox}/executions/1')['command'], {'shell': line})
        [event] = self.api.events(sandbox_id=self.sandbox, kind='execution.started')
        self.assertNotIn('command', event['data'])
        self.assertGreater(event['data']['command_bytes'], 20000)

    def test_background_and_wait(self):
        started = self.run_in(self.sandbox, 'echo a; sleep 1; echo b', background=True, status=202)
        self.assertEqual(started['state'], 'running')
        ended = self.wait_for(self.sandbox, started['execution'])
        self.assertEqual(ended['exit_code'], 0)
        self.assertEqual(self.logs(self.sandbox, started['execution'])['stdout'], b'a\nb\n')

    def test_timeout_ends_the_whole_group(self):
        began = time.monotonic()
        got = self.run_in(self.sandbox, 'echo here; (trap "" TERM; sleep 77) & sleep 77', timeout_ms=2000)
        self.assertLess(time.monotonic() - began, 40)
        self.assertEqual((got['ended_by'], got['signal'], got['exit_code'], got['stdout']),
                         ('timeout', 'SIGKILL', None, 'here\n'))
        self.assertIn('2000 ms', got['ended_why'])
        self.no_sleep_is_left(self.sandbox)

    def test_cancel(self):
        started = self.run_in(self.sandbox, 'sleep 88 & sleep 88', background=True, status=202)
        path = f"/sandboxes/{self.sandbox}/executions/{started['execution']}"
        self.assertEqual(self.api.call('POST', path + '/cancel', {}).status, 200)
        ended = self.wait_for(self.sandbox, started['execution'])
        self.assertEqual((ended['ended_by'], ended['signal']), ('user', 'SIGTERM'))
        self.no_sleep_is_left(self.sandbox)
        self.assertEqual(self.api.ask('POST', path + '/cancel', {})['state'], 'ended')  # again is no failure
        self.assertEqual(self.api.call('POST', f'/sandboxes/{self.sandbox}/executions/99/cancel', {}).status, 404)

    def test_cancel_of_one_that_does_not_want_to(self):
        started = self.run_in(self.sandbox, 'trap "" TERM; echo ready; while :; do sleep 0.1; done',
                              background=True, status=202)
        path = f"/sandboxes/{self.sandbox}/executions/{started['execution']}"
        self.wait_for_output(self.sandbox, started['execution'])
        self.api.ask('POST', path + '/cancel', {'grace_ms': 300})
        ended = self.wait_for(self.sandbox, started['execution'])
        self.assertEqual((ended['ended_by'], ended['signal']), ('user', 'SIGKILL'))
        started = self.run_in(self.sandbox, 'trap "echo got; exit 5" USR1; echo x; while :; do sleep 0.1; done',
                              background=True, status=202)
        path = f"/sandboxes/{self.sandbox}/executions/{started['execution']}"
        self.wait_for_output(self.sandbox, started['execution'])
        self.api.ask('POST', path + '/cancel', {'signal': 'SIGUSR1'})
        ended = self.wait_for(self.sandbox, started['execution'])
        self.assertEqual((ended['ended_by'], ended['exit_code']), ('process', 5))
        self.assertEqual(self.api.call('POST', path + '/cancel', {'signal': 'SIGFOO'}).status, 200)

    def test_sandbox_killed_under_it(self):
        started = self.run_in(self.sandbox, 'echo before; sleep 99', background=True, status=202)
        self.wait_for_output(self.sandbox, started['execution'])
        self.assertEqual(self.api.call('DELETE', f'/sandboxes/{self.sandbox}').status, 204)
        ended = self.wait_for(self.sandbox, started['execution'])
        self.assertEqual(ended['ended_by'], 'sandbox')
        self.assertIn('user', ended['ended_why'])
        self.assertEqual(self.logs(self.sandbox, started['execution'])['stdout'], b'before\n')

    def test_a_paused_sandbox_goes_on(self):
        started = self.run_in(self.sandbox, 'for i in $(seq 30); do echo $i; sleep 0.1; done', background=True,
                              status=202)
        time.sleep(0.5)
        self.api.ask('POST', f'/sandboxes/{self.sandbox}/pause', {})
        answer = self.api.call('POST', f'/sandboxes/{self.sandbox}/execute', {'shell': 'ls'})
        self.assertEqual((answer.status, answer.json()['code']), (409, 'sandbox_paused'))
        time.sleep(1)
        self.api.ask('POST', f'/sandboxes/{self.sandbox}/resume', {})
        ended = self.wait_for(self.sandbox, started['execution'])
        self.assertEqual(ended['exit_code'], 0)
        self.assertEqual(self.logs(self.sandbox, started['execution'])['stdout'],
                         b''.join(b'%d\n' % i for i in range(1, 31)))

    def test_cancel_in_a_paused_sandbox(self):
        started = self.run_in(self.sandbox, 'sleep 4; exit 6', background=True, status=202)
        self.api.ask('POST', f'/sandboxes/{self.sandbox}/pause', {})
        answer = self.api.call('POST', f"/sandboxes/{self.sandbox}/executions/{started['execution']}/cancel", {})
        self.assertEqual((answer.status, answer.json()['code']), (409, 'sandbox_paused'))
        self.api.ask('POST', f'/sandboxes/{self.sandbox}/resume', {})
        ended = self.wait_for(self.sandbox, started['execution'])
        self.assertEqual((ended['ended_by'], ended['exit_code']), ('process', 6))

    def test_many_at_once(self):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            got = list(pool.map(lambda i: self.run_in(self.sandbox, f'echo {i}; sleep 0.2; echo {i}'), range(16)))
        self.assertEqual([one['stdout'] for one in got], [f'{i}\n{i}\n' for i in range(16)])
        self.assertEqual(sorted(one['execution'] for one in got), list(range(1, 17)))
        started = [self.run_in(self.sandbox, 'sleep 200', background=True, status=202) for _ in range(64)]
        answer = self.api.call('POST', f'/sandboxes/{self.sandbox}/execute', {'shell': 'ls'})
        self.assertEqual((answer.status, answer.json()['code']), (429, 'too_many_executions'))
        for one in started:
            self.api.ask('POST', f"/sandboxes/{self.sandbox}/executions/{one['execution']}/cancel",
                         {'signal': 'SIGKILL'})
        for one in started:
            self.wait_for(self.sandbox, one['execution'])

    def test_another_agent_finds_nothing(self):
        started = self.run_in(self.sandbox, 'sleep 60', background=True, status=202)
        other = self.api.key_for(agent_id='somebody-else')[0]
        n = started['execution']
        for method, path in [('GET', f'/sandboxes/{self.sandbox}/executions'),
                             ('GET', f'/sandboxes/{self.sandbox}/executions/{n}'),
                             ('GET', f'/sandboxes/{self.sandbox}/executions/{n}/logs'),
                             ('GET', f'/sandboxes/{self.sandbox}/executions/{n}/stream'),
                             ('POST', f'/sandboxes/{self.sandbox}/executions/{n}/cancel'),
                             ('POST', f'/sandboxes/{self.sandbox}/execute')]:
            answer = other.call(method, path, {'shell': 'ls'} if path.endswith('execute') else None)
            self.assertEqual(answer.status, 404, (method, path, answer.body))
        self.assertEqual(self.wait_for(self.sandbox, n, 'running')['state'], 'running')


class Stopping(Case):
    OPTIONS = ()

    def test_commands_outlive_an_orderly_stop(self):
        sandbox = self.make()
        started = self.run_in(sandbox, 'for i in $(seq 1 60); do echo $i; sleep 0.05; done', background=True, status=202)
        link, response = self.stream('GET', f"/sandboxes/{sandbox}/executions/{started['execution']}/stream")
        self.addCleanup(link.close)
        waiting = threading.Thread(target=self.api.call,
                                   args=('POST', f'/sandboxes/{sandbox}/execute', {'shell': 'sleep 3; echo late'}))
        waiting.start()
        response.readline()
        deadline = time.monotonic() + 60
        while len(self.api.ask('GET', f'/sandboxes/{sandbox}/executions')['items']) < 2:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        began = time.monotonic()
        self.assertEqual(self.server.stop(), 0)
        self.assertLess(time.monotonic() - began, 40)
        waiting.join()
        self.assertEqual(self.server.sanitizer_findings(), '')
        self.server.start()
        self.assertEqual(self.wait_for(sandbox, started['execution'])['exit_code'], 0)
        self.assertEqual(self.logs(sandbox, started['execution'])['stdout'],
                         b''.join(b'%d\n' % i for i in range(1, 61)))
        self.assertEqual(self.wait_for(sandbox, 2)['exit_code'], 0)
        self.assertEqual(self.logs(sandbox, 2)['stdout'], b'late\n')


class Memory(Case):
    def test_out_of_memory_is_told(self):
        sandbox = self.make(memory_mb=256)
        got = self.run_in(sandbox, argv=['python3', '-c', 'x = bytearray(1 << 30)\nfor i in range(0, 1 << 30, 4096): '
                                                          'x[i] = 1'])
        self.assertEqual((got['ended_by'], got['signal']), ('memory', 'SIGKILL'), got)
        self.assertIn('256 MiB', got['ended_why'])


class Streams(Case):
    def setUp(self):
        self.sandbox = self.make()

    def test_events_as_they_happen(self):
        link, response = self.stream('POST', f'/sandboxes/{self.sandbox}/execute',
                                     {'shell': 'echo one; sleep 3; echo two >&2; exit 4', 'stream': True})
        self.addCleanup(link.close)
        self.assertEqual(response.headers['Content-Type'], 'text/event-stream')
        came, got = [], []
        for event in events(response):
            came.append(time.monotonic())
            got.append(event)
        self.assertEqual([event[0] for event in got], ['started', 'stdout', 'stderr', 'end'])
        self.assertEqual([event[1] for event in got], [None, 1, 2, None])
        self.assertGreater(came[2] - came[1], 0.7)
        self.assertEqual(got[3][2]['exit_code'], 4)

    def test_accept_asks_for_it_too(self):
        link, response = self.stream('POST', f'/sandboxes/{self.sandbox}/execute', {'shell': 'echo hi'},
                                     {'Accept': 'text/event-stream'})
        self.addCleanup(link.close)
        self.assertEqual([event[0] for event in events(response)], ['started', 'stdout', 'end'])

    def test_resumes_where_it_was(self):
        started = self.run_in(self.sandbox, 'for i in $(seq 40); do echo $i; sleep 0.05; done', background=True,
                              status=202)
        path = f"/sandboxes/{self.sandbox}/executions/{started['execution']}/stream"
        got, last = b'', 0
        for _ in range(100):
            link, response = self.stream('GET', path, headers={'Last-Event-ID': str(last)} if last else {})
            ended = False
            for i, (event, number, data) in enumerate(events(response)):
                if event == 'stdout':
                    self.assertEqual(number, last + 1)
                    last = number
                    got += bytes_of(data)
                ended = event == 'end'
                if not ended and i == 5:
                    break  # leave in the middle of it
            link.close()
            if ended:
                break
        self.assertEqual(got, b''.join(b'%d\n' % i for i in range(1, 41)))

    def test_a_slow_reader_holds_nobody_up(self):
        link, response = self.stream('POST', f'/sandboxes/{self.sandbox}/execute',
                                     {'shell': 'seq 1 500000', 'stream': True})
        self.addCleanup(link.close)
        head = response.readline()  # and then nothing for a while
        ended = self.wait_for(self.sandbox, 1)
        self.assertEqual(ended['exit_code'], 0)
        got = b''
        for event, _, data in events(response):
            if event == 'stdout':
                got += bytes_of(data)
        self.assertTrue(head)
        self.assertEqual(got, b''.join(b'%d\n' % i for i in range(1, 500001)))

    def test_one_that_leaves_ends_nothing(self):
        link, response = self.stream('POST', f'/sandboxes/{self.sandbox}/execute',
                                     {'shell': 'echo a; sleep 1; echo b', 'stream': True})
        response.readline()
        link.sock.close() if link.sock else response.close()
        self.assertEqual(self.wait_for(self.sandbox, 1)['exit_code'], 0)


class Secrets(Case):
    VALUE = 'pAssw0rd-\u00e4/+ very%secret'

    def setUp(self):
        self.sandbox = self.make()
        self.assertLess(self.api.call('PUT', '/secrets/planted', {'value': self.VALUE}).status, 300)

    def secret_is_nowhere(self):
        forms = [self.VALUE.encode(), base64.b64encode(self.VALUE.encode()).rstrip(b'=')]
        for path in [self.server.log, *self.server.data.glob('state/atoll.db*')]:
            text = path.read_bytes()
            for form in forms:
                self.assertNotIn(form, text, path)
                # output is kept in base64: what it looks like at each alignment
                for shift in range(3):
                    core = base64.b64encode(b'\0' * shift + form)[4:-4]
                    self.assertNotIn(core, text, path)

    def test_given_and_masked(self):
        got = self.run_in(self.sandbox, 'echo "it is $TOKEN."; echo "$TOKEN" >&2; printf %s "$TOKEN" | base64 -w0; '
                          'printf %s "$TOKEN" | wc -c', secrets={'TOKEN': 'planted'})
        self.assertEqual(got['stdout'].split('\n')[0], 'it is [secret:planted].')
        self.assertEqual(got['stderr'], '[secret:planted]\n')
        self.assertIn(f'[secret:planted]{len(self.VALUE.encode())}', got['stdout'].replace('=', ''))
        self.assertEqual(got['command']['secrets'], {'TOKEN': 'planted'})
        self.assertEqual(self.run_in(self.sandbox, 'echo "[$TOKEN]"')['stdout'], '[]\n')
        self.secret_is_nowhere()

    def test_masked_when_it_comes_in_pieces(self):
        script = ('import os, sys, time\n'
                  'for c in os.environb[b"TOKEN"] + b"!":\n'
                  '    os.write(1, bytes([c]))\n'
                  '    time.sleep(0.02)\n')
        link, response = self.stream('POST', f'/sandboxes/{self.sandbox}/execute',
                                     {'argv': ['python3', '-c', script], 'secrets': {'TOKEN': 'planted'},
                                      'stream': True})
        self.addCleanup(link.close)
        got = b''.join(bytes_of(data) for event, _, data in events(response) if event == 'stdout')
        self.assertEqual(got, b'[secret:planted]!')
        self.secret_is_nowhere()

    def test_masked_in_the_command_itself(self):
        self.run_in(self.sandbox, f"echo '{self.VALUE}' > /dev/null", secrets={'TOKEN': 'planted'})
        found = self.api.ask('GET', f'/sandboxes/{self.sandbox}/executions/1')
        self.assertIn('[secret:planted]', found['command']['shell'])
        self.secret_is_nowhere()

    def test_masked_in_what_the_guest_says(self):
        for body in ({'cwd': '/' + self.VALUE}, {'user': 'hunter22'}):
            self.api.call('PUT', '/secrets/user', {'value': 'hunter22'})
            answer = self.api.call('POST', f'/sandboxes/{self.sandbox}/execute',
                                   {'shell': 'ls', **body, 'secrets': {'TOKEN': 'planted', 'USER_IS': 'user'}})
            self.assertEqual(answer.status, 422, answer.body)
            self.assertNotIn(self.VALUE, answer.json()['message'])
            self.assertNotIn('hunter22', answer.json()['message'])
            self.assertIn('[secret:', answer.json()['message'])
        self.secret_is_nowhere()

    def test_one_that_looks_like_the_record_does_not_break_it(self):
        self.assertLess(self.api.call('PUT', '/secrets/odd', {'value': '"x",'}).status, 300)
        got = self.run_in(self.sandbox, argv=['printf', '%s', 'x', '"x",'], secrets={'ODD': 'odd'})
        self.assertEqual(got['command']['argv'], ['printf', '%s', 'x', '[secret:odd]'])
        self.assertEqual(got['stdout'], 'x[secret:odd]')
        for event in self.api.events(sandbox_id=self.sandbox, kind='execution.started'):
            self.assertEqual(event['data']['command']['argv'][0], 'printf')

    def test_a_key_of_several_lines(self):
        key = '-----BEGIN KEY-----\nMIIB"x\\y\n-----END KEY-----\n'
        self.assertLess(self.api.call('PUT', '/secrets/pem', {'value': key}).status, 300)
        got = self.run_in(self.sandbox, 'echo "$(printf %s "$PEM")."; '
                          'python3 -c "import json, os; print(json.dumps(os.environ[\'PEM\']))"', secrets={'PEM': 'pem'})
        self.assertEqual(got['stdout'], '[secret:pem].\n"[secret:pem]"\n')
        got = self.run_in(self.sandbox, argv=['true', key], secrets={'PEM': 'pem'})
        self.assertEqual(got['command']['argv'], ['true', '[secret:pem]'])

    def test_of_the_whole_sandbox(self):
        sandbox = self.make(secrets={'WHOLE': 'planted'})
        self.assertEqual(self.run_in(sandbox, 'echo $WHOLE')['stdout'], '[secret:planted]\n')

    def test_as_many_as_may_be(self):
        for i in range(64):
            self.assertLess(self.api.call('PUT', f'/secrets/many-{i}', {'value': f'/+{i:04}+/ %{i}'}).status, 300)
        names = {f'V{i}': f'many-{i}' for i in range(64)}
        sandbox = self.make(secrets=names)
        got = self.run_in(sandbox, 'echo $W63 $V0', secrets={f'W{i}': f'many-{i}' for i in range(64)})
        self.assertEqual(got['stdout'], '[secret:many-63] [secret:many-0]\n')

    def test_too_short_is_refused(self):
        self.assertLess(self.api.call('PUT', '/secrets/pin', {'value': '123'}).status, 300)
        answer = self.api.call('POST', f'/sandboxes/{self.sandbox}/execute',
                               {'shell': 'ls', 'secrets': {'PIN': 'pin'}})
        self.assertEqual((answer.status, answer.json()['code']), (422, 'invalid_command'))
        self.assertNotIn('123', answer.json()['message'])
        answer = self.api.call('POST', '/sandboxes', {'secrets': {'PIN': 'pin'}})
        self.assertEqual((answer.status, answer.json()['code']), (422, 'secret_too_short'))


class Rules(Case):
    def rules(self, programs, **more):
        self.api.ask('PUT', '/rules/commands', {'programs': programs, **more})

    def tearDown(self):
        self.api.call('PUT', '/rules/commands', {'programs': None})
        self.api.call('PUT', '/rules/commands', {'programs': None, 'agent_id': 'ruled'})
        super().tearDown()

    def test_only_what_is_listed(self):
        sandbox = self.make()
        self.assertIsNone(self.api.ask('GET', '/rules/commands')['programs'])
        self.rules(['ls', 'cat', 'env', '/usr/bin/id'])
        self.assertEqual(self.api.ask('GET', '/rules/commands')['programs'], ['ls', 'cat', 'env', '/usr/bin/id'])
        self.assertEqual(self.run_in(sandbox, 'echo hi | cat; /usr/bin/id -un')['stdout'].split()[0], 'hi')
        self.assertEqual(self.run_in(sandbox, argv=['env', 'A=b', 'ls', '/'])['exit_code'], 0)
        evasions = ['rm x', 'ls; rm x', 'echo $(rm x)', 'r""m x', '$(echo rm) x', 'x=rm; $x', 'eval rm', 'env rm',
                    'sh -c rm', 'ls <(rm)', 'echo `rm`', 'PATH=/tmp ls', 'alias ls=rm', 'ls() { rm; }', '/bin/r*',
                    'cat <<E\n$(rm)\nE', 'id', 'exec rm', 'command rm', 'trap rm EXIT', '[[ x ]]', 'echo $((x))']
        for line in evasions:
            answer = self.api.call('POST', f'/sandboxes/{sandbox}/execute', {'shell': line})
            self.assertEqual((answer.status, answer.json()['code']), (403, 'command_not_allowed'), line)
        for argv in [['rm', 'x'], ['env', 'rm'], ['/bin/ls'], ['env', 'sh', '-c', 'ls']]:
            self.assertEqual(self.api.call('POST', f'/sandboxes/{sandbox}/execute', {'argv': argv}).status, 403, argv)
        answer = self.api.call('POST', f'/sandboxes/{sandbox}/execute', {'shell': 'ls', 'envs': {'LD_PRELOAD': '/x'}})
        self.assertEqual(answer.status, 403)

    def test_nor_what_bash_makes_of_it(self):
        """Each of these ran its command, `touch`, in a bash of version 5.2."""
        sandbox = self.make()
        self.run_in(sandbox, 'mkdir -p /tmp/1; printf "#!/bin/sh\\ntouch /tmp/evaded\\n" > /tmp/1/2; chmod 755 /tmp/1/2')
        touch = '$(touch /tmp/evaded)'
        lines = [f"[ {{-v,'a[{touch}]'}} ]", f"RANDOM='a[{touch}]'", f"for SECONDS in 'a[{touch}]'; do ls; done",
                 'echo "$\\\n(touch /tmp/evaded)"', f"x='{touch}'; echo $\\\n{{x@P}}",
                 f"ls='a[{touch}]'; echo $(\\\n( ls ))", f"ls='a[{touch}]'; (\\\n( ls ))",
                 "cat <<\\\n-'E'\nE\ntouch /tmp/evaded\n-E",
                 "cat <<'ls' | (cat\nls\n)\ntouch /tmp/evaded\nls", 'cd /tmp; echo $(( 1/2 ) )',
                 f"time printf -v 'a[{touch}]' x"]
        for line in lines:
            self.run_in(sandbox, 'rm -f /tmp/evaded')
            self.run_in(sandbox, line)
            self.assertEqual(self.run_in(sandbox, 'test -e /tmp/evaded')['exit_code'], 0, line)
        self.rules(['ls', 'cat', 'time', 'printf'])
        for line in lines:
            answer = self.api.call('POST', f'/sandboxes/{sandbox}/execute', {'shell': line})
            self.assertEqual((answer.status, answer.json()['code']), (403, 'command_not_allowed'), line)

    def test_nor_by_the_sandboxes_own_variables(self):
        for name in ('BASH_ENV', 'PATH', 'BASH_FUNC_ls%%', 'LD_PRELOAD'):
            sandbox = self.make(agent_id='ruled', envs={name: '/tmp/evil', 'FINE': 'yes'})
            self.rules(['ls'], agent_id='ruled')
            answer = self.api.call('POST', f'/sandboxes/{sandbox}/execute', {'shell': 'ls'})
            self.assertEqual((answer.status, answer.json()['code']), (403, 'command_not_allowed'), name)
            self.assertIn(name, answer.json()['message'])

    def test_so_many_that_they_do_not_fit(self):
        answer = self.api.call('PUT', '/rules/commands', {'programs': ['/' + 'x' * 508 + f'{i:03}' for i in range(512)]})
        self.assertEqual((answer.status, answer.json()['code']), (422, 'invalid_rules'))
        many = ['/' + 'x' * 490 + f'{i:03}' for i in range(512)]
        self.rules(many)
        self.server.kill()
        self.server.start()
        self.assertEqual(self.api.ask('GET', '/rules/commands')['programs'], many)

    def test_profiles_are_not_read_under_rules(self):
        sandbox = self.make()
        self.run_in(sandbox, 'echo "ls() { touch /tmp/evaded; }" > ~/.bash_profile; cp ~/.bash_profile ~/.bashrc')
        self.rules(['ls', 'test'])
        self.run_in(sandbox, 'ls /')
        self.rules(None)
        self.assertEqual(self.run_in(sandbox, 'test -e /tmp/evaded')['exit_code'], 1)

    def test_a_users_program_is_not_taken_for_a_listed_one(self):
        sandbox = self.make()
        self.run_in(sandbox, 'mkdir -p ~/.local/bin; printf "#!/bin/sh\\ntouch /tmp/evaded\\n" > ~/.local/bin/ls;'
                             ' chmod 755 ~/.local/bin/ls; sudo cp ~/.local/bin/ls /usr/local/bin')
        self.rules(['ls', 'test'])
        for command in ({'shell': 'ls /'}, {'argv': ['ls', '/']}):
            answer = self.api.ask('POST', f'/sandboxes/{sandbox}/execute', command)
            self.assertIn('usr', answer['stdout'], command)
        self.rules(None)
        self.assertEqual(self.run_in(sandbox, 'test -e /tmp/evaded')['exit_code'], 1)
        self.assertEqual(self.run_in(sandbox, 'ls /; test -e /tmp/evaded')['exit_code'], 0)

    def test_of_one_agent(self):
        self.rules(['ls'], agent_id='ruled')
        ruled, free = self.make(agent_id='ruled'), self.make()
        self.assertEqual(self.api.call('POST', f'/sandboxes/{ruled}/execute', {'shell': 'id'}).status, 403)
        self.assertEqual(self.api.call('POST', f'/sandboxes/{ruled}/execute', {'shell': 'ls /'}).status, 200)
        self.assertEqual(self.api.call('POST', f'/sandboxes/{free}/execute', {'shell': 'id'}).status, 200)

    def test_they_outlive_the_server(self):
        sandbox = self.make()
        self.rules(['ls'])
        self.server.kill()
        self.server.start()
        self.assertEqual(self.api.call('POST', f'/sandboxes/{sandbox}/execute', {'shell': 'id'}).status, 403)
        self.assertEqual(self.api.call('PUT', '/rules/commands', {'programs': ['./x']}).status, 422)


class Crashes(Case):
    def print_and_crash(self, shell, crashes=3, secrets=None, every=0.7):
        sandbox = self.make()
        started = self.run_in(sandbox, shell, background=True, status=202, max_output_bytes=16 << 20,
                              **({'secrets': secrets} if secrets else {}))
        for _ in range(crashes):
            time.sleep(every)
            self.server.kill()
            time.sleep(0.3)
            self.server.start()
        ended = self.wait_for(sandbox, started['execution'], timeout=60)
        return sandbox, ended, self.logs(sandbox, started['execution'])

    def test_nothing_is_lost_or_doubled(self):
        _, ended, out = self.print_and_crash('for i in $(seq 1 400); do echo $i; echo e$i >&2; sleep 0.01; done; exit 7')
        self.assertEqual((ended['exit_code'], ended['ended_by'], ended['truncated']), (7, 'process', False))
        self.assertEqual(out['stdout'], b''.join(b'%d\n' % i for i in range(1, 401)))
        self.assertEqual(out['stderr'], b''.join(b'e%d\n' % i for i in range(1, 401)))

    def test_nothing_is_lost_of_a_flood(self):
        _, ended, out = self.print_and_crash('seq 1 900000', crashes=2, every=0.25)
        self.assertEqual((ended['exit_code'], ended['truncated']), (0, False))
        self.assertEqual(out['stdout'], b''.join(b'%d\n' % i for i in range(1, 900001)))

    def test_one_that_ends_while_nobody_looks(self):
        sandbox = self.make()
        started = self.run_in(sandbox, 'echo begin; sleep 1; seq 1 200000; exit 9', background=True, status=202)
        time.sleep(0.3)
        self.server.kill()
        time.sleep(2.5)
        self.server.start()
        ended = self.wait_for(sandbox, started['execution'])
        self.assertEqual((ended['exit_code'], ended['ended_by'], ended['truncated']), (9, 'process', False))
        self.assertEqual(self.logs(sandbox, started['execution'])['stdout'],
                         b'begin\n' + b''.join(b'%d\n' % i for i in range(1, 200001)))

    def test_its_time_is_up_while_nobody_looks(self):
        sandbox = self.make()
        started = self.run_in(sandbox, 'echo x; sleep 60', background=True, status=202, timeout_ms=1000)
        self.server.kill()
        time.sleep(1.5)
        self.server.start()
        ended = self.wait_for(sandbox, started['execution'])
        self.assertEqual((ended['ended_by'], ended['signal']), ('timeout', 'SIGKILL'))

    def test_secrets_stay_masked(self):
        self.api.call('PUT', '/secrets/planted', {'value': 'secret-word-secret-word-end'})
        shell = ('python3 -c "\n'
                 'import os, time\n'
                 'for i in range(30):\n'
                 '    for c in os.environb[b\'TOKEN\']:\n'
                 '        os.write(1, bytes([c]))\n'
                 '        time.sleep(0.005)\n'
                 '    os.write(1, b\'|\')\n'
                 '"')
        _, ended, out = self.print_and_crash(shell, crashes=4, secrets={'TOKEN': 'planted'})
        self.assertEqual(ended['exit_code'], 0)
        self.assertEqual(out['stdout'], b'[secret:planted]|' * 30)

    def test_a_follower_comes_back(self):
        sandbox = self.make()
        started = self.run_in(sandbox, 'for i in $(seq 1 200); do echo $i; sleep 0.02; done', background=True, status=202)
        path = f"/sandboxes/{sandbox}/executions/{started['execution']}/stream"
        killer = threading.Timer(1.2, self.server.kill)
        killer.start()
        got, last, ended = b'', 0, False
        deadline = time.monotonic() + 60
        while not ended and time.monotonic() < deadline:
            try:
                link, response = self.stream('GET', path, headers={'Last-Event-ID': str(last)} if last else {})
                for event, number, data in events(response):
                    if event == 'stdout':
                        self.assertEqual(number, last + 1)
                        last, got = number, got + bytes_of(data)
                    ended = event == 'end'
                link.close()
            except (OSError, http.client.HTTPException):
                killer.join()
                if self.server.process.poll() is not None:
                    self.server.start()
        self.assertEqual(got, b''.join(b'%d\n' % i for i in range(1, 201)))


@unittest.skipUnless(b'execution.saved' in pathlib.Path(os.environ['ATOLL_TEST_BIN']).read_bytes(),
                     'this build has no crash points')
class CrashPoints(Case):
    """The server dies at a given step; the next one finishes."""

    def dies_at(self, point, act):
        self.server.stop()
        self.server.environment['ATOLL_CRASH_AT'] = point
        self.server.start()
        sandbox = act()
        self.server.process.wait(90)
        del self.server.environment['ATOLL_CRASH_AT']
        self.server.start()
        return sandbox

    OPTIONS = ()

    def test_commands(self):
        for point in ('execution.saved', 'execution.saved:2', 'execution.end'):
            def act():
                sandbox = self.make()
                self.run_in(sandbox, 'for i in $(seq 1 50); do echo $i; sleep 0.01; done; exit 3', background=True,
                            status=202)
                return sandbox
            sandbox = self.dies_at(point, act)
            ended = self.wait_for(sandbox, 1)
            self.assertEqual((ended['exit_code'], ended['ended_by']), (3, 'process'), point)
            self.assertEqual(self.logs(sandbox, 1)['stdout'], b''.join(b'%d\n' % i for i in range(1, 51)), point)
            kinds = [event['kind'] for event in self.api.events(sandbox_id=sandbox)
                     if event['kind'].startswith('execution.')]
            self.assertEqual(kinds, ['execution.started', 'execution.ended'], point)

    def test_before_it_was_started(self):
        def act():
            sandbox = self.make()
            try:
                self.api.call('POST', f'/sandboxes/{sandbox}/execute', {'shell': 'echo never'})
            except OSError:
                pass
            return sandbox
        sandbox = self.dies_at('execution.start', act)
        # Its row may have been written just before: then it says that it never ran.
        for item in self.api.ask('GET', f'/sandboxes/{sandbox}/executions')['items']:
            ended = self.wait_for(sandbox, item['execution'])
            self.assertEqual((ended['ended_by'], ended['exit_code']), ('infrastructure', None))

    def test_runs(self):
        for point in ('run.destroy', 'run.ended'):
            def act():
                try:
                    self.api.call('POST', '/run', {'shell': 'echo x'})
                except OSError:
                    pass
            self.dies_at(point, act)
            deadline = time.monotonic() + 90
            while [one for one in self.api.ask('GET', '/sandboxes')['items'] if 'atoll.run' in one['metadata']]:
                self.assertLess(time.monotonic(), deadline, 'a sandbox is left')
                time.sleep(0.1)


class Runs(Case):
    OPTIONS = ('--stop-sandboxes', '--artifact-retention', '8', '--artifact-mb', '1')

    def sandboxes(self):
        return self.api.ask('GET', '/sandboxes')['items']

    def wait_until_none(self, timeout=90):
        deadline = time.monotonic() + timeout
        while self.sandboxes():
            self.assertLess(time.monotonic(), deadline, 'a sandbox is left')
            time.sleep(0.1)

    def test_everything_in_one_call(self):
        got = self.api.ask('POST', '/run', {
            'sandbox': {'agent_id': 'runner', 'task_id': 't1',
                        'files': [{'path': '/home/user/in.txt', 'content': 'hello'}]},
            'shell': 'tr a-z A-Z < in.txt > out.txt; mkdir d; echo 1 > d/a.log; echo 2 > d/b.log; echo 3 > d/c.txt; '
                     'echo done; exit 2',
            'cwd': '/home/user', 'artifacts': ['out.txt', '/home/user/d/*.log', 'missing.bin']})
        self.assertEqual((got['execution']['stdout'], got['execution']['exit_code']), ('done\n', 2))
        self.assertEqual(self.sandboxes(), [])
        self.assertEqual(sorted(item['path'] for item in got['artifacts']),
                         ['/home/user/d/a.log', '/home/user/d/b.log', 'out.txt'])
        self.assertIn('missing.bin', got['artifacts_missing'])
        one = next(item for item in got['artifacts'] if item['path'] == 'out.txt')
        self.assertEqual((one['bytes'], one['sha256'], one['agent_id'], one['task_id']),
                         (5, hashlib.sha256(b'HELLO').hexdigest(), 'runner', 't1'))
        answer = self.api.call('GET', f"/artifacts/{one['id']}")
        self.assertEqual((answer.status, answer.body), (200, b'HELLO'))
        answer = self.api.call('GET', f"/artifacts/{one['id']}", headers={'Range': 'bytes=1-2'})
        self.assertEqual((answer.status, answer.body, answer.headers['Content-Range']), (206, b'EL', 'bytes 1-2/5'))
        answer = self.api.call('GET', f"/artifacts/{one['id']}", headers={'Range': 'bytes=-2'})
        self.assertEqual((answer.status, answer.body), (206, b'LO'))
        self.assertEqual(self.api.call('GET', f"/artifacts/{one['id']}", headers={'Range': 'bytes=9-'}).status, 416)
        self.assertEqual(len(self.api.ask('GET', '/artifacts?task_id=t1&limit=2')['items']), 2)
        other = self.api.key_for(agent_id='somebody-else')[0]
        self.assertEqual(other.call('GET', f"/artifacts/{one['id']}").status, 404)
        self.assertEqual(self.api.call('DELETE', f"/artifacts/{one['id']}").status, 204)
        self.assertEqual(self.api.call('GET', f"/artifacts/{one['id']}").status, 404)
        # The record of the command outlives its sandbox.
        self.assertEqual(self.api.ask('GET', f"/sandboxes/{got['sandbox_id']}/executions/1")['exit_code'], 2)

    def busy(self):
        """Nanoseconds of a processor: of the loop, and of all threads."""
        tasks = pathlib.Path(f'/proc/{self.server.process.pid}/task')
        spent = {int(path.name): int((path / 'schedstat').read_text().split()[0]) for path in tasks.iterdir()}
        return spent[self.server.process.pid], sum(spent.values())

    def test_a_long_document_is_no_work_for_the_loop(self):
        long = '{"argv": ["true"], "stdin": "' + '\\u00e9' * 1200000 + '", "wrong": 1}'
        before = self.busy()
        for _ in range(5):
            answer = self.api.raw('POST', '/api/v1/run', long, {'Content-Type': 'application/json'})
            self.assertEqual(answer.status, 400, answer.body[:200])
        loop, everything = (now - then for now, then in zip(self.busy(), before))
        self.assertLess(loop, everything / 2)

    def test_patterns_take_what_a_shell_would_and_have_a_limit(self):
        shell = ("mkdir d; cd d; a=$(printf 'a%.0s' $(seq 250)); touch ${a}b .${a}b; "
                 'for i in $(seq 100); do touch $a$i; done')
        got = self.api.ask('POST', '/run', {'shell': shell, 'cwd': '/home/user', 'artifacts': [
            '/home/user/d/' + '*a' * 30 + '*b', '/home/user/d/' + '*a' * 300]})
        self.assertEqual([item['path'] for item in got['artifacts']], [f"/home/user/d/{'a' * 250}b"])
        self.assertIn('too long', got['artifacts_missing'])

    def test_artifacts_expire(self):
        got = self.api.ask('POST', '/run', {'shell': 'echo x > /tmp/x', 'artifacts': ['/tmp/x']})
        where = self.server.data / 'state/artifacts' / got['artifacts'][0]['id']
        self.assertTrue(where.exists())
        time.sleep(8.5)
        self.assertEqual(self.api.call('GET', f"/artifacts/{got['artifacts'][0]['id']}").status, 404)

    def test_too_large_is_left_out(self):
        got = self.api.ask('POST', '/run', {'shell': 'head -c 1048576 /dev/zero > /tmp/fits; '
                                                     'head -c 1048577 /dev/zero > /tmp/large',
                                            'artifacts': ['/tmp/large', '/tmp/fits']})
        self.assertEqual([item['path'] for item in got['artifacts']], ['/tmp/fits'])
        self.assertIn('/tmp/large', got['artifacts_missing'])
        kept = list((self.server.data / 'state/artifacts').iterdir())
        self.assertIn(got['artifacts'][0]['id'], [path.name for path in kept])
        self.assertNotIn(1048577, [path.stat().st_size for path in kept])

    def test_as_a_stream(self):
        link, response = self.stream('POST', '/run', {'shell': 'echo a; sleep 2; echo b; echo c > /tmp/c',
                                                      'artifacts': ['/tmp/c'], 'stream': True})
        self.addCleanup(link.close)
        got = list(events(response))
        self.assertEqual([event[0] for event in got], ['started', 'stdout', 'stdout', 'result'])
        self.assertEqual(got[-1][2]['artifacts'][0]['bytes'], 2)
        self.assertEqual(self.sandboxes(), [])

    def test_what_is_wrong_leaves_nothing(self):
        for body, status in [({'shell': 'ls', 'sandbox': {'template': 'no-such-one'}}, 404),
                             ({'shell': 'ls', 'argv': ['ls']}, 400), ({}, 400),
                             ({'shell': 'ls', 'user': 'nobody-here'}, 422),
                             ({'shell': 'ls', 'sandbox': {'on_timeout': 'pause'}}, 400),
                             ({'shell': 'ls', 'secrets': {'A': 'none'}}, 422)]:
            answer = self.api.call('POST', '/run', body)
            self.assertEqual(answer.status, status, (body, answer.body))
        self.wait_until_none()

    def test_timeout(self):
        got = self.api.ask('POST', '/run', {'shell': 'echo x > /tmp/x; sleep 60', 'timeout_ms': 500,
                                            'artifacts': ['/tmp/x']})
        self.assertEqual(got['execution']['ended_by'], 'timeout')
        self.assertEqual(len(got['artifacts']), 1)
        self.assertEqual(self.sandboxes(), [])

    def test_a_client_that_leaves_takes_the_sandbox_with_it(self):
        link = http.client.HTTPConnection(self.server.host, self.server.port, timeout=60)
        link.request('POST', '/api/v1/run', json.dumps({'shell': 'sleep 60'}),
                     self.api.headers({'Content-Type': 'application/json'}))
        deadline = time.monotonic() + 60
        while not self.sandboxes() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(len(self.sandboxes()), 1)
        link.sock.shutdown(socket.SHUT_RDWR)
        link.close()
        self.wait_until_none()

    def once(self, body, key='k', **more):
        return self.api.call('POST', '/run', body, headers={'Idempotency-Key': key, **more})

    def test_asked_for_twice_is_run_once(self):
        body = {'shell': 'sleep 1; date +%N > /tmp/n; cat /tmp/n', 'artifacts': ['/tmp/n']}
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            got = list(pool.map(lambda _: self.once(body, 'twice'), range(3)))
        got.append(self.once(body, 'twice'))
        self.assertEqual({answer.status for answer in got}, {200})
        self.assertEqual(len({answer.body for answer in got}), 1)
        self.assertEqual([answer.headers['Idempotent-Replayed'] for answer in got].count('true'), 3)
        answer = self.once({'shell': 'date'}, 'twice')
        self.assertEqual((answer.status, answer.json()['code']), (422, 'idempotency_mismatch'))
        # What failed may be tried again.
        self.assertEqual(self.once({'shell': 'ls', 'user': 'nobody-here'}, 'failed').status, 422)
        self.assertEqual(self.once({'shell': 'ls', 'user': 'root'}, 'failed').status, 200)

    def test_what_cannot_be_told_again_is_not_run_again(self):
        for key, body in [('stream', {'shell': 'true', 'stream': True}), ('large', {'shell': 'seq 1 100000'})]:
            self.assertEqual(self.once(body, key).status, 200)
            before = len(self.api.events(kind='run.started'))
            answer = self.once(body, key)
            self.assertEqual((answer.status, answer.json()['code']), (409, 'not_repeatable'))
            self.assertEqual(len(self.api.events(kind='run.started')), before)

    def test_one_with_a_key_goes_on_without_its_client(self):
        body = {'shell': 'sleep 2; echo done'}
        link = http.client.HTTPConnection(self.server.host, self.server.port, timeout=60)
        link.request('POST', '/api/v1/run', json.dumps(body),
                     self.api.headers({'Content-Type': 'application/json', 'Idempotency-Key': 'left'}))
        deadline = time.monotonic() + 60
        while not self.sandboxes() and time.monotonic() < deadline:
            time.sleep(0.05)
        link.sock.shutdown(socket.SHUT_RDWR)
        link.close()
        time.sleep(0.5)
        answer = self.once(body, 'left')
        self.assertEqual((answer.status, answer.json()['execution']['stdout']), (200, 'done\n'))
        self.assertEqual(answer.headers['Idempotent-Replayed'], 'true')
        self.wait_until_none()

    def test_a_server_that_dies_half_way(self):
        def ask():
            try:
                self.api.call('POST', '/run', {'shell': 'sleep 60'})
            except OSError:
                pass
        asking = threading.Thread(target=ask)
        asking.start()
        deadline = time.monotonic() + 60
        while not self.sandboxes() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        self.server.kill()
        asking.join()
        self.server.start()
        self.wait_until_none()


class Retention(Case):
    OPTIONS = ('--stop-sandboxes', '--output-retention', '1')

    def test_output_goes_and_the_record_stays(self):
        sandbox = self.make()
        for i in range(3):
            self.run_in(sandbox, f'echo {i}; exit {i}')
        deadline = time.monotonic() + 90  # the first sweep is five seconds after the start
        while self.logs(sandbox, 3)['stdout'] and time.monotonic() < deadline:
            time.sleep(0.2)
        for i in range(3):
            found = self.api.ask('GET', f'/sandboxes/{sandbox}/executions/{i + 1}')
            self.assertEqual((found['exit_code'], found['stdout_bytes'], found['truncated']), (i, 2, True))
            self.assertEqual(self.logs(sandbox, i + 1)['stdout'], b'')
            link, response = self.stream('GET', f'/sandboxes/{sandbox}/executions/{i + 1}/stream')
            self.addCleanup(link.close)
            self.assertEqual([event[0] for event in events(response)], ['started', 'end'])


class ArtifactStorage(Case):
    OPTIONS = ('--stop-sandboxes', '--artifact-mb', '1', '--ceilings', 'artifactStorageMB=2')

    def leave(self, size, *names):
        return self.api.call('POST', '/run', {'shell': f'for f in {" ".join(names)}; do head -c {size} /dev/zero > /tmp/$f; done',
                                              'artifacts': [f'/tmp/{name}' for name in names]})

    def test_a_team_keeps_no_more_than_it_may(self):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda i: self.leave(700000, f'{i}a', f'{i}b'), range(4)))
        self.assertEqual([answer.status for answer in answers], [200] * 4)
        got = [answer.json() for answer in answers]
        kept = [item for one in got for item in one['artifacts']]
        self.assertIn(len(kept), (1, 2))  # two that come in together may both be one too many
        self.assertEqual(sorted(path.name for path in (self.server.data / 'state/artifacts').iterdir()),
                         sorted(item['id'] for item in kept))
        self.assertIn('2 MiB of artifacts', ' '.join(str(one['artifacts_missing']) for one in got))
        while self.leave(650000, 'fits').json()['artifacts']:
            pass
        for _ in range(4):  # empty ones count as well
            answer = self.leave(0, *[f'x{i}' for i in range(90)])
            if answer.status == 507:
                break
        self.assertEqual((answer.status, answer.json()['code']), (507, 'artifact_storage_full'), answer.body)
        self.assertEqual(self.api.call('POST', '/run', {'shell': 'echo no artifacts'}).status, 200)
        # The same after a restart, and there is room again when one has gone.
        self.server.kill()
        self.server.start()
        self.assertEqual(self.leave(1, 'more').status, 507)
        self.assertEqual(self.api.call('DELETE', f"/artifacts/{kept[0]['id']}").status, 204)
        self.assertEqual(len(self.leave(600000, 'again').json()['artifacts']), 1)


if __name__ == '__main__':
    unittest.main()
