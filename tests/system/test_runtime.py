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
import threading
import time
import unittest
import urllib.parse
import uuid

from harness import internet, kernel
from harness.sandbox import Sandbox, frames
from harness.server import Server, template_cache
from harness.together import arrange_classes
from test_network import ALL, ONE, TWO, Box
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


def wait_for(what, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        seen = what()
        if seen:
            return seen
        time.sleep(0.05)
    raise AssertionError('it did not come about')


def settled():
    """What the kernel holds, once the other server of this run has filled its pool."""
    return kernel.settled()


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

    def call(self, method, body):
        link = self.box.connection()
        link.request('POST', f'/process.Process/{method}', json.dumps({'process': {'pid': self.pid}, **body}),
                     self.headers('application/json'))
        answer = link.getresponse()
        text = answer.read()
        link.close()
        assert answer.status == 200, text

    def send(self, **data):
        self.call('SendInput', {'input': {k: base64.b64encode(v).decode() for k, v in data.items()}})

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
        cls.box = Sandbox(runtime=cls.runtime, envVars={'OF_SANDBOX': 'yes'}, metadata={'a': 'b'},
                          limits={'shmSizeMB': 32})
        cls.addClassCleanup(cls.box.kill)

    def make(self, **more):
        box = Sandbox(runtime=self.runtime, **more)
        self.addCleanup(self.end, box)
        return box

    @staticmethod
    def end(box):
        with contextlib.suppress(RuntimeError):
            box.kill()

    def start(self, box, process, user=None, **more):
        started = Process(box, process, user, **more)
        self.addCleanup(started.link.close)
        return started

    def ask(self, port, body):
        link = self.box.connection()
        with contextlib.closing(link):
            link.request('POST', '/', body, self.box.headers(port))
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
            process = self.start(self.box, message, user)
            self.assertIn(f'yes too /var {name}\n'.encode(), process.read_until('stdout', b'\n'))
            self.assertEqual(process.end().get('exitCode', 0), 0)

    def test_input(self):
        process = self.start(self.box, {'cmd': '/bin/cat'})
        process.send(stdin=b'one\n')
        process.read_until('stdout', b'one\n')
        process.send(stdin=b'two\n')
        process.read_until('stdout', b'two\n')

    def test_terminal(self):
        process = self.start(self.box, {'cmd': '/bin/bash', 'args': ['-i'], 'envs': {'PS1': '$ '}},
                          pty={'size': {'cols': 91, 'rows': 33}})
        process.send(pty=b'stty size; tty\n')
        seen = process.read_until('pty', b'/dev/pts/')
        self.assertIn(b'33 91', seen)
        process.send(pty=b'exit 5\n')
        self.assertEqual(process.end()['exitCode'], 5, seen)

    def test_signal(self):
        process = self.start(self.box, {'cmd': '/bin/sleep', 'args': ['1000']})
        process.call('SendSignal', {'signal': 'SIGNAL_SIGKILL'})
        self.assertIn('signal', process.end().get('status', ''))

    def test_init_reaps(self):
        self.box.run('for i in $(seq 20); do (sleep 0.1 &) ; done')
        wait_for(lambda: out(self.box, 'ps -eo stat | grep -c ^Z || true') == '0')

    def test_sudo(self):
        self.assertEqual(out(self.box, 'sudo id -u'), '0')

    def test_the_usual_programs(self):
        seen = self.box.run('ls -la / && stat /etc/passwd && find / -maxdepth 1 && ps aux && df && cp -a /etc/skel x '
                            '&& mv x y && rm -r y && git init -q repo && cd /etc && tar c skel | tar t', 'root')
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
        link.close()

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
            self.start(self.box, {'cmd': '/usr/bin/python3', 'args': ['/tmp/echo.py', family]})
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

    def test_what_programs_size_themselves_by(self):
        box = self.make(limits={'cpuCount': 1, 'memoryMB': 512})
        self.assertEqual(out(box, "nproc; getconf _NPROCESSORS_ONLN; grep -c ^processor /proc/cpuinfo; "
                                  "free -m | awk '/^Mem:/ { print $2 }'"), '1\n1\n1\n512')
        used = "free -m | awk '/^Mem:/ { print $3 }'"
        self.start(box, {'cmd': '/usr/bin/python3', 'args': ['-c', "x = b'x' * (200 << 20); input()"]})
        wait_for(lambda: int(out(box, used)) >= 200)
        self.assertLess(int(out(box, used)), 512)

    def test_fork_bomb_is_contained(self):
        box = self.make()
        with contextlib.suppress(Exception):
            box.run('python3 -c "import os, time\nwhile os.fork(): pass\ntime.sleep(60)"', timeout=2)
        self.end(box)
        self.assertEqual(out(self.box, 'echo alive'), 'alive')

    def test_disk_is_bounded(self):
        size = int(out(self.box, 'df --output=size -BM / | tail -1').rstrip('M'))
        self.assertLess(size, 12000)

    def test_shared_memory_is_bounded(self):
        said = out(self.box, 'dd if=/dev/zero of=/dev/shm/large bs=1M count=40; stat -c %s /dev/shm/large; '
                             'rm /dev/shm/large; echo again > /dev/shm/small && cat /dev/shm/small')
        self.assertIn('No space left on device', said)
        self.assertIn('again', said)
        size = int([line for line in said.splitlines() if line.isdigit()][0])
        self.assertTrue(31 << 20 <= size <= 32 << 20, size)

    # --- its life ---

    def test_info_and_list_name_the_runtime(self):
        info = self.api.ok('GET', f'/sandboxes/{self.box.id}')
        self.assertEqual((info['runtime'], info['metadata']), (self.runtime, {'a': 'b'}))
        listed = {one['sandboxID']: one for one in self.api.ok('GET', '/v2/sandboxes')}
        self.assertEqual(listed[self.box.id]['runtime'], self.runtime)

    def test_kill_ends_everything(self):
        box = self.make()
        self.start(box, {'cmd': '/bin/sleep', 'args': ['1000']})
        box.kill()
        self.assertEqual(self.api.status('GET', f'/sandboxes/{box.id}'), 404)

    def test_its_time_is_up(self):
        box = self.make(timeout=2)
        wait_for(lambda: self.api.status('GET', f'/sandboxes/{box.id}') == 404)

    def test_pause_keeps_memory(self):
        box = self.make()
        process = self.start(box, {'cmd': '/bin/bash', 'args': ['-c', 'x=1; read; echo memory $x']})
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

    def test_a_link_in_its_disk_does_not_lead_to_the_host(self):
        with tempfile.NamedTemporaryFile(dir='/var/tmp', prefix='canary-') as canary, Sandbox() as source:
            os.chmod(canary.name, 0o644)
            canary.write(b'of the host')
            canary.flush()
            source.run('rm -rf /tmp && ln -s /var/tmp /tmp', 'root')
            name = f'link-{uuid.uuid4().hex[:8]}'
            snapshot = source.api('POST', f'/sandboxes/{source.id}/snapshots', {'name': name})['snapshotID']
            self.addCleanup(self.api.status, 'DELETE', '/templates/' + urllib.parse.quote(snapshot, safe=''))
            try:
                box = self.make(template=snapshot)
            except RuntimeError as refused:
                self.assertIn(': 400 ', str(refused))
            else:
                self.assertNotIn('of the host', out(box, f'cat {canary.name} /tmp/canary-*', 'root'))

    def test_volume(self):
        made = self.api.ok('POST', '/volumes', {'name': f'v{uuid.uuid4().hex}'})
        self.addCleanup(self.api.status, 'DELETE', f"/volumes/{made['volumeID']}")
        mount = {'name': made['name'], 'path': '/data'}
        one, two = self.make(volumeMounts=[mount]), Sandbox(volumeMounts=[mount])
        self.addCleanup(self.end, two)
        self.assertEqual(out(one, 'echo shared > /data/f; chown user /data/f; cat /data/f', 'root'), 'shared')
        self.assertEqual(out(two, 'stat -c %U /data/f; cat /data/f; echo back > /data/f', 'root'), 'user\nshared')
        self.assertEqual(out(one, 'cat /data/f'), 'back')

    def test_no_device_opens_but_those_shown(self):
        if self.runtime != 'gvisor':  # which has no devices of the host at all
            self.assertEqual(out(self.box, 'grep " / / " /proc/self/mountinfo | grep -c nodev'), '1')

    def test_template_start_and_marks(self):
        self.assertEqual(out(self.box, 'cat /run/e2b/.E2B_SANDBOX_ID'), self.box.id)
        self.assertEqual(out(self.box, 'hostname'), 'atoll')

    def test_nothing_of_the_engine_is_left_open(self):
        self.assertEqual(out(self.box, 'find /dev/ -name "*atoll?*" -o -name "*.sock"', 'root'), '')
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
        wait_for(lambda: 'memory limit' in json.dumps(self.api.ok('GET', f'/v2/sandboxes/{box.id}/logs')))


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

    def own_server(self, *options):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-choice-')
        self.addCleanup(scratch.cleanup)
        scratch = pathlib.Path(scratch.name)
        scratch.chmod(0o755)
        server = Server(BUILD, scratch, '--pool', '1', '--stop-sandboxes', *options)
        self.addCleanup(server.stop)
        return server

    @unittest.skipIf(missing('runc'), 'runc is not installed')
    def test_a_template_names_one_and_a_request_another(self):
        server = self.own_server()
        templates = server.scratch / 'templates'
        for name in ('base', 'boxed'):
            rootfs = templates / name / 'rootfs'
            rootfs.mkdir(parents=True)
            subprocess.run(['mount', '--bind', template_cache() / 'base/rootfs', rootfs], check=True)
            self.addCleanup(subprocess.run, ['umount', '--lazy', rootfs], check=True)
        (templates / 'boxed/template.toml').write_text('runtime = "runc"\n')
        server.options += ('--template-cache', templates)
        server.start()
        for asked, got in (({}, 'runc'), ({'runtime': 'local'}, 'local')):
            with Sandbox('boxed', env=server.env(), **asked) as box:
                self.assertEqual(box.api('GET', f'/sandboxes/{box.id}')['runtime'], got)
        self.assertEqual(server.stop(), 0)

    @unittest.skipIf(missing('gvisor'), 'runsc is not installed')
    def test_a_host_without_it_says_so_and_serves_the_others(self):
        server = self.own_server()
        without = server.scratch / 'without-runsc'
        without.write_text(f'#!/bin/sh\nexec unshare --mount sh -c \'mount --bind /dev/null {shutil.which("runsc")} '
                           f'&& exec "$@"\' sh {server.program} "$@"\n')
        without.chmod(0o755)
        server.program = without
        server.start()
        api = Api(server.env(), **{'X-API-Key': server.env()['E2B_API_KEY']})
        status, _, answer = api('POST', '/sandboxes', {'templateID': 'base', 'runtime': 'gvisor'})
        self.assertEqual(status, 400, answer)
        self.assertIn('apt-get install runsc', answer['message'])
        with Sandbox(env=server.env()) as box:
            self.assertEqual(out(box, 'echo alive'), 'alive')


@unittest.skipUnless(internet.available(), 'needs a network namespace of its own')
class Reach(unittest.TestCase):
    """What a sandbox may reach does not depend on what runs it."""

    def test_the_same_rules_hold(self):
        with internet.Internet():
            for runtime in (name for name in PROGRAMS if not missing(name)):
                with self.subTest(runtime), Box(runtime=runtime, network={'denyOut': [ALL], 'allowOut': [ONE]}) as box:
                    self.assertEqual((box.reaches(ONE), box.reaches(ONE, kind='udp')), (ONE, ONE))
                    self.assertEqual(box.reaches(TWO), 'refused')
                    self.assertIn(box.reaches(TWO, kind='udp'), ('refused', 'silence'))
                    box.put()
                    self.assertEqual(box.reaches(TWO), TWO)
                    for private in ('169.254.169.254', '10.0.0.1', '192.168.1.1', internet.NEAR, '10.199.0.1'):
                        self.assertNotEqual(box.reaches(private), private)
                    box.put(denyOut=[TWO])
                    self.assertEqual(box.reaches(TWO), 'refused')


class Restart(unittest.TestCase):
    """Sandboxes of every runtime live on without their server, and nothing is left of them at the end."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-runtime-')
        self.addCleanup(scratch.cleanup)
        pathlib.Path(scratch.name).chmod(0o755)
        self.before = settled()
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

    def test_a_crash_while_one_is_made(self):
        """Whatever is listed afterwards works, and whatever is not is gone."""
        for delay in (0.02, 0.08, 0.15, 0.25, 0.4):
            makers = [threading.Thread(target=self.try_to_make, args=(name,)) for name in self.runtimes]
            for maker in makers:
                maker.start()
            time.sleep(delay)
            self.again()
            for maker in makers:
                maker.join()
            self.check_listed()
        self.end_cleanly()

    def try_to_make(self, runtime):
        with contextlib.suppress(OSError, RuntimeError, http.client.HTTPException):
            Sandbox(env=self.server.env(), runtime=runtime)

    def check_listed(self):
        api = Api(self.server.env(), **{'X-API-Key': self.server.env()['E2B_API_KEY']})
        for one in api.ok('GET', '/v2/sandboxes'):
            box = object.__new__(Sandbox)
            box.env, box.id = self.server.env(), one['sandboxID']
            box.made = api.ok('POST', f'/sandboxes/{box.id}/connect', {'timeout': 300})
            self.assertEqual(out(box, 'echo works'), 'works', one)

    def first_process(self, box):
        state = (self.server.data / 'run' / box.id / 'state').read_text()
        return int(dict(line.split(' ', 1) for line in state.splitlines())['pid'])


def load_tests(_, standard, __):
    """The runtimes at once; then what looks at the whole machine."""
    return arrange_classes(standard, lambda test: isinstance(test, Suite), 2)


if __name__ == '__main__':
    unittest.main()
