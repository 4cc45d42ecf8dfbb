"""`atoll serve` as its operator meets it: start, stop, what lives on, what is refused and how."""
import contextlib
import glob
import json
import os
import pathlib
import pty
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import unittest
import unittest.mock
import urllib.error
import urllib.request

from harness import kernel
from harness.sandbox import Sandbox
from harness.server import Server, free_port, template_cache
from test_nested import hang

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent


def call(server, method, path, body=None, key=None, raw=None):
    """Status and decoded answer of one API call."""
    data = raw if raw is not None else json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(server.env()['E2B_API_URL'] + path, data, method=method)
    request.add_header('Content-Type', 'application/json')
    if key != '':
        request.add_header('X-API-Key', key or server.env()['E2B_API_KEY'])
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b'null')


class Scratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-serve-')
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.scratch.chmod(0o755)

    def server(self, *options):
        server = Server(BUILD, self.scratch, '--pool', '2', *options)
        self.addCleanup(server.stop)
        return server

    def refused(self, *options, data=None):
        """Runs serve, expects it to end by itself, returns what it said."""
        run = subprocess.run([BUILD / 'atoll', 'serve', '--data', data or self.scratch / 'data',
                              '--listen', f'127.0.0.1:{free_port()}', '--template-cache',
                              template_cache(), *options], stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(run.returncode, 0, run.stderr)
        return run.stderr


class Making(Scratch):
    """The base template is being made by programs that write now and then and take long."""
    MARK = f'98{os.getpid()}.5'

    def setUp(self):
        super().setUp()
        programs = self.scratch / 'programs'
        programs.mkdir()
        stand_in = programs / 'mmdebstrap'
        stand_in.write_text(f"#!/bin/sh\necho 'I: running apt-get update'\nsleep {self.MARK} &\nsleep {self.MARK}\n")
        stand_in.chmod(0o755)
        self.cache = self.scratch / 'cache'
        chosen = unittest.mock.patch.dict(os.environ, ATOLL_TEMPLATE_CACHE=str(self.cache))
        chosen.start()
        self.addCleanup(chosen.stop)

    def making(self, name, kept=False):
        (self.scratch / name).mkdir()
        server = Server(BUILD, self.scratch / name, kept=kept)
        server.before = ['unshare', '--mount', 'sh', '-c',
                         f'mount --bind {self.scratch}/programs /usr/local/sbin && exec "$@"', 'sh']
        server.spawn()
        self.addCleanup(server.kill)
        return server

    def processes(self, *words):
        """Those whose command line has one of these words."""
        found = set()
        for entry in filter(str.isdigit, os.listdir('/proc')):
            with contextlib.suppress(OSError):
                line = pathlib.Path('/proc', entry, 'cmdline').read_bytes().split(b'\0')
                found |= {entry for word in words if str(word).encode() in line}
        return found

    def wait(self, what):
        end = time.monotonic() + 120
        while not what():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    def nothing_is_left(self):
        return not self.processes(self.MARK, self.cache / 'base') and not list(self.cache.glob('base*'))

    def test_a_signal_ends_all_that_makes_the_template(self):
        for kept, signo in ((True, signal.SIGTERM), (True, signal.SIGINT), (False, signal.SIGTERM), (False, signal.SIGKILL),
                            (True, signal.SIGKILL)):
            server = self.making(f'{kept}{signo}', kept)
            self.wait(lambda: len(self.processes(self.MARK)) == 2)
            server.process.send_signal(signo)
            server.process.wait(120)
            if signo != signal.SIGKILL:  # it waited for the others
                self.assertTrue(self.nothing_is_left(), (kept, signo))
            self.wait(self.nothing_is_left)

    def test_who_waits_for_another_builder_ends_too(self):
        first = self.making('first')
        self.wait(lambda: len(self.processes(self.MARK)) == 2)
        second = self.making('second')
        self.wait(lambda: 'waiting for another builder' in second.tail())
        for server in (second, first):
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(120)
            if server is second:
                self.assertEqual(len(self.processes(self.MARK)), 2)
        self.assertTrue(self.nothing_is_left())


class Leftovers(Scratch):
    """What outlives its data directory is named, and removed; what waits for a server, or has one, never is."""

    def serve(self, name):
        (self.scratch / name).mkdir()
        (self.scratch / name).chmod(0o755)
        server = Server(BUILD, self.scratch / name, '--pool', '1')
        self.addCleanup(server.stop)
        return server.start()

    def doctor(self, *words):
        run = subprocess.run([BUILD / 'atoll', 'doctor', '--json', '--data', self.scratch / 'none', *words], capture_output=True,
                             text=True, timeout=300, check=False)
        document = json.loads(run.stdout)
        return {one['text']: one for one in document['checks'] if one['id'] == 'leftovers'}

    def told(self, path, *words):
        """What it says of this data directory; None: nothing."""
        return next((one for text, one in self.doctor(*words).items() if f'of {path},' in text or f'on {path},' in text), None)

    @staticmethod
    def held(server):
        """What the kernel has of it."""
        name = kernel.instance_of(server.data)
        tables = subprocess.run(['nft', 'list', 'tables', 'inet'], capture_output=True, text=True, check=True).stdout
        found = [f'table {name}'] if f'atoll_{name}' in tables else []
        return found + [path for above in ('', '*/') for path in glob.glob(f'/sys/fs/cgroup/{above}atoll/{name}/*/')]

    def test_only_what_nobody_will_take_over_is_removed(self):
        gone, away, live = map(self.serve, ('gone', 'away', 'live'))
        boxes = {server: Sandbox(env=server.env()) for server in (gone, away, live)}
        for box in boxes.values():
            box.run('echo kept > file; nohup sleep 3600 >/dev/null 2>&1 &')
        self.assertEqual(call(gone, 'POST', f'/sandboxes/{boxes[gone].id}/pause', {})[0], 204)
        for server in (gone, away):
            self.assertEqual(server.stop(), 0)
            self.assertIsNone(self.told(server.data))  # each waits for its next server
            self.assertTrue(self.held(server))
        interfaces = kernel.interfaces()
        shutil.rmtree(gone.data)
        was, moved = away.data, self.scratch / 'moved'
        away.data.rename(moved)  # which is still there
        told = self.told(gone.data)
        self.assertEqual((told['status'], told['fix']), ('warn', 'sudo atoll doctor --sweep'), told)
        self.assertRegex(told['text'], r'1 sandbox, \d+ process(es)?, 1 interface, \d+ loop devices?, 1 nftables table of ')
        self.assertIsNone(self.told(was))
        self.assertIsNone(self.told(gone.data, '--sweep'))
        self.assertEqual(self.held(gone), [])
        self.assertEqual(len(interfaces - kernel.interfaces()), 1)
        self.assertEqual(boxes[live].run('cat file').text(), 'kept\n')
        self.assertTrue(self.held(away))
        moved.rename(was)
        away.start()
        self.assertEqual(boxes[away].run('cat file').text(), 'kept\n')
        for server in (away, live):
            boxes[server].kill()

    def test_a_server_that_lives_keeps_what_it_has(self):
        server = self.serve('live')
        hang(Sandbox(env=server.env(), nested=True))  # a process that no kill ends by itself
        while server.data.exists():  # it makes files there meanwhile
            shutil.rmtree(server.data, ignore_errors=True)
        told = self.told(server.data)
        self.assertEqual(told['text'], f'a server runs on {server.data}, which is gone')
        held = self.held(server)
        self.assertTrue(self.told(server.data, '--sweep'))
        self.assertEqual(self.held(server), held)
        server.stop()
        self.assertTrue(self.held(server))
        self.assertIsNone(self.told(server.data, '--sweep'))
        self.assertEqual(self.held(server), [])

    def wait_told(self, path, *words):
        """As told, which another doctor on this machine may be in the way of for a moment: it holds the lock."""
        end = time.monotonic() + 120
        while not (told := self.told(path, *words)):
            self.assertLess(time.monotonic(), end)
        return told

    def test_a_directory_that_was_replaced_is_named_and_keeps_its_sandboxes(self):
        server = self.serve('replaced')
        Sandbox(env=server.env())
        server.stop()
        held = self.held(server)
        was = self.scratch / 'was'
        server.data.rename(was)
        subprocess.run(['cp', '-a', was, server.data], check=True)
        shutil.rmtree(was)
        for words in ((), ('--sweep',)):
            told = self.wait_told(server.data, *words)
            self.assertEqual(told['status'], 'warn')
            self.assertIn(f'1 sandbox of {server.data}, which may be gone or not', told['text'])
            self.assertIn('start a server on that directory', told['fix'])
        self.assertEqual(self.held(server), held)
        server.data.rename(was)  # as the fix says
        end = time.monotonic() + 120
        while self.held(server):
            self.assertLess(time.monotonic(), end)
            self.doctor('--sweep')
        was.rename(server.data)

    def sweep(self, server):
        """One that waits for something of this server; in plain text."""
        end = time.monotonic() + 120
        sweep = None
        while [path for path in self.held(server) if not path.startswith('table')]:
            self.assertLess(time.monotonic(), end)
            if sweep is None or sweep.poll() is not None:  # another one had the lock
                if sweep:
                    sweep.communicate()
                sweep = subprocess.Popen([BUILD / 'atoll', 'doctor', '--sweep', '--data', self.scratch / 'none'],
                                         stdout=subprocess.PIPE, text=True)
            time.sleep(0.01)
        return sweep

    def test_a_server_that_comes_while_its_path_is_swept_keeps_what_it_makes(self):
        server = self.serve('swept')
        Sandbox(env=server.env())
        server.stop()
        loops = []
        for path in glob.glob('/sys/block/loop*/loop/backing_file'):
            with contextlib.suppress(OSError):  # another server's, which ended
                loops += [path.split('/')[3]] if str(server.data) in pathlib.Path(path).read_text() else []
        device = os.open(f'/dev/{loops[0]}', os.O_RDONLY)  # what is open is not gone: the sweep waits
        self.addCleanup(os.close, device)
        shutil.rmtree(server.data)
        sweep = self.sweep(server)
        server.start()
        box = Sandbox(env=server.env())
        self.assertIn(f'left alone: what is left of {server.data}, on which a server was started meanwhile',
                      sweep.communicate(timeout=120)[0])
        self.assertTrue(any(one.startswith('table') for one in self.held(server)))
        self.assertIsNone(self.told(server.data, '--sweep'))  # which has the lock by now, and a label of its own
        self.assertEqual(box.run('echo lives').text(), 'lives\n')
        box.kill()

    def test_an_ordinary_user_removes_nothing(self):
        shutil.copy(BUILD / 'atoll', self.scratch)
        run = subprocess.run([self.scratch / 'atoll', 'doctor', '--sweep'], cwd='/', user=65534, group=65534, extra_groups=[],
                             capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn('sudo atoll doctor --sweep', run.stderr)


class Start(Scratch):
    def test_env_file_is_private_and_complete(self):
        server = self.server('--stop-sandboxes').start()
        path = server.data / 'env'
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        env = server.env()
        self.assertRegex(env['E2B_API_KEY'], r'^e2b_[0-9a-f]{40}$')
        self.assertEqual(env['E2B_API_URL'], f'http://127.0.0.1:{server.port}')
        self.assertEqual(env['E2B_SANDBOX_URL'], env['E2B_API_URL'])
        self.assertEqual(env['E2B_DOMAIN'], f'localhost:{server.port}')
        self.assertEqual(server.stop(), 0)
        server.start()
        self.assertEqual(server.env()['E2B_API_KEY'], env['E2B_API_KEY'])

    def test_key_never_reaches_log_or_database(self):
        server = self.server('--stop-sandboxes', '--log-level', 'debug').start()
        key = server.env()['E2B_API_KEY']
        self.assertEqual(call(server, 'POST', '/v2/sandboxes', {'templateID': 'base'})[0], 201)
        server.stop()
        for path in [server.log, *(path for path in (server.data / 'state').rglob('*') if path.is_file())]:
            self.assertNotIn(key[4:].encode(), path.read_bytes(), path)

    def test_server_is_not_root(self):
        server = self.server('--stop-sandboxes').start()
        status = pathlib.Path(f'/proc/{server.process.pid}/status').read_text()
        self.assertNotRegex(status, r'(?m)^Uid:.*\b0\b')
        self.assertNotRegex(status, r'(?m)^Gid:.*\b0\b')
        # What volumes need, and only for the server's own block of uids: elsewhere it counts for nothing.
        for kind in ('CapPrm', 'CapEff', 'CapBnd'):
            self.assertRegex(status, rf'(?m)^{kind}:\t000000000000000b$')
        for kind in ('uid_map', 'gid_map'):
            text = pathlib.Path(f'/proc/{server.process.pid}/{kind}').read_text()
            self.assertEqual(text.split(), ['0', str(0x70000000), '65536'])
        self.assertRegex(status, r'(?m)^NoNewPrivs:\t1$')

    def test_below_a_directory_that_only_root_may_enter(self):
        (self.scratch / 'closed').mkdir(mode=0o700)
        server = self.server('--stop-sandboxes')
        server.data = self.scratch / 'closed' / 'data'
        server.start()
        self.assertEqual(call(server, 'POST', '/v2/sandboxes', {'templateID': 'base'})[0], 201)

    def test_on_a_terminal_it_proves_itself(self):
        server = self.server('--stop-sandboxes')
        master, slave = pty.openpty()
        server.process = subprocess.Popen(
            [server.program, 'serve', '--data', server.data, '--listen', f'127.0.0.1:{server.port}',
             '--template-cache', template_cache(), '--stop-sandboxes'],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
        os.close(slave)
        seen, deadline = '', time.monotonic() + 60
        while 'commands.run' not in seen and time.monotonic() < deadline:
            seen += os.read(master, 65536).decode(errors='replace')
        self.assertRegex(seen, r'sandbox made in [\d.]+ ms, a command run in it in [\d.]+ ms')
        self.assertIn('E2B_API_KEY=e2b_', seen)
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(60)
        os.close(master)


class Lives(Scratch):
    def test_sandbox_outlives_a_stop_and_a_crash(self):
        server = self.server().start()
        status, made = call(server, 'POST', '/v2/sandboxes',
                            {'templateID': 'base', 'metadata': {'a': 'é"\\'}})
        self.assertEqual(status, 201)
        path = f"/sandboxes/{made['sandboxID']}"
        before = call(server, 'GET', path)[1]
        self.assertEqual(server.stop(), 0)
        server.start()
        self.assertEqual(call(server, 'GET', path), (200, before))
        server.kill()
        server.start()
        self.assertEqual(call(server, 'GET', path), (200, before))
        request = urllib.request.Request(server.env()['E2B_API_URL'] + '/health')
        request.add_header('E2b-Sandbox-Id', made['sandboxID'])
        request.add_header('E2b-Sandbox-Port', '49983')
        self.assertEqual(urllib.request.urlopen(request, timeout=10).status, 204)
        self.assertEqual(call(server, 'DELETE', path)[0], 204)
        self.assertEqual(call(server, 'DELETE', path)[0], 404)

    def test_its_time_ends_it(self):
        server = self.server('--stop-sandboxes').start()
        made = call(server, 'POST', '/v2/sandboxes', {'templateID': 'base', 'timeout': 1})[1]
        deadline = time.monotonic() + 60
        while call(server, 'GET', f"/sandboxes/{made['sandboxID']}")[0] == 200:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)

    def test_a_sandbox_whose_time_passed_while_the_server_was_down_is_ended(self):
        server = self.server().start()
        made = call(server, 'POST', '/v2/sandboxes', {'templateID': 'base', 'timeout': 1})[1]
        server.kill()
        time.sleep(1.2)
        server.start()
        deadline = time.monotonic() + 60
        while call(server, 'GET', f"/sandboxes/{made['sandboxID']}")[0] == 200:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)


    def test_stopping_them_with_the_server_is_the_cause_that_is_recorded(self):
        server = self.server('--stop-sandboxes').start()
        made = call(server, 'POST', '/v2/sandboxes', {'templateID': 'base'})[1]
        self.assertEqual(server.stop(), 0)
        ended = [line for line in server.log.read_text().splitlines()
                 if 'event=sandbox.ended' in line and made['sandboxID'] in line]
        self.assertEqual(len(ended), 1)
        self.assertIn('stopped with --stop-sandboxes', ended[0])


class Refused(Scratch):
    def test_two_servers_on_one_data_directory(self):
        self.server('--stop-sandboxes').start()
        self.assertIn('another server runs on it', self.refused())

    def test_a_port_in_use(self):
        server = self.server('--stop-sandboxes').start()
        said = self.refused('--listen', f'127.0.0.1:{server.port}', data=self.scratch / 'other')
        self.assertRegex(said, r'(?i)in use')

    def test_data_of_a_newer_version(self):
        (self.scratch / 'data').mkdir()
        (self.scratch / 'data' / 'version').write_text('999\n')
        self.assertIn('start the newer program', self.refused())

    def test_a_directory_that_is_not_ours(self):
        (self.scratch / 'data').mkdir()
        (self.scratch / 'data' / 'version').write_text('hello\n')
        self.assertIn("is this Atoll's directory?", self.refused())

    def test_a_host_without_nftables(self):
        nft = shutil.which('nft')
        run = subprocess.run(
            ['unshare', '--mount', 'sh', '-c', f'mount --bind /dev/null {nft} && exec "$@"', 'sh',
             BUILD / 'atoll', 'serve', '--data', self.scratch / 'data', '--listen',
             f'127.0.0.1:{free_port()}', '--template-cache', template_cache()],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stderr, r'install nftables .* or start with --network none')

    def test_a_kernel_that_cannot_count_connections(self):
        """As without nft_connlimit: nft refuses such a rule, and takes all others."""
        nft = shutil.which('nft')
        shutil.copy(nft, self.scratch / 'real-nft')
        (self.scratch / 'nft').write_text(
            f'#!/bin/sh\nin=$(cat)\ncase $in in *"ct count"*) echo "Error: Could not process rule: No such file" >&2; '
            f'exit 1;; esac\nprintf "%s\\n" "$in" | exec {self.scratch}/real-nft "$@"\n')
        (self.scratch / 'nft').chmod(0o755)
        without = ['unshare', '--mount', 'sh', '-c', f'mount --bind {self.scratch}/nft {nft} && exec "$@"', 'sh']
        server = self.server('--stop-sandboxes')
        server.before = without
        server.start()
        with Sandbox(env=server.env()) as box:
            self.assertEqual(box.run('echo made').text(), 'made\n')
        self.assertEqual(server.stop(), 0)
        log = server.log.read_text()
        self.assertEqual(log.count('firewall.no_connection_limit'), 1)
        self.assertIn('fix="modprobe nft_connlimit"', log)
        doctor = subprocess.run([*without, BUILD / 'atoll', 'doctor', '--json'], capture_output=True, text=True,
                                timeout=60, check=False)
        checks = {one['id']: one for one in json.loads(doctor.stdout)['checks']}
        self.assertEqual((checks['connlimit']['status'], checks['nft']['status']), ('warn', 'ok'))
        self.assertIn('modprobe nft_connlimit', checks['connlimit']['fix'])

    def test_an_ordinary_user(self):
        program = shutil.copy(BUILD / 'atoll', self.scratch)  # the build may be out of others' reach
        run = subprocess.run([program, 'serve', '--data', self.scratch / 'data'],
                             user=65534, group=65534, stdin=subprocess.DEVNULL, capture_output=True,
                             text=True, timeout=60, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn('needs root to start', run.stderr)

    def test_wrong_options(self):
        for options, says in [(['--pool', 'many'], '--pool'), (['--nope'], '--nope'),
                              (['--network', '10.0.0.0'], 'network'), (['--listen', 'x'], 'x')]:
            self.assertIn(says, self.refused(*options))


class BadInput(unittest.TestCase):
    """Against the server that all suites share."""

    @classmethod
    def setUpClass(cls):
        class Shared:
            def env(self):
                return os.environ
        cls.server = Shared()

    def check(self, want, method, path, message=None, **more):
        status, answer = call(self.server, method, path, **more)
        self.assertEqual(status, want, answer)
        self.assertEqual(answer['code'], want)
        if message:
            self.assertRegex(answer['message'], message)

    def test_keys(self):
        self.check(401, 'GET', '/v2/sandboxes', 'authorization header is missing', key='')
        self.check(401, 'GET', '/v2/sandboxes', 'Invalid API key', key='e2b_' + '0' * 40)
        self.check(401, 'GET', '/v2/sandboxes', 'Invalid API key', key='nonsense')
        status, made = call(self.server, 'POST', '/api-keys', {'name': 'for a moment'})
        self.assertEqual(status, 201)
        self.assertEqual(call(self.server, 'GET', '/v2/sandboxes', key=made['key'])[0], 200)
        listed = call(self.server, 'GET', '/api-keys')[1]
        self.assertNotIn(made['key'], json.dumps(listed))
        self.assertEqual(call(self.server, 'DELETE', f"/api-keys/{made['id']}")[0], 204)
        self.check(401, 'GET', '/v2/sandboxes', 'Invalid API key', key=made['key'])
        self.check(404, 'DELETE', f"/api-keys/{made['id']}")

    def test_create(self):
        def create(want, body, message):
            self.check(want, 'POST', '/v2/sandboxes', message, body=body)
        create(404, {'templateID': 'nope'}, "template 'nope' not found")
        create(404, {'templateID': 'base:v9'}, 'v9')
        create(400, {'templateID': '../base/..'}, 'Invalid template')
        create(400, {}, 'templateID')
        create(400, {'templateID': 7}, 'templateID')
        create(400, {'templateID': 'base', 'timeout': 0}, 'timeout')
        create(400, {'templateID': 'base', 'timeout': 10 ** 9}, 'timeout')
        create(400, {'templateID': 'base', 'timeout': 'long'}, 'timeout')
        create(400, {'templateID': 'base', 'metadata': {'a': 1}}, 'metadata')
        create(400, {'templateID': 'base', 'envVars': {'A=B': 'x'}}, 'envVars')
        create(400, {'templateID': 'base', 'volumeMounts': [{'name': 'v', 'path': '/v'}]}, 'not found')

    def test_json(self):
        for raw in (b'', b'{', b'[]', b'null', b'{"templateID":"base"} x', b'\xff', b'{"a":1,"a":2}',
                    b'[' * 100000, b'{"templateID":"b\\u0000"}'):
            self.check(400, 'POST', '/v2/sandboxes', 'validation error', raw=raw)
        self.check(413, 'POST', '/v2/sandboxes', '1 MiB', raw=b' ' * (2 << 20))

    def test_ids_and_paths(self):
        self.check(404, 'GET', '/sandboxes/inothere', "doesn't exist")
        self.check(404, 'DELETE', '/sandboxes/nonexistingsandbox')
        self.check(400, 'GET', '/sandboxes/UPPER', 'Invalid sandbox ID')
        self.check(400, 'GET', '/sandboxes/..%2f..', 'Invalid sandbox ID')
        self.check(404, 'POST', '/sandboxes/inothere/timeout', body={'timeout': 5})
        self.check(404, 'GET', '/nowhere', 'no such path')
        self.check(405, 'PUT', '/sandboxes', 'method')
        self.check(400, 'GET', '/v2/sandboxes?limit=0', 'limit')
        self.check(400, 'GET', '/v2/sandboxes?limit=x', 'limit')
        self.check(400, 'GET', '/v2/sandboxes?nextToken=!!', 'nextToken')
        self.check(400, 'GET', '/v2/sandboxes?order=up', 'order')
        self.check(400, 'GET', '/v2/sandboxes?state=lost', 'state')

    def test_listing_pages_through_everything_once(self):
        made = []
        for i in range(3):
            status, answer = call(self.server, 'POST', '/v2/sandboxes',
                                  {'templateID': 'base', 'metadata': {'page': 'yes', 'i': str(i)}})
            self.assertEqual(status, 201, answer)
            made.append(answer['sandboxID'])
            self.addCleanup(call, self.server, 'DELETE', f"/sandboxes/{answer['sandboxID']}")
        for order, want in (('desc', made[::-1]), ('asc', made)):
            seen, token = [], ''
            while True:
                url = (f"{os.environ['E2B_API_URL']}/v2/sandboxes?limit=1&order={order}"
                       f'&metadata=page%3Dyes&nextToken={token}')
                request = urllib.request.Request(url)
                request.add_header('X-API-Key', os.environ['E2B_API_KEY'])
                with urllib.request.urlopen(request, timeout=10) as answer:
                    self.assertEqual(answer.headers['X-Total-Running'], '3')
                    seen += [row['sandboxID'] for row in json.loads(answer.read())]
                    token = answer.headers.get('X-Next-Token')
                if not token:
                    break
            self.assertEqual(seen, want)

    def test_a_port_nobody_listens_on(self):
        made = call(self.server, 'POST', '/v2/sandboxes', {'templateID': 'base'})[1]
        self.addCleanup(call, self.server, 'DELETE', f"/sandboxes/{made['sandboxID']}")
        request = urllib.request.Request(os.environ['E2B_API_URL'] + '/')
        request.add_header('Host', f"8123-{made['sandboxID']}.localhost")
        with self.assertRaises(urllib.error.HTTPError) as failed:
            urllib.request.urlopen(request, timeout=10)
        self.assertEqual(failed.exception.code, 502)
        self.assertEqual(json.loads(failed.exception.read()), {
            'sandboxId': made['sandboxID'], 'port': 8123, 'code': 502,
            'message': 'The sandbox is running but port is not open'})

    def test_private_routes_do_not_exist_from_outside(self):
        made = call(self.server, 'POST', '/v2/sandboxes', {'templateID': 'base'})[1]
        self.addCleanup(call, self.server, 'DELETE', f"/sandboxes/{made['sandboxID']}")
        for path in ('/init', '/freeze', '/init/', '/init?x=1'):
            request = urllib.request.Request(os.environ['E2B_API_URL'] + path, b'{}')
            request.add_header('Host', f"49983-{made['sandboxID']}.localhost")
            request.add_header('X-Access-Token', made['envdAccessToken'])
            with self.assertRaises(urllib.error.HTTPError) as failed:
                urllib.request.urlopen(request, timeout=10)
            self.assertEqual(failed.exception.code, 404, path)


if __name__ == '__main__':
    unittest.main()
