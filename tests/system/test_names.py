"""`getHost` from code: programs of this machine reach a sandbox's port by PORT-ID.localhost, with what `make run`
installs and nothing else. Each language has its own way to look up a name, and its own first address."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

from harness.faults import until
from harness.sandbox import Sandbox
from harness.server import ROOT, Server, free_port

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
NODE = 'fetch(process.argv[1]).then(r => r.text()).then(console.log, e => console.log(e.cause || e))'
PYTHON = 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=30).read().decode())'


def blocks(language, indent='(?: {3})?'):
    """Of the page: how each is indented, and its text without that."""
    found = re.findall(rf'^({indent})```{language}\n(.*?)^\1```', (ROOT / 'docs/names.md').read_text(),
                       re.MULTILINE | re.DOTALL)
    return [(before, re.sub(rf'^{before}', '', text, flags=re.MULTILINE)) for before, text in found]


def tools_node():
    """Where the node of the tests is."""
    found = subprocess.run([ROOT / 'tools/node'], capture_output=True, text=True, check=True).stdout.strip()
    return str(pathlib.Path(shutil.which(found) or found).parent)


def has_ipv6():
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as s:
        s.bind(('::1', 0))
        return True
    return False


def serving(box):
    box.write('/home/user/www/index.html', b'hello from inside')
    box.run('cd /home/user/www; setsid python3 -m http.server 8000 >/dev/null 2>&1 </dev/null & '
            'for i in $(seq 600); do curl -s -o /dev/null localhost:8000 && break; sleep 0.1; done')


class Names(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.box = Sandbox()
        cls.addClassCleanup(cls.box.kill)
        serving(cls.box)
        cls.url = f"http://8000-{cls.box.id}.{os.environ['E2B_DOMAIN']}/index.html"

    def said(self, *command):
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return (run.stdout + run.stderr).strip()

    def test_the_domain_is_a_name_and_a_port(self):
        self.assertRegex(self.url, r'^http://8000-i[a-z0-9]+\.localhost:\d+/')

    def test_node_reaches_a_port_by_its_name(self):
        self.assertEqual(self.said(tools_node() + '/node', '-e', NODE, self.url), 'hello from inside')

    def test_python_reaches_a_port_by_its_name(self):
        self.assertEqual(self.said(sys.executable, '-c', PYTHON, self.url), 'hello from inside')

    def test_curl_reaches_a_port_by_its_name_on_either_address(self):
        for family in ('-4', '-6') if has_ipv6() else ('-4',):
            self.assertEqual(self.said('curl', family, '-sS', '-m', '30', self.url), 'hello from inside', family)

    @unittest.skipUnless(has_ipv6(), 'this machine has no IPv6, not even on loopback')
    def test_the_doctor_finds_the_names(self):
        run = subprocess.run([BUILD / 'atoll', 'doctor', '--json'], capture_output=True, text=True, timeout=120,
                             check=False)
        row = next(one for one in json.loads(run.stdout)['checks'] if one['id'] == 'names')
        self.assertEqual(row['status'], 'ok', row)


    def test_the_commands_of_the_page(self):
        script = 'set -eu\n' + ''.join(block for _, block in blocks('sh', indent=''))
        env = {**os.environ, 'ID': self.box.id, 'PATH': f"{tools_node()}:{os.environ['PATH']}"}
        self.box.write('/home/user/www/index.html', b'hello from inside')
        run = subprocess.run(['bash', '-c', script], env=env, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(run.stdout.split('\n')[:2], ['hello from inside'] * 2, run.stderr)


class FromElsewhere(unittest.TestCase):
    """The recipe of the page for other machines, as far as one machine can try it."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-names-', ignore_cleanup_errors=True)
        self.addCleanup(scratch.cleanup)
        self.top = pathlib.Path(scratch.name)
        self.top.chmod(0o755)

    def ask(self, port, name):
        """The first address of an answer to a question for it."""
        question = b'\x12\x34\1\0\0\1\0\0\0\0\0\0' + b''.join(
            bytes([len(part)]) + part.encode() for part in name.split('.')) + b'\0\0\1\0\1'
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(1)
            s.sendto(question, ('127.0.0.1', port))
            answer = s.recv(512)
        return socket.inet_ntoa(answer[-4:]) if answer[7] else None

    @unittest.skipUnless(shutil.which('dnsmasq'), 'dnsmasq is not installed')
    def test_one_line_of_dnsmasq_answers_every_name(self):
        [(_, line)] = blocks('ini')
        (self.top / 'conf').write_text(line)
        port = free_port()
        daemon = subprocess.Popen(['dnsmasq', '--keep-in-foreground', f'--conf-file={self.top}/conf', f'--port={port}',
                                   '--listen-address=127.0.0.1', '--bind-interfaces', '--no-resolv', '--user=root',
                                   f'--pid-file={self.top}/pid'], stderr=subprocess.DEVNULL)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.terminate)
        until(lambda: self.answers(port), 60)
        for name in ('box.example.com', 'api.box.example.com', '8000-iabc.box.example.com'):
            self.assertEqual(self.ask(port, name), '192.0.2.10')

    def answers(self, port):
        try:
            return self.ask(port, 'box.example.com')
        except OSError:
            return None

    @unittest.skipUnless(os.geteuid() == 0, 'needs root')
    def test_the_certificate_serves_every_name(self):
        domain = 'box.localhost'  # of which all names lead here
        [(_, commands)] = [one for one in blocks('sh') if 'openssl' in one[1]]
        subprocess.run(['bash', '-ec', commands], cwd=self.top, env={**os.environ, 'DOMAIN': domain}, check=True,
                       capture_output=True)
        [(_, command)] = blocks('text')
        self.assertIn('--tls-cert box.pem --tls-key box.key --domain', command)
        server = Server(BUILD, self.top, '--pool', '1', '--stop-sandboxes', '--tls-cert', self.top / 'box.pem', '--tls-key',
                        self.top / 'box.key')
        server.options += ('--domain', f'{domain}:{server.port}')
        self.addCleanup(server.stop)
        server.start()
        plain = {**server.env(), 'E2B_API_URL': f'http://127.0.0.1:{server.port}'}  # of this machine
        with Sandbox(env=plain) as box:
            serving(box)
            url = f"https://8000-{box.id}.{server.env()['E2B_DOMAIN']}/index.html"
            for command, variable in (([tools_node() + '/node', '-e', NODE, url], 'NODE_EXTRA_CA_CERTS'),
                                      ([sys.executable, '-c', PYTHON, url], 'SSL_CERT_FILE')):
                run = subprocess.run(command, env={**os.environ, variable: str(self.top / 'ca.pem')}, text=True,
                                     capture_output=True, timeout=120, check=False)
                self.assertEqual(run.stdout.strip(), 'hello from inside', run.stderr)


@unittest.skipUnless(os.geteuid() == 0, 'needs root')
@unittest.skipUnless(has_ipv6(), 'this machine has no IPv6, not even on loopback')
class BothAddresses(unittest.TestCase):
    """The second socket is the keeper's as the first one is."""

    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix='atoll-names-'))
        self.scratch.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.scratch, ignore_errors=True)

    def health(self, server, host):
        link = http.client.HTTPConnection(host, server.port, timeout=60)
        with contextlib.closing(link):
            link.request('GET', '/health')
            return link.getresponse().status

    def test_clients_of_both_wait_while_a_server_takes_over(self):
        with Server(BUILD, self.scratch, '--pool', '0', kept=True) as server:
            self.assertEqual((self.health(server, '127.0.0.1'), self.health(server, '::1')), (200, 200))
            for _ in range(2):
                subprocess.run([BUILD / 'atoll', 'upgrade', '--data', server.data], check=True, timeout=120,
                               capture_output=True)
                self.assertEqual((self.health(server, '127.0.0.1'), self.health(server, '::1')), (200, 200))
            inner = subprocess.run(['pgrep', '-P', str(server.process.pid), '-x', 'atoll'], capture_output=True,
                                   text=True, check=True).stdout.split()
            os.kill(int(inner[0]), 9)
            self.assertEqual((self.health(server, '::1'), self.health(server, '127.0.0.1')), (200, 200))

    def test_another_program_on_the_second_address_is_told_of(self):
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as other:
            other.bind(('::1', 0))
            other.listen()
            server = Server(BUILD, self.scratch, '--pool', '0')
            server.port = other.getsockname()[1]
            with server:
                self.assertEqual(self.health(server, '127.0.0.1'), 200)
                self.assertIn('listen.half', server.log.read_text())

    def test_other_addresses_have_no_second_one(self):
        server = Server(BUILD, self.scratch, '--pool', '0', host='127.0.0.2')
        with server, self.assertRaises(ConnectionRefusedError):
            self.health(server, '::1')


if __name__ == '__main__':
    unittest.main()
