"""New programs under live sandboxes, and a crash: whoever comes meanwhile waits, and nothing is lost."""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

from harness.certificates import Authority
from harness.sandbox import Sandbox
from harness.server import Server, free_port
from harness.v1 import Api
from test_keeper import child, wait_for
from test_v1_execute import bytes_of, events

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
PROGRAMS = ('atoll', 'atoll-warden', 'atoll-guest', 'atoll-guest-static')
CUT = (OSError, http.client.HTTPException)
PATIENCE_S = 120  # of one request, on a machine that does much else


def put(path, content):
    """As an installer does: the old file lives on for whoever runs it."""
    fresh = path.with_name('.fresh')
    fresh.write_bytes(content)
    fresh.chmod(0o755)
    fresh.rename(path)


def figures(text):
    print(f'{text}  ', end='', flush=True)


class Load:
    """Clients that ask all the time. What becomes of each request is counted."""

    def __init__(self, server, env, context=None):
        self.server, self.env, self.context = server, env, context
        self.made, self.refused, self.cut, self.longest_s = 0, [], [], 0
        self.lock, self.over, self.threads = threading.Lock(), threading.Event(), []

    def __enter__(self):
        works = [self.ask_anew] * 3 + [self.ask_again] * 2 + [self.make_and_end] * 2
        self.threads = [threading.Thread(target=self.repeat, args=(work(),), daemon=True) for work in works]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()

    def repeat(self, work):
        for step in work:
            self.one(step)
            if self.over.is_set():
                break
            time.sleep(0.005)
        work.close()

    def one(self, step):
        began = time.monotonic()
        try:
            step()
        except ConnectionRefusedError as e:
            with self.lock:
                self.refused.append(repr(e))
        except (*CUT, RuntimeError) as e:
            with self.lock:
                self.cut.append(repr(e))
        with self.lock:
            self.made += 1
            self.longest_s = max(self.longest_s, time.monotonic() - began)

    def link(self):
        if self.context:
            return http.client.HTTPSConnection('localhost', self.server.port, timeout=PATIENCE_S, context=self.context)
        return http.client.HTTPConnection(self.server.host, self.server.port, timeout=PATIENCE_S)

    def health(self, link):
        link.request('GET', '/health')
        answer = link.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f'{answer.status}')

    def ask_anew(self):
        def step():
            link = self.link()
            try:
                self.health(link)
            finally:
                link.close()
        while True:
            yield step

    def ask_again(self):
        """On one connection, for as long as the server says that it may stay. One that was idle may be closed just
        when it is used again: then a client asks anew, as HTTP has it."""
        link = self.link()

        def step():
            is_used = link.sock is not None
            try:
                self.health(link)
            except (ConnectionResetError, BrokenPipeError, http.client.RemoteDisconnected):
                link.close()
                if not is_used:
                    raise
                self.health(link)
        try:
            while True:
                yield step
        finally:
            link.close()

    def make_and_end(self):
        """Each of the three is a request of its own."""
        boxes = []

        def make():
            boxes[:] = [Sandbox(env=self.env)]

        def use():
            if boxes and boxes[0].run('echo here').text() != 'here\n':
                raise RuntimeError('a command lost its output')

        def end():
            while boxes:
                boxes.pop().kill()
        while True:
            yield make
            yield use
            yield end

    def has_made(self, more):
        goal = self.made + more
        wait_for(lambda: self.made >= goal, PATIENCE_S)

    def say(self, what):
        figures(f'[{what}: {self.made} requests, {len(self.refused)} refused, {len(self.cut)} cut, longest wait '
                f'{self.longest_s * 1000:.0f} ms]')


class Reader(threading.Thread):
    """Follows a command by the numbers of its output, over whatever happens to the server."""

    def __init__(self, api, sandbox, lines):
        super().__init__(daemon=True)
        self.api, self.got, self.opened, self.problem = api, b'', 0, None
        started = api.ask('POST', f'/sandboxes/{sandbox}/execute',
                          {'shell': f'for i in $(seq {lines}); do echo $i; sleep 0.02; done', 'background': True})
        self.path = f"/api/v1/sandboxes/{sandbox}/executions/{started['execution']}/stream"
        self.wanted = b''.join(b'%d\n' % i for i in range(1, lines + 1))
        self.start()

    def run(self):
        last, ended = 0, False
        deadline = time.monotonic() + 300
        while not ended and time.monotonic() < deadline and not self.problem:
            link = http.client.HTTPConnection(self.api.server.host, self.api.server.port, timeout=PATIENCE_S)
            try:
                link.request('GET', self.path, headers=self.api.headers(
                    {'Accept': 'text/event-stream', **({'Last-Event-ID': str(last)} if last else {})}))
                answer = link.getresponse()
                self.opened += 1
                for event, number, data in events(answer):
                    if event == 'stdout':
                        if number != last + 1:
                            self.problem = f'{number} after {last}'
                        last, self.got = number, self.got + bytes_of(data)
                    ended = event == 'end'
            except ConnectionRefusedError as e:
                self.problem = repr(e)
            except CUT:
                pass
            finally:
                link.close()


class Case(unittest.TestCase):
    OPTIONS = ('--pool', '4', '--stop-sandboxes', '--upgrade-grace', '20')

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-upgrade-')
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.scratch.chmod(0o755)
        self.bin = self.scratch / 'bin'
        self.bin.mkdir()
        for name in PROGRAMS:
            if (BUILD / name).exists():
                shutil.copy(BUILD / name, self.bin / name)
        self.program = (self.bin / 'atoll').read_bytes()
        self.server = Server(self.bin, self.scratch, *self.OPTIONS, kept=True)
        self.addCleanup(self.server.stop)

    def start(self):
        self.server.start()
        self.env, self.api = self.server.env(), Api(self.server)

    def version(self, number):
        """The same program, but for what it says of itself."""
        own = re.search(rb'atoll/(\d+\.\d+\.\d+)\0', self.program)[1]
        other = own[:-1] + b'%d' % number
        return self.program.replace(own, other), other.decode()

    def upgrade(self, *options):
        return subprocess.run([BUILD / 'atoll', 'upgrade', '--data', self.server.data, *options],
                              capture_output=True, text=True, timeout=300, check=False)

    def done(self):
        run = self.upgrade('--json')
        self.assertEqual(run.returncode, 0, f'{run.stdout}{run.stderr}\n{self.server.tail()}')
        return json.loads(run.stdout)

    def serving(self):
        return child(self.server.process.pid, 'atoll')

    def assert_no_loss(self, load):
        self.assertEqual((load.refused, load.cut), ([], []), self.server.tail())

    def assert_no_findings(self):
        self.assertEqual(self.server.sanitizer_findings(), '')


class Upgrade(Case):
    def keep_some(self):
        boxes = [Sandbox(env=self.env) for _ in range(4)]
        for i, box in enumerate(boxes):
            box.run(f'echo kept {i} > file; nohup sleep 86400 >/dev/null 2>&1 & echo $! > pid')
        self.api.ask('POST', f'/sandboxes/{boxes[-1].id}/pause')
        return boxes

    def assert_kept(self, boxes):
        self.assertEqual(self.api.get(f'/sandboxes/{boxes[-1].id}').json()['state'], 'paused')
        self.api.ask('POST', f'/sandboxes/{boxes[-1].id}/resume')
        for i, box in enumerate(boxes):
            self.assertEqual(box.run('cat file; kill -0 $(cat pid) && echo alive').text(), f'kept {i}\nalive\n')

    def test_nothing_is_lost_and_nobody_is_refused_under_load(self):
        self.start()
        boxes = self.keep_some()
        reader = Reader(self.api, boxes[0].id, 600)
        keeper = self.server.process.pid
        with Load(self.server, self.env) as load:
            for number in (7, 8, 9):
                load.has_made(30)
                program, version = self.version(number)
                put(self.bin / 'atoll', program)
                before, readings = self.serving(), reader.opened
                report = self.done()
                self.assertEqual(report['after']['version'], version)
                self.assertEqual(report['sandboxes']['after'], report['sandboxes']['before'])
                self.assertGreaterEqual(report['sandboxes']['after'], len(boxes))
                self.assertNotEqual(self.serving(), before)
                self.assertEqual(self.api.get('/health').json()['version'], version)
                if reader.is_alive():
                    wait_for(lambda seen=readings: reader.opened > seen or not reader.is_alive(), PATIENCE_S)
                figures(f"[away {report['away_ms']} ms, sandboxes {report['sandboxes']}]")
            load.has_made(30)
        load.say('3 upgrades')
        self.assertIsNone(self.server.process.poll())
        self.assertEqual(self.server.process.pid, keeper)
        self.assert_no_loss(load)
        reader.join(PATIENCE_S)
        figures(f'[output: {reader.got.count(bytes(chr(10), "ascii"))} lines of 600 over {reader.opened} connections]')
        self.assertIsNone(reader.problem)
        self.assertEqual(reader.got, reader.wanted)
        self.assert_kept(boxes)
        self.assert_no_findings()
        self.assertEqual(self.server.stop(), 0)

    def test_handshakes_under_way_are_finished(self):
        authority = Authority(self.scratch)
        certificate, key = self.scratch / 'cert', self.scratch / 'key'
        authority.issue(certificate, key, 'localhost')
        self.server.options += ('--tls-cert', certificate, '--tls-key', key)
        self.start()
        env = {**self.env, 'E2B_API_URL': f'http://127.0.0.1:{self.server.port}'}
        with Load(self.server, env, ssl.create_default_context(cafile=str(authority.path))) as load:
            for _ in range(3):
                load.has_made(30)
                self.done()
            load.has_made(30)
            authority.issue(certificate, key, 'elsewhere.example')
            key.unlink()
            run = self.upgrade()
            self.assertEqual(run.returncode, 1)
            self.assertIn(str(key), run.stderr)
        load.say('3 upgrades over TLS')
        self.assert_no_loss(load)
        self.assert_no_findings()

    def test_what_would_not_start_is_refused_and_the_old_one_serves_on(self):
        self.start()
        box = Sandbox(env=self.env)
        strange = self.server.data / 'run' / 'strange'
        version, record = self.server.data / 'version', strange / 'state'

        def strange_record():
            strange.mkdir(0o711)
            record.write_text('atoll-slot 9\n')
            record.chmod(0o600)
        good = version.read_text()
        wrong = [
            (lambda: (self.bin / 'atoll').unlink(), 'No such file'),
            (lambda: put(self.bin / 'atoll', b'no program'), 'cannot be executed'),
            (lambda: put(self.bin / 'atoll', b'#!/bin/sh\necho atoll: not on this host >&2\nexit 1\n'),
             'not on this host'),
            (lambda: (self.bin / 'atoll').chmod(0o777), 'others than root'),
            (lambda: (self.bin / 'atoll-guest').rename(self.bin / 'away'), 'atoll-guest is not beside'),
            (lambda: put(self.bin / 'atoll-warden', b'#!/bin/sh\necho protocol 0\n'), 'of another build'),
            (lambda: version.write_text('999\n'), 'start the newer program'),
            (strange_record, 'does not know'),
        ]
        before = self.serving()
        with Load(self.server, self.env) as load:
            for spoil, why in wrong:
                with self.subTest(why):
                    spoil()
                    run = self.upgrade()
                    self.assertEqual(run.returncode, 1, run.stdout)
                    self.assertIn(why, run.stderr)
                    self.assertIn('the old server serves on', run.stderr)
                    self.assertEqual(self.serving(), before)
                    load.has_made(7)
                for name in PROGRAMS:
                    if (BUILD / name).exists():
                        put(self.bin / name, (BUILD / name).read_bytes())
                (self.bin / 'away').unlink(missing_ok=True)
                version.write_text(good)
                shutil.rmtree(strange, ignore_errors=True)
        load.say('8 refusals')
        self.assert_no_loss(load)
        self.assertEqual(box.run('echo here').text(), 'here\n')
        self.done()
        self.assertNotEqual(self.serving(), before)
        self.assertEqual(box.run('echo here').text(), 'here\n')
        self.assert_no_findings()

    def test_who_cannot_take_over_is_tried_until_it_can_while_clients_wait(self):
        self.start()
        box = Sandbox(env=self.env)
        warden = (self.bin / 'atoll-warden').read_bytes()
        says = subprocess.run([self.bin / 'atoll-warden', '--check', '--data', self.server.data],
                              capture_output=True, check=True).stdout
        put(self.bin / 'atoll-warden', b'#!/bin/sh\n[ "$1" = --check ] && echo ' + says.strip())
        with Load(self.server, self.env) as load:
            load.has_made(10)
            run = self.upgrade('--timeout', '3')
            self.assertNotEqual(run.returncode, 0)
            self.assertIn('the new server does not serve', run.stderr)
            put(self.bin / 'atoll-warden', warden)
            report = self.done()
            load.has_made(10)
        load.say('one that could not take over')
        self.assertGreater(report['away_ms'], 2000)
        self.assertEqual(report['sandboxes']['before'], report['sandboxes']['after'])
        self.assert_no_loss(load)
        self.assertEqual(box.run('echo here').text(), 'here\n')

    def test_without_a_keeper_there_is_nobody_to_ask(self):
        server = Server(self.bin, self.scratch, *self.OPTIONS)
        self.addCleanup(server.stop)
        server.start()
        run = self.upgrade()
        self.assertEqual(run.returncode, 1)
        self.assertIn('--no-restart', run.stderr)
        server.process.send_signal(signal.SIGUSR2)
        wait_for(lambda: 'upgrade.alone' in server.tail())
        self.assertTrue(server.healthy())


class Crash(Case):
    def test_a_killed_server_refuses_nobody(self):
        self.start()
        box = Sandbox(env=self.env)
        with Load(self.server, self.env) as load:
            for _ in range(3):
                load.has_made(30)
                before = self.serving()
                os.kill(before, signal.SIGKILL)
                wait_for(lambda old=before: self.serving() not in (old, None))
                load.has_made(30)
        load.say('3 kills')
        self.assertEqual(load.refused, [])
        self.assertEqual(box.run('echo here').text(), 'here\n')

    def test_a_port_that_was_picked_stays(self):
        self.server.port = 0
        self.server.spawn()
        env = wait_for(lambda: (self.server.data / 'env').exists() and self.server.env())
        self.server.port = int(env['E2B_API_URL'].rsplit(':', 1)[1])
        wait_for(self.server.healthy)
        os.kill(self.serving(), signal.SIGKILL)
        self.assertTrue(self.server.healthy(PATIENCE_S))


class Activation(Case):
    """A supervisor that holds the socket, such as systemd's: it is there while the server is not."""

    def test_clients_wait_while_another_starts_it_again(self):
        listening = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(listening.close)
        server = Server(self.bin, self.scratch, *self.OPTIONS)
        server.port = listening.getsockname()[1]
        server.pass_fds = (listening.fileno(),)
        server.before = ['sh', '-c', f'exec 3<&{listening.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"', 'sh']
        server.options += ('--listen', f'127.0.0.1:{free_port()}')  # not this one
        self.addCleanup(server.stop)
        server.start()
        with Load(server, server.env()) as load:
            load.has_made(30)
            server.stop()
            server.start()
            load.has_made(30)
        load.say('a restart from outside')
        self.assertEqual(load.refused, [])

    def test_what_is_no_listening_socket_is_refused(self):
        with socket.socket() as plain:
            server = Server(self.bin, self.scratch, *self.OPTIONS)
            server.pass_fds = (plain.fileno(),)
            server.before = ['sh', '-c', f'exec 3<&{plain.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"', 'sh']
            server.spawn()
            self.assertEqual(server.process.wait(60), 1)
            self.assertIn('no listening socket', server.tail())


if __name__ == '__main__':
    unittest.main()
