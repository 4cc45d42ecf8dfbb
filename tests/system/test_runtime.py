"""What every runtime must do, the same tests for each: `local`, and the programs of the host that are
there. One that is not there is skipped, and says so."""
import base64
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest
import urllib.parse
import uuid

from harness import kernel
from harness.sandbox import Sandbox, frames
from harness.server import Server
from test_plane import Api

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
PROGRAMS = {'local': None, 'gvisor': 'runsc', 'runc': 'runc', 'crun': 'crun'}
ECHO = '''
import socket, sys
family, host, port = (socket.AF_INET6, '::1', 8002) if sys.argv[1] == '6' else (socket.AF_INET, '127.0.0.1', 8001)
s = socket.socket(family)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((host, port))
s.listen(16)
while True:
    c = s.accept()[0]
    head = b''
    while b'\\r\\n\\r\\n' not in head:
        head += c.recv(65536)
    size = int([l for l in head.lower().split(b'\\r\\n') if l.startswith(b'content-length')][0].split(b':')[1])
    body = head.split(b'\\r\\n\\r\\n', 1)[1]
    while len(body) < size:
        body += c.recv(65536)
    c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\nConnection: close\\r\\n\\r\\n' % len(body) + body)
    c.close()
'''


def missing(runtime):
    program = PROGRAMS[runtime]
    if program and not shutil.which(program, path='/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'):
        return f'{program} is not installed'
    return None


def wait_for(what, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        seen = what()
        if seen:
            return seen
        time.sleep(0.05)
    raise AssertionError('it did not come about')


def out(box, command, user=None):
    result = box.run(command, user)
    return (result.stdout + result.stderr).decode().strip()


class Process:
    """One that is still running, over its own stream."""

    def __init__(self, box, process, user=None, **more):
        self.box, self.user = box, user
        message = json.dumps({'process': process, 'stdin': True, **more}).encode()
        self.link = box.connection()
        self.link.request('POST', '/process.Process/Start', struct.pack('>BI', 0, len(message)) + message,
                          self.headers('application/connect+json'))
        self.frames = frames(self.link.getresponse())
        self.pid = self.next()['start']['pid']

    def headers(self, kind):
        more = {'Content-Type': kind}
        if self.user:
            more['Authorization'] = 'Basic ' + base64.b64encode(f'{self.user}:'.encode()).decode()
        return self.box.headers(**more)

    def next(self):
        flag, text = next(self.frames)
        return {} if flag & 2 else json.loads(text)['event']

    def send(self, **data):
        link = self.box.connection()
        body = {'process': {'pid': self.pid}, 'input': {k: base64.b64encode(v).decode() for k, v in data.items()}}
        link.request('POST', '/process.Process/SendInput', json.dumps(body), self.headers('application/json'))
        answer = link.getresponse()
        text = answer.read()
        link.close()
        assert answer.status == 200, text

    def read_until(self, kind, wanted):
        seen = b''
        while wanted not in seen:
            event = self.next()
            if 'end' in event or not event:
                raise AssertionError(f'it ended after {seen!r}')
            seen += base64.b64decode(event.get('data', {}).get(kind, ''))
        return seen

    def end(self):
        event = self.next()
        while 'end' not in event:
            event = self.next()
        return event['end']


class Suite:
    """Not a TestCase itself: each runtime below is one."""
    runtime = None

    @classmethod
    def setUpClass(cls):
        reason = missing(cls.runtime)
        if reason:
            raise unittest.SkipTest(reason)
        cls.api = Api(os.environ, **{'X-API-Key': os.environ['E2B_API_KEY']})
        cls.box = Sandbox(runtime=cls.runtime, envVars={'OF_SANDBOX': 'yes'}, metadata={'a': 'b'})
        cls.addClassCleanup(cls.box.kill)

    def make(self, **more):
        box = Sandbox(runtime=self.runtime, **more)
        self.addCleanup(self.end, box)
        return box

    @staticmethod
    def end(box):
        with contextlib.suppress(RuntimeError):
            box.kill()

    def ask(self, port, body, box=None, token=True):
        link = (box or self.box).connection()
        with contextlib.closing(link):
            link.request('POST', '/', body, (box or self.box).headers(port))
            answer = link.getresponse()
            return answer.status, answer.read()

    # --- commands ---

    def test_output_error_and_exit_code(self):
        result = self.box.run('echo out; echo err >&2; exit 7')
        self.assertEqual((result.stdout, result.stderr, result.exit_code), (b'out\n', b'err\n', 7))

    def test_large_output_is_whole(self):
        result = self.box.run('head -c 3000000 /dev/zero | tr "\\0" x')
        self.assertEqual((len(result.stdout), result.exit_code), (3000000, 0))

    def test_environment_directory_and_user(self):
        message = {'cmd': '/bin/bash', 'args': ['-c', 'echo $OF_SANDBOX $OF_CALL $PWD $(id -un)'],
                   'envs': {'OF_CALL': 'too'}, 'cwd': '/var'}
        for user, name in ((None, 'user'), ('root', 'root')):
            process = Process(self.box, message, user)
            self.assertIn(f'yes too /var {name}\n'.encode(), process.read_until('stdout', b'\n'))
            self.assertEqual(process.end().get('exitCode', 0), 0)

    def test_input(self):
        process = Process(self.box, {'cmd': '/bin/cat'})
        process.send(stdin=b'one\n')
        process.read_until('stdout', b'one\n')
        process.send(stdin=b'two\n')
        process.read_until('stdout', b'two\n')

    def test_terminal(self):
        process = Process(self.box, {'cmd': '/bin/bash', 'args': ['-i'], 'envs': {'PS1': '$ '}},
                          pty={'size': {'cols': 91, 'rows': 33}})
        process.send(pty=b'stty size; tty\n')
        seen = process.read_until('pty', b'33 91')
        seen += process.read_until('pty', b'/dev/pts/')
        process.send(pty=b'exit 5\n')
        self.assertEqual(process.end()['exitCode'], 5, seen)

    def test_signal(self):
        process = Process(self.box, {'cmd': '/bin/sleep', 'args': ['1000']})
        link = self.box.connection()
        link.request('POST', '/process.Process/SendSignal',
                     json.dumps({'process': {'pid': process.pid}, 'signal': 'SIGNAL_SIGKILL'}),
                     process.headers('application/json'))
        self.assertEqual(link.getresponse().status, 200)
        self.assertIn('signal', process.end().get('status', ''))

    def test_init_reaps(self):
        self.box.run('for i in $(seq 20); do (sleep 0.1 &) ; done')
        wait_for(lambda: out(self.box, 'ps -eo stat | grep -c ^Z || true') == '0')

    def test_sudo(self):
        self.assertEqual(out(self.box, 'sudo id -u'), '0')

    def test_the_usual_programs(self):
        seen = self.box.run('ls -la / && stat /etc/passwd && find / -maxdepth 1 && ps aux && df && cp -a /etc/skel x '
                            '&& mv x y && rm -r y && git init -q repo && tar c /etc/skel | tar t', 'root')
        self.assertEqual((seen.exit_code, seen.stderr), (0, b''), seen.stdout)

    # --- files ---

    def test_files_up_and_down(self):
        data = os.urandom(2_000_000)
        status, answer = self.box.write('/home/user/dir/file.bin', data)
        self.assertEqual((status, answer[0]['path']), (200, '/home/user/dir/file.bin'))
        self.assertEqual(out(self.box, 'stat -c "%s %U" /home/user/dir/file.bin'), '2000000 user')
        link = self.box.connection()
        link.request('GET', '/files?' + urllib.parse.urlencode({'path': 'dir/file.bin', 'username': 'user'}),
                     None, self.box.headers())
        answer = link.getresponse()
        self.assertEqual((answer.status, answer.read() == data), (200, True))

    def test_watch(self):
        link = self.box.connection()
        message = json.dumps({'path': '/home/user'}).encode()
        link.request('POST', '/filesystem.Filesystem/WatchDir', struct.pack('>BI', 0, len(message)) + message,
                     self.box.headers(**{'Content-Type': 'application/connect+json'}))
        stream = frames(link.getresponse())
        self.assertIn('start', json.loads(next(stream)[1]))
        self.box.run('touch /home/user/watched')
        event = json.loads(next(stream)[1])
        self.assertEqual(event['filesystem']['name'], 'watched', event)
        link.close()

    def test_tmp_is_on_its_disk(self):
        self.assertEqual(out(self.box, 'stat -c %a /tmp; echo hi > /tmp/f; cat /tmp/f'), '1777\nhi')
        self.assertEqual(out(self.box, 'df --output=size /tmp / | tail -2 | uniq | wc -l'), '1')

    # --- ports ---

    def test_ports_of_its_loopback(self):
        self.box.write('/tmp/echo.py', ECHO)
        big = os.urandom(1_000_000)
        for family, port in (('4', 8001), ('6', 8002)):
            Process(self.box, {'cmd': '/usr/bin/python3', 'args': ['/tmp/echo.py', family]})
            wait_for(lambda: self.ask(port, b'hello') == (200, b'hello'))
            self.assertEqual(self.ask(port, big), (200, big))

    def test_a_port_where_nobody_listens(self):
        status, body = self.ask(8444, b'')
        self.assertEqual((status, json.loads(body)['message']),
                         (502, 'The sandbox is running but port is not open'))

    # --- its limits ---

    def test_memory_limit(self):
        box = self.make()
        with contextlib.suppress(OSError):  # the sandbox itself may end
            box.run('python3 -c "x = bytearray(3 << 30)"', timeout=60)
        self.check_after_memory(box)

    def check_after_memory(self, box):
        self.assertEqual(out(box, 'echo alive'), 'alive')

    def test_fork_bomb_is_contained(self):
        box = self.make()
        with contextlib.suppress(Exception):
            box.run('python3 -c "import os\nwhile True: os.fork()"', timeout=5)
        self.end(box)
        self.assertEqual(out(self.box, 'echo alive'), 'alive')

    def test_disk_is_bounded(self):
        size = int(out(self.box, 'df --output=size -BM / | tail -1').rstrip('M'))
        self.assertLess(size, 12000)

    # --- its life ---

    def test_info_and_list_name_the_runtime(self):
        info = self.api.ok('GET', f'/sandboxes/{self.box.id}')
        self.assertEqual((info['runtime'], info['metadata']), (self.runtime, {'a': 'b'}))
        listed = {one['sandboxID']: one for one in self.api.ok('GET', '/v2/sandboxes')}
        self.assertEqual(listed[self.box.id]['runtime'], self.runtime)

    def test_kill_ends_everything(self):
        box = self.make()
        Process(box, {'cmd': '/bin/sleep', 'args': ['1000']})
        box.kill()
        self.assertEqual(self.api.status('GET', f'/sandboxes/{box.id}'), 404)

    def test_its_time_is_up(self):
        box = self.make(timeout=2)
        wait_for(lambda: self.api.status('GET', f'/sandboxes/{box.id}') == 404)

    def test_pause_keeps_memory(self):
        box = self.make()
        process = Process(box, {'cmd': '/bin/bash', 'args': ['-c', 'x=1; read; echo memory $x']})
        self.assertEqual(self.api.status('POST', f'/sandboxes/{box.id}/pause', {}), 204)
        self.assertEqual(self.api.ok('GET', f'/sandboxes/{box.id}')['state'], 'paused')
        self.api.ok('POST', f'/sandboxes/{box.id}/connect', {'timeout': 300})
        process.send(stdin=b'\n')
        process.read_until('stdout', b'memory 1\n')

    def test_pause_to_disk_and_resume(self):
        box = self.make()
        out(box, 'head -c 1000000 /dev/urandom > data; sha256sum data > sum; echo late > late')
        self.assertEqual(self.api.status('POST', f'/sandboxes/{box.id}/pause', {'memory': False}), 204)
        self.api.ok('POST', f'/sandboxes/{box.id}/connect', {'timeout': 300})
        self.assertEqual(out(box, 'sha256sum -c sum; cat late'), 'data: OK\nlate')
        self.assertEqual(self.api.ok('GET', f'/sandboxes/{box.id}')['runtime'], self.runtime)

    def test_snapshot_and_fork(self):
        box = self.make()
        out(box, 'echo kept > file; echo kept > /tmp/file')
        made = self.api.ok('POST', f'/sandboxes/{box.id}/snapshots', {})['snapshotID']
        self.addCleanup(self.api.status, 'DELETE', '/templates/' + urllib.parse.quote(made, safe=''))
        other = Sandbox(made)  # says nothing of a runtime
        self.addCleanup(self.end, other)
        self.assertEqual(out(other, 'cat file /tmp/file'), 'kept\nkept')
        self.assertEqual(self.api.ok('GET', f'/sandboxes/{other.id}')['runtime'], self.runtime)
        forked = self.api.ok('POST', f'/sandboxes/{box.id}/fork', {'count': 1})[0]
        twin = self.api.ok('GET', f"/sandboxes/{forked['sandbox']['sandboxID']}")
        self.assertEqual(twin['runtime'], self.runtime)
        self.assertEqual(self.api.status('DELETE', f"/sandboxes/{twin['sandboxID']}"), 204)

    def test_volume(self):
        made = self.api.ok('POST', '/volumes', {'name': f'v{uuid.uuid4().hex}'})
        self.addCleanup(self.api.status, 'DELETE', f"/volumes/{made['volumeID']}")
        mount = {'name': made['name'], 'path': '/data'}
        one, two = self.make(volumeMounts=[mount]), Sandbox(volumeMounts=[mount])
        self.addCleanup(self.end, two)
        self.assertEqual(out(one, 'echo shared > /data/f; chown user /data/f; cat /data/f', 'root'), 'shared')
        self.assertEqual(out(two, 'stat -c %U /data/f; cat /data/f; echo back > /data/f', 'root'), 'user\nshared')
        self.assertEqual(out(one, 'cat /data/f'), 'back')

    def test_template_start_and_marks(self):
        self.assertEqual(out(self.box, 'cat /run/e2b/.E2B_SANDBOX_ID'), self.box.id)
        self.assertEqual(out(self.box, 'hostname'), 'atoll')

    def test_nothing_of_the_engine_is_left_open(self):
        self.assertEqual(out(self.box, 'find /dev -name "*atoll*"; mount | grep -c atoll', 'root'), '0')
        held = self.box.run('readlink /proc/self/fd/*').text()
        self.assertNotIn('socket', held)


class Local(Suite, unittest.TestCase):
    runtime = 'local'


class Gvisor(Suite, unittest.TestCase):
    runtime = 'gvisor'

    def test_it_has_a_kernel_of_its_own(self):
        self.assertNotEqual(out(self.box, 'uname -r'), os.uname().release)

    @unittest.expectedFailure
    def test_sudo(self):
        """Its kernel gives no rights to set-user-id programs: ask for the user root instead."""
        super().test_sudo()

    def check_after_memory(self, box):
        """The limit is its whole kernel's: the sandbox ends, and its record says why."""
        wait_for(lambda: self.api.status('GET', f'/sandboxes/{box.id}') == 404)
        log = json.dumps(self.api.ok('GET', f'/v2/sandboxes/{box.id}/logs'))
        self.assertIn('memory limit', log)


class Runc(Suite, unittest.TestCase):
    runtime = 'runc'


class Crun(Suite, unittest.TestCase):
    runtime = 'crun'


class Choice(unittest.TestCase):
    """Which runtime a sandbox gets."""

    def setUp(self):
        self.api = Api(os.environ, **{'X-API-Key': os.environ['E2B_API_KEY']})

    def test_the_default_is_local(self):
        with Sandbox() as box:
            self.assertEqual(self.api.ok('GET', f'/sandboxes/{box.id}')['runtime'], 'local')

    def test_an_unknown_one_is_refused_and_the_known_are_named(self):
        status, _, answer = self.api('POST', '/sandboxes', {'templateID': 'base', 'runtime': 'xen'})
        self.assertEqual(status, 400, answer)
        self.assertIn("'local', 'gvisor', 'runc', 'crun'", answer['message'])


class Restart(unittest.TestCase):
    """Sandboxes of every runtime live on without their server, and nothing is left of them at the end."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-runtime-')
        self.addCleanup(scratch.cleanup)
        pathlib.Path(scratch.name).chmod(0o755)
        self.before = kernel.snapshot()
        self.server = Server(BUILD, scratch.name, '--pool', '1', '--stop-sandboxes')
        self.addCleanup(self.server.stop)
        self.server.start()
        self.runtimes = [name for name in PROGRAMS if not missing(name)]
        self.boxes = {name: Sandbox(env=self.server.env(), runtime=name) for name in self.runtimes}

    def again(self):
        self.server.kill()
        self.server.start()

    def test_they_are_adopted(self):
        for box in self.boxes.values():
            box.run('echo kept > file')
        streams = {name: Process(box, {'cmd': '/bin/sleep', 'args': ['1000']}).pid
                   for name, box in self.boxes.items()}
        self.again()
        for name, box in self.boxes.items():
            self.assertEqual(out(box, f'cat file; kill -0 {streams[name]} && echo lives'), 'kept\nlives', name)
            box.write('/tmp/echo.py', ECHO)
            Process(box, {'cmd': '/usr/bin/python3', 'args': ['/tmp/echo.py', '4']})
            wait_for(lambda: self.dialled(box))
        self.pause_across_a_crash()
        self.end_cleanly()

    def dialled(self, box):
        link = box.connection()
        with contextlib.closing(link):
            link.request('POST', '/', b'hello', box.headers(8001))
            return link.getresponse().read() == b'hello'

    def pause_across_a_crash(self):
        for box in self.boxes.values():
            box.api('POST', f'/sandboxes/{box.id}/pause', {})
        self.again()
        for name, box in self.boxes.items():
            box.api('POST', f'/sandboxes/{box.id}/connect', {'timeout': 300})
            self.assertEqual(out(box, 'cat file'), 'kept', name)

    def end_cleanly(self):
        self.assertEqual(self.server.stop(), 0)
        more = kernel.leaked(self.before)
        self.assertFalse(any(more.values()), more)
        self.assertFalse(kernel.sandbox_files(self.server.data))

    def test_one_that_ends_by_itself_is_recorded(self):
        for name, box in self.boxes.items():
            pid = self.first_process(box)
            os.kill(pid, signal.SIGKILL)
            api = Api(self.server.env(), **{'X-API-Key': self.server.env()['E2B_API_KEY']})
            wait_for(lambda: api.status('GET', f'/sandboxes/{box.id}') == 404)
        self.end_cleanly()

    def first_process(self, box):
        state = (self.server.data / 'run' / box.id / 'state').read_text()
        return int(dict(line.split(' ', 1) for line in state.splitlines())['pid'])


if __name__ == '__main__':
    unittest.main()
