"""TLS on the port of `atoll serve`: what is served, to whom, and what happens while it is renewed."""
import base64
import concurrent.futures
import contextlib
import fcntl
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import time
import unittest

from harness import alone, names
from harness.certificates import Authority, openssl
from harness.environment import PYTHON_SDK, PYTHON_SDK_TESTS
from harness.sandbox import Sandbox
from harness.server import ROOT, Server, free_port, template_cache

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
DOMAIN = 'box.localhost'
NAMES = ('localhost', '127.0.0.1', DOMAIN, f'*.{DOMAIN}')
SIOCSIFADDR = 0x8916


class Home(unittest.TestCase):
    """A directory with an authority, a certificate and a key in it."""

    @classmethod
    def setUpClass(cls):
        cls.home = pathlib.Path(tempfile.mkdtemp(prefix='atoll-tls-'))
        cls.addClassCleanup(shutil.rmtree, cls.home, ignore_errors=True)
        cls.home.chmod(0o755)
        cls.authority = Authority(cls.home)
        cls.certificate, cls.key = cls.home / 'cert.pem', cls.home / 'key.pem'
        cls.authority.issue(cls.certificate, cls.key, *NAMES)
        cls.options = ('--tls-cert', cls.certificate, '--tls-key', cls.key)


class Served(Home):
    """One server with TLS for all tests of a class; the end of it is a test too."""

    HOST = '127.0.0.1'

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = Server(BUILD, cls.home, '--pool', '2', '--stop-sandboxes', *cls.options,
                            host=cls.HOST)
        cls.server.options += ('--domain', f'{DOMAIN}:{cls.server.port}')
        cls.server.start()
        cls.port = cls.server.port
        cls.context = ssl.create_default_context(cafile=str(cls.authority.path))

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        findings = cls.server.sanitizer_findings()
        if status or findings:
            raise AssertionError(f'the server ended with {status}\n{cls.server.tail()}\n{findings}')

    def tls(self, name='localhost', context=None, timeout=60):
        raw = socket.create_connection(('127.0.0.1', self.port), timeout)
        return (context or self.context).wrap_socket(raw, server_hostname=name)

    def https(self, method, path, name='localhost', body=None, context=None, **headers):
        link = http.client.HTTPConnection(name, self.port, timeout=30)
        link.sock = self.tls(name, context)
        with contextlib.closing(link):
            link.request(method, path, body, {k.replace('_', '-'): v for k, v in headers.items()})
            answer = link.getresponse()
            return answer.status, answer.read(), answer.headers

    def key_header(self):
        return {'X_API_Key': self.server.env()['E2B_API_KEY']}

    def plain_env(self):
        return {**self.server.env(), 'E2B_API_URL': f'http://127.0.0.1:{self.port}'}

    @contextlib.contextmanager
    def stream(self, sandbox, command):
        message = json.dumps({'process': {'cmd': '/bin/sh', 'args': ['-c', command]},
                              'stdin': False}).encode()
        name = f'49983-{sandbox.id}.{DOMAIN}'
        link = http.client.HTTPConnection(name, self.port, timeout=30)
        link.sock = self.tls(name)
        with contextlib.closing(link):
            link.request('POST', '/process.Process/Start',
                         struct.pack('>BI', 0, len(message)) + message,
                         {'Content-Type': 'application/connect+json',
                          'X-Access-Token': sandbox.made['envdAccessToken']})
            yield link.getresponse()

    def read_until(self, answer, text):
        """Reads frames until the command's output contains text."""
        seen = b''
        while text not in seen:
            head = answer.read(5)
            self.assertEqual(len(head), 5, f'the stream ended before {text!r}: {seen!r}')
            event = json.loads(answer.read(struct.unpack('>BI', head)[1])).get('event', {})
            seen += base64.b64decode(event.get('data', {}).get('stdout', ''))
        return seen


class OnePort(Served):
    def test_environment_names_the_domain(self):
        env = self.server.env()
        self.assertEqual(env['E2B_API_URL'], f'https://api.{DOMAIN}:{self.port}')
        self.assertEqual(env['E2B_SANDBOX_URL'], f'https://sandbox.{DOMAIN}:{self.port}')
        self.assertEqual(env['E2B_DOMAIN'], f'{DOMAIN}:{self.port}')

    def test_every_name_reaches_the_control_plane(self):
        for name in ('localhost', '127.0.0.1', DOMAIN, f'api.{DOMAIN}'):
            with self.subTest(name):
                status, body, _ = self.https('GET', '/v2/sandboxes', name, **self.key_header())
                self.assertEqual((status, json.loads(body)), (200, []))

    def test_a_sandbox_by_host_and_by_headers(self):
        with Sandbox(env=self.plain_env()) as sandbox:
            headers = {'X_Access_Token': sandbox.made['envdAccessToken']}
            status, _, _ = self.https('GET', '/health', f'49983-{sandbox.id}.{DOMAIN}')
            self.assertEqual(status, 204)
            status, body, _ = self.https('POST', '/files?path=/tmp/x', f'sandbox.{DOMAIN}', b'bytes',
                                         Content_Type='application/octet-stream',
                                         E2b_Sandbox_Id=sandbox.id, E2b_Sandbox_Port='49983', **headers)
            self.assertEqual(status, 200, body)
            status, body, _ = self.https('GET', '/files?path=/tmp/x', f'49983-{sandbox.id}.{DOMAIN}',
                                         **headers)
            self.assertEqual((status, body), (200, b'bytes'))

    def only_the_domain(self, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith('E2B_')}
        served = self.server.env()
        return {**env, 'E2B_API_KEY': served['E2B_API_KEY'], 'E2B_DOMAIN': served['E2B_DOMAIN'],
                **more}

    def test_published_sdk_with_nothing_but_the_domain(self):
        env = self.only_the_domain(NODE_EXTRA_CA_CERTS=str(self.authority.path))
        home = ROOT / 'tests/sdk'
        if not (home / 'node_modules/e2b').exists():
            self.skipTest('the published e2b package is not installed in tests/sdk')
        node = subprocess.run([ROOT / 'tools/node'], capture_output=True, text=True, check=True)
        run = subprocess.run([node.stdout.strip(), '--require', home / 'tls/localhost.cjs', '--test',
                              home / 'tls/tls.test.mjs'], cwd=home, env=env, capture_output=True,
                             text=True, timeout=200, check=False)
        self.assertEqual(run.returncode, 0, run.stdout[-6000:] + run.stderr[-2000:])

    def test_published_python_sdk_with_nothing_but_the_domain(self):
        if PYTHON_SDK.reason_missing():
            self.skipTest(PYTHON_SDK.reason_missing())
        if alone.INSIDE not in os.environ:
            self.skipTest('needs the name service of a network of its own: run by tests/run')
        env = self.only_the_domain(SSL_CERT_FILE=str(self.authority.path),
                                   PYTHONPATH=str(PYTHON_SDK_TESTS))
        with names.all_here() as resolving:
            run = subprocess.run([*resolving, PYTHON_SDK.program(), '-m', 'unittest', '-v',
                                  'test_domain'], cwd=PYTHON_SDK_TESTS / 'domain', env=env,
                                 capture_output=True, text=True, timeout=200, check=False)
        self.assertEqual(run.returncode, 0, run.stdout[-2000:] + run.stderr[-6000:])

    def test_plain_http_on_loopback(self):
        link = http.client.HTTPConnection('127.0.0.1', self.port, timeout=20)
        with contextlib.closing(link):
            link.request('GET', '/v2/sandboxes', headers={'X-API-Key': self.server.env()['E2B_API_KEY']})
            self.assertEqual(link.getresponse().status, 200)

    def test_only_modern_versions_and_http_1_1(self):
        with self.tls() as link:
            self.assertIn(link.version(), ('TLSv1.2', 'TLSv1.3'))
        offers = ssl.create_default_context(cafile=str(self.authority.path))
        offers.set_alpn_protocols(['h2', 'http/1.1'])
        with self.tls(context=offers) as link:
            self.assertEqual(link.selected_alpn_protocol(), 'http/1.1')
        offers.set_alpn_protocols(['h2'])
        with self.assertRaisesRegex(ssl.SSLError, '(?i)no.application.protocol'):
            self.tls(context=offers)

    def test_two_hundred_handshakes_at_once(self):
        def one(_):
            return self.https('GET', '/health')[0]
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(200) as pool:
            statuses = list(pool.map(one, range(200)))
        self.assertEqual(set(statuses), {200})
        self.assertLess(time.monotonic() - began, 60)

    def test_garbage_and_silence_hurt_nobody(self):
        stalled = [socket.create_connection(('127.0.0.1', self.port), 30) for _ in range(50)]
        for i, link in enumerate(stalled):
            with contextlib.suppress(OSError):
                link.sendall([b'', b'\x16', b'\x16\x03\x01\x02\x00\x01', b'\x16' + b'x' * 300,
                              b'\x80\x2e\x01\x00\x02'][i % 5])
        self.assertEqual(self.https('GET', '/health')[0], 200)
        began = time.monotonic()
        stalled[0].settimeout(40)
        self.assertEqual(stalled[0].recv(1), b'')  # the deadline is ten seconds
        self.assertLess(time.monotonic() - began, 30)
        for link in stalled:
            link.close()
        self.assertEqual(self.https('GET', '/health')[0], 200)

    def test_a_killed_sandbox_breaks_its_streams(self):
        with Sandbox(env=self.plain_env()) as sandbox, \
                self.stream(sandbox, 'echo here; sleep 1000') as answer:
            self.read_until(answer, b'here')
            status, _, _ = self.https('DELETE', f'/sandboxes/{sandbox.id}', **self.key_header())
            self.assertEqual(status, 204)
            with self.assertRaises((http.client.IncompleteRead, ssl.SSLError, ConnectionError)):
                answer.read()
            sandbox.kill = lambda: None


class Renewal(Served):
    def serial(self):
        with self.tls() as link:
            return link.getpeercert()['serialNumber']

    def reload(self, expect):
        before = self.server.log.read_text().count(expect)
        self.server.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 60
        while self.server.log.read_text().count(expect) == before:
            self.assertLess(time.monotonic(), deadline, self.server.tail())
            time.sleep(0.02)

    def test_renewed_while_a_stream_is_open(self):
        with Sandbox(env=self.plain_env()) as sandbox, \
                self.stream(sandbox, 'for i in $(seq 100); do echo line$i.; sleep 0.03; done') as answer:
            self.read_until(answer, b'line5.')
            before = self.serial()
            self.authority.issue(self.certificate, self.key, *NAMES)
            self.assertEqual(self.key.stat().st_mode & 0o777, 0o600)  # the server's user may not
            self.assertEqual(self.serial(), before)
            self.reload('tls.loaded')
            self.assertNotEqual(self.serial(), before)
            self.read_until(answer, b'line100.')

    def test_a_turned_symlink_is_followed(self):
        real = self.home / 'live-1', self.home / 'live-2'
        self.authority.issue(*real, *NAMES)
        for path, target in zip((self.certificate, self.key), real):
            path.unlink()
            path.symlink_to(target)
        before = self.serial()
        self.reload('tls.loaded')
        self.assertNotEqual(self.serial(), before)

    def test_bad_files_change_nothing(self):
        before = self.serial()
        kept = self.certificate.read_bytes()
        self.certificate.unlink()
        self.reload('tls.reload_failed')
        self.certificate.write_text('half a certi')
        self.reload('tls.reload_failed')
        self.assertEqual(self.serial(), before)
        self.certificate.write_bytes(kept)
        self.reload('tls.loaded')
        self.assertEqual(self.serial(), before)

    def test_the_reader_of_the_key_can_do_nothing_else(self):
        pid = self.server.process.pid
        children = pathlib.Path(f'/proc/{pid}/task/{pid}/children').read_text().split()
        readers = [child for child in children
                   if pathlib.Path(f'/proc/{child}/comm').read_text().strip() == 'atoll-tls-files']
        self.assertEqual(len(readers), 1)
        status = pathlib.Path(f'/proc/{readers[0]}/status').read_text()
        self.assertRegex(status, r'(?m)^CapEff:\t0000000000000004$')  # CAP_DAC_READ_SEARCH
        self.assertRegex(status, r'(?m)^NoNewPrivs:\t1$')
        self.assertEqual(set(os.listdir(f'/proc/{readers[0]}/fd')), {'0', '1', '2', '3'})


class FromElsewhere(Served):
    HOST = '0.0.0.0'

    def setUp(self):
        if alone.INSIDE not in os.environ:
            self.skipTest('needs an address of its own: run by tests/run')
        name = struct.pack('16sHH4s8x', b'lo:7', socket.AF_INET, 0, socket.inet_aton('10.98.76.54'))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            fcntl.ioctl(s, SIOCSIFADDR, name)

    def test_plain_http_is_told_to_use_https(self):
        with socket.create_connection(('10.98.76.54', self.port), 20) as link:
            link.sendall(b'GET / HTTP/1.1\r\nHost: x\r\nX-API-Key: e2b_00\r\n\r\n')
            text = b''.join(iter(lambda: link.recv(4096), b''))
        self.assertRegex(text, b'^HTTP/1.1 400 .*\r\n')
        self.assertIn(b'https://', text)
        raw = socket.create_connection(('10.98.76.54', self.port), 20)
        with self.context.wrap_socket(raw, server_hostname='localhost') as link:
            link.sendall(b'GET /health HTTP/1.1\r\nHost: x\r\n\r\n')
            self.assertRegex(link.recv(4096), b'^HTTP/1.1 200 ')


class Refused(Home):
    def refused(self, *options):
        with tempfile.TemporaryDirectory(dir=self.home) as scratch:
            run = subprocess.run([BUILD / 'atoll', 'serve', '--data', f'{scratch}/data', '--listen',
                                  f'127.0.0.1:{free_port()}', '--template-cache', template_cache(),
                                  *options], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                 timeout=60, check=False)
            self.assertFalse(pathlib.Path(scratch, 'data').exists(), 'begun before it was refused')
        self.assertNotEqual(run.returncode, 0)
        return run.stderr

    def test_one_without_the_other(self):
        self.assertIn('--tls-cert is given without --tls-key',
                      self.refused('--tls-cert', self.certificate))
        self.assertIn('--tls-key is given without --tls-cert', self.refused('--tls-key', self.key))

    def test_files_that_are_not_what_they_should_be(self):
        locked, foreign = self.home / 'locked.pem', self.home / 'foreign.pem'
        openssl('genpkey', '-algorithm', 'ed25519', '-aes128', '-pass', 'pass:x', '-out', locked)
        openssl('genpkey', '-algorithm', 'ed25519', '-out', foreign)
        empty = self.home / 'empty.pem'
        empty.touch()
        for certificate, key, why in (
                (self.home / 'nowhere', self.key, 'No such file'),
                (self.home, self.key, 'Is a directory'),
                (empty, self.key, 'no certificate in PEM form'),
                (self.key, self.key, 'no certificate in PEM form'),
                (self.certificate, empty, 'no private key in PEM form'),
                (self.certificate, foreign, 'does not belong to the certificate'),
                (self.certificate, locked, 'it is encrypted')):
            with self.subTest(why):
                said = self.refused('--tls-cert', certificate, '--tls-key', key)
                self.assertIn(why, said)
                self.assertTrue(said.startswith('atoll: TLS: '), said)


if __name__ == '__main__':
    unittest.main()
