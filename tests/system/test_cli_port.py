"""`atoll sandbox port --forward`: a sandbox's port on this machine's loopback, whatever is spoken there."""
import concurrent.futures
import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request

from test_cli import ATOLL, Cli, atoll
from harness.server import free_port

WEB = 8123
RAW = 7000
CLOSED = 5555

# Speaks first, counts what it hears until the other side has shut its half, and then says how much it was.
COUNTER = f'''
import os, socket, threading
if os.fork():
    os._exit(0)
null = os.open('/dev/null', os.O_RDWR)
for fd in 0, 1, 2:
    os.dup2(null, fd)
def serve(link):
    link.sendall(b'220 me first\\n')
    n = 0
    while piece := link.recv(65536):
        n += len(piece)
    link.sendall(b'%d\\n' % n)
    link.close()
door = socket.create_server(('127.0.0.1', {RAW}))
while True:
    threading.Thread(target=serve, args=(door.accept()[0],)).start()
'''


class Forwarded(Cli):
    """One sandbox with a web server and the counter in it, for all tests of a class."""

    more = {}

    def setUp(self):
        self.box = self.sandbox()
        self.ok('sbx', 'exec', self.box, '--', 'sh', '-c',
                'mkdir /tmp/w; cd /tmp/w; echo hello >index.html; head -c 9000000 /dev/urandom >big;'
                f'python3 -m http.server {WEB} >/dev/null 2>&1 &', env=self.more)
        self.ok('sbx', 'exec', self.box, '--', 'python3', '-c', COUNTER, env=self.more)

    def sandbox(self, *words):
        made = self.ok('sandbox', 'create', 'base', *words, env=self.more).decode().strip()
        self.addCleanup(atoll, 'sandbox', 'kill', made, env=self.more)
        return made

    @contextlib.contextmanager
    def forward(self, port, *words, local=0):
        """The process and the local port. It is interrupted at the end if it still runs."""
        command = [ATOLL, 'sbx', 'port', self.box, str(port), '--forward', str(local), '--json', *words]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env={**os.environ, **self.more}) as run:
            try:
                document = json.loads(run.stdout.readline())
                self.assertEqual((document['sandboxID'], document['port']), (self.box, port))
                host, _, chosen = document['local'].rpartition(':')
                self.assertEqual(host, '127.0.0.1')
                yield run, int(chosen)
            finally:
                if run.poll() is None:
                    run.send_signal(signal.SIGINT)
                    self.assertEqual(run.wait(20), 130)

    def dial(self, local):
        """Waits for what is behind it to listen, and to speak."""
        for _ in range(600):
            with contextlib.suppress(ConnectionResetError):
                link = socket.create_connection(('127.0.0.1', local), 20)
                self.addCleanup(link.close)
                if link.recv(1, socket.MSG_PEEK):
                    return link
            time.sleep(0.1)
        return self.fail('nothing listens in the sandbox')

    def meets_a_reset(self, local):
        with self.assertRaises(ConnectionResetError), \
                socket.create_connection(('127.0.0.1', local), 20) as link:
            link.recv(1)

    def get(self, local, path):
        for attempt in range(600):
            try:
                return urllib.request.urlopen(f'http://127.0.0.1:{local}{path}', timeout=20).read()
            except OSError:
                self.assertLess(attempt, 599)
                time.sleep(0.1)
        return b''

    def count(self, local, size):
        with self.dial(local) as link:
            self.assertEqual(link.recv(100), b'220 me first\n')
            link.sendall(b'x' * size)
            link.shutdown(socket.SHUT_WR)
            return int(link.makefile().read())


class Forward(Forwarded):
    def test_a_web_server_for_many_at_once(self):
        digest = self.ok('sbx', 'exec', self.box, '--', 'sha256sum', '/tmp/w/big').decode().split()[0]
        with self.forward(WEB) as (_, local):
            self.assertEqual(self.get(local, '/'), b'hello\n')
            with concurrent.futures.ThreadPoolExecutor(24) as pool:
                pages = list(pool.map(lambda _: self.get(local, '/'), range(72)))
            self.assertEqual(pages, [b'hello\n'] * 72)
            self.assertEqual(hashlib.sha256(self.get(local, '/big')).hexdigest(), digest)

    def test_any_protocol_and_half_closes(self):
        with self.forward(RAW) as (_, local):
            for size in (0, 1, 5_000_000):
                self.assertEqual(self.count(local, size), size)
            with self.dial(local) as slow:  # who does not read holds nobody up
                self.assertEqual(self.count(local, 1000), 1000)
                slow.shutdown(socket.SHUT_WR)
                self.assertEqual(slow.makefile().read(), '220 me first\n0\n')

    def test_a_closed_port_is_told_once_and_may_open_later(self):
        with self.forward(CLOSED) as (run, local):
            for _ in range(3):
                self.meets_a_reset(local)
            self.ok('sbx', 'exec', self.box, '--', 'sh', '-c',
                    f'cd /tmp/w; python3 -m http.server {CLOSED} >/dev/null 2>&1 &')
            self.assertEqual(self.get(local, '/'), b'hello\n')
            run.send_signal(signal.SIGTERM)
            self.assertEqual(run.wait(20), 143)
            said = run.stderr.read().decode()
            self.assertEqual(said.count('port is not open'), 1, said)

    def test_the_end_of_the_sandbox_ends_it(self):
        with self.forward(RAW) as (run, local):
            with self.dial(local) as link:
                self.assertEqual(link.recv(100), b'220 me first\n')
                self.ok('sbx', 'kill', self.box)
                with contextlib.suppress(ConnectionResetError):
                    self.assertEqual(link.recv(1), b'')
            self.meets_a_reset(local)
            self.assertEqual(run.wait(20), 3)
            self.assertEqual(json.loads(run.stdout.readline())['code'], 'not_found')

    def test_what_cannot_be(self):
        for local in ('x', '-1', '65536'):
            self.fails(2, 'sbx', 'port', self.box, RAW, '--forward', local)
        with socket.create_server(('127.0.0.1', 0)) as taken:
            run = self.fails(1, 'sbx', 'port', self.box, RAW, '--forward', taken.getsockname()[1])
            self.assertIn(b'Address already in use', run.stderr)
        self.fails(3, 'sbx', 'port', 'i' * 21, RAW, '--forward', free_port())
        self.ok('sbx', 'pause', self.box)
        run = self.fails(5, 'sbx', 'port', self.box, RAW, '--forward', 0)
        self.assertIn(b'atoll sandbox resume', run.stderr)
        self.ok('sbx', 'resume', self.box)


class Tunnel(Forwarded):
    """The edge's side of it, by hand."""

    def upgrade(self, port, *headers, box=None):
        host, _, local = os.environ['E2B_API_URL'].rpartition('/')[2].rpartition(':')
        link = socket.create_connection((host, int(local)), 20)
        self.addCleanup(link.close)
        lines = ['GET / HTTP/1.1', 'Host: localhost', 'Connection: Upgrade', 'Upgrade: atoll-tcp',
                 f'E2b-Sandbox-Id: {box or self.box}', f'E2b-Sandbox-Port: {port}', *headers, '', '']
        link.sendall('\r\n'.join(lines).encode())
        return link, link.recv(4096)

    def token(self):
        request = urllib.request.Request(f'{os.environ["E2B_API_URL"]}/sandboxes/{self.box}',
                                         headers={'X-API-Key': os.environ['E2B_API_KEY']})
        return json.load(urllib.request.urlopen(request, timeout=20))['envdAccessToken']

    def test_needs_the_sandbox_token_and_another_port_than_the_guest(self):
        token = self.token()
        for headers in ([], ['X-Access-Token: x'], [f'X-Access-Token: {token}x']):
            self.assertIn(b' 403 ', self.upgrade(RAW, *headers)[1], headers)
        self.assertIn(b' 403 ', self.upgrade(49983, f'X-Access-Token: {token}')[1])
        self.assertIn(b' 502 ', self.upgrade(CLOSED, f'X-Access-Token: {token}')[1])
        self.assertIn(b' 502 ', self.upgrade(RAW, f'X-Access-Token: {token}', box='i' * 21)[1])
        self.assertIn(b' 400 ', self.upgrade(RAW, f'X-Access-Token: {token}', 'Content-Length: 3')[1])

    def test_the_bytes_follow_the_answer(self):
        with self.forward(RAW) as (_, local):
            self.dial(local)  # it listens by now
        link, said = self.upgrade(RAW, f'X-Access-Token: {self.token()}')
        self.assertTrue(said.startswith(b'HTTP/1.1 101 '), said)
        self.assertIn(b'\r\nUpgrade: atoll-tcp\r\n', said)
        while b'220 me first\n' not in said:
            piece = link.recv(4096)
            self.assertTrue(piece)
            said += piece
        link.sendall(b'12345')
        link.shutdown(socket.SHUT_WR)
        self.assertEqual(link.makefile().read(), '5\n')
