"""docs/operations.md: its configuration files start the programs that they are for, its commands do what they say,
and the systemd unit is one that systemd takes."""
import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import unittest

from harness import certificates
from harness.server import Server, free_port
from harness.v1 import Api

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
PAGE = (ROOT / 'docs/operations.md').read_text()


def blocks(language):
    return re.findall(rf'^```{language}\n(.*?)^```', PAGE, re.MULTILINE | re.DOTALL)


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-operations-', ignore_cleanup_errors=True)
        self.addCleanup(scratch.cleanup)
        self.top = pathlib.Path(scratch.name)
        self.top.chmod(0o755)

    def serve(self, *options):
        server = Server(BUILD, self.top, '--pool', '1', '--stop-sandboxes', *options)
        self.addCleanup(server.stop)
        return server.start()


class Pages(Case):
    def shell(self, server, commands, **more):
        before = 'set -eu -o pipefail\natoll() { "$ATOLL_TEST_BIN" "$@"; }\n'
        run = subprocess.run(['bash', '-c', before + commands], capture_output=True, text=True, check=False, timeout=120,
                             env={**os.environ, **server.env(), 'DATA': str(server.data), 'BACKUP': str(self.top / 'backup'),
                                  'url': f'http://{server.host}:{server.port}/api/v1', **more})
        self.assertEqual(run.returncode, 0, f'{commands}\n{run.stdout[-2000:]}\n{run.stderr[-2000:]}')
        return run.stdout

    def test_the_commands(self):
        if not shutil.which('jq'):
            self.skipTest('jq is needed to run the page')
        watch, backup, restore, _ = blocks('sh')
        server = self.serve()
        self.assertRegex(self.shell(server, watch), r'local ready closed')
        api = Api(server)
        api.ask('PUT', '/secrets/kept', {'value': 'as it was'})
        made = api.ask('POST', '/sandboxes', {'secrets': {'S': 'kept'}})
        volume = json.loads(api.raw('POST', '/volumes', '{"name": "v"}', {'Content-Type': 'application/json'}).body)
        before = server.env()
        (self.top / 'backup').mkdir()
        self.shell(server, backup)
        self.assertEqual(server.stop(), 0)
        self.shell(server, restore)
        server.data = pathlib.Path(f'{server.data}.new')
        server.start()
        api = Api(server, key=before['E2B_API_KEY'])
        self.assertEqual([s['name'] for s in api.get('/secrets').json()['items']], ['kept'])
        self.assertEqual(api.ask('GET', f"/sandboxes/{made['id']}")['state'], 'ended')
        self.assertIn(volume['volumeID'], api.raw('GET', '/volumes').body.decode())
        again = api.ask('POST', '/sandboxes', {'secrets': {'S': 'kept'}})
        self.assertEqual(api.ask('POST', f"/sandboxes/{again['id']}/execute", {'shell': 'echo $S'})['exit_code'], 0)

    def test_the_upgrade(self):
        if not shutil.which('jq'):
            self.skipTest('jq is needed to run the page')
        programs = self.top / 'bin'
        programs.mkdir()
        for path in BUILD.glob('atoll*'):
            if path.is_file():
                shutil.copy(path, programs)
        server = Server(programs, self.top, '--pool', '1', '--stop-sandboxes', kept=True)
        self.addCleanup(server.stop)
        server.start()
        made = Api(server).ask('POST', '/sandboxes', {})
        self.assertEqual(self.shell(server, blocks('sh')[3]), 'true\n')
        self.assertIn('event=upgrade.done', server.log.read_text())
        self.assertEqual(Api(server).ask('GET', f"/sandboxes/{made['id']}")['state'], 'running')

    def test_the_configuration_is_one(self):
        config = self.top / 'config.toml'
        token = self.top / 'admin-token'
        token.write_text('0123456789abcdef0123456789abcdef\n')
        text = blocks('toml')[0].replace('/var/lib/atoll', str(self.top / 'data'))
        config.write_text(text.replace('/etc/atoll/admin-token', str(token)))
        server = self.serve('--config', config)
        self.assertEqual(Api(server).get('/ready').status, 200)
        self.assertTrue(json.loads(server.log.read_text().splitlines()[0])['event'])

    @unittest.skipUnless(shutil.which('systemd-analyze'), 'systemd-analyze is not installed')
    def test_the_unit(self):
        unit = self.top / 'atoll.service'
        text = (ROOT / 'docs/atoll.service').read_text()
        unit.write_text(text.replace('/usr/local/bin/atoll', str(BUILD / 'atoll')))
        run = subprocess.run(['systemd-analyze', 'verify', '--man=no', unit], capture_output=True, text=True, check=False)
        self.assertEqual(re.findall(r'.*atoll\.service.*', run.stderr), [], run.stderr)


class Proxy(Case):
    """nginx as on the page, before a server: streams come as they are made, names lead to ports of sandboxes."""

    def setUp(self):
        super().setUp()
        if not shutil.which('nginx'):
            self.skipTest('nginx is not installed: apt-get install nginx-light')
        self.server = self.serve('--domain', 'box.example.com')
        self.api = Api(self.server)
        self.port = free_port()
        self.start_nginx()

    def start_nginx(self):
        cert, key = self.top / 'cert.pem', self.top / 'key.pem'
        certificates.Authority(self.top).issue(cert, key, 'box.example.com', '*.box.example.com')
        site = blocks('nginx')[0].replace('127.0.0.1:3000', f'127.0.0.1:{self.server.port}')
        site = site.replace('listen 443 ssl', f'listen 127.0.0.1:{self.port} ssl')
        site = site.replace('/etc/atoll/tls/cert.pem', str(cert)).replace('/etc/atoll/tls/key.pem', str(key))
        paths = ''.join(f'{name}_temp_path {self.top}/{name};\n' for name in
                        ('client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'))
        config = self.top / 'nginx.conf'
        config.write_text(f'pid {self.top}/nginx.pid;\nerror_log {self.top}/nginx.log;\ndaemon off;\nuser root;\n'
                          f'events {{}}\nhttp {{\naccess_log off;\n{paths}{site}}}\n')
        process = subprocess.Popen(['nginx', '-c', config, '-e', self.top / 'nginx.log'], stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                self.open('box.example.com').close()
                return
            except OSError:
                time.sleep(0.05)
        self.fail((self.top / 'nginx.log').read_text())

    def open(self, name):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        link = socket.create_connection(('127.0.0.1', self.port), 50)
        return context.wrap_socket(link, server_hostname=name)

    def ask(self, name, head, body=b''):
        """The whole of an answer that ends with its connection."""
        with self.open(name) as link:
            link.sendall(f'{head}\r\nHost: {name}\r\nConnection: close\r\nX-API-Key: {self.api.key}\r\n'
                         f'Content-Length: {len(body)}\r\n\r\n'.encode() + body)
            answer = b''
            while piece := link.recv(65536):
                answer += piece
        return answer

    def test_streams_are_not_held_back(self):
        made = self.api.ask('POST', '/sandboxes', {})
        with self.open('box.example.com') as link:
            body = json.dumps({'shell': 'echo first; sleep 60; echo second', 'stream': True}).encode()
            link.sendall(f"POST /api/v1/sandboxes/{made['id']}/execute HTTP/1.1\r\nHost: box.example.com\r\n"
                         f'X-API-Key: {self.api.key}\r\nContent-Type: application/json\r\n'
                         f'Content-Length: {len(body)}\r\n\r\n'.encode() + body)
            seen, began = b'', time.monotonic()
            while b'first' not in seen and b'Zmlyc3Q' not in seen:
                seen += link.recv(65536)
            self.assertLess(time.monotonic() - began, 40, seen)

    def test_events_come_at_once(self):
        with self.open('box.example.com') as link:
            link.sendall(f'GET /api/v1/events HTTP/1.1\r\nHost: box.example.com\r\nX-API-Key: {self.api.key}\r\n'
                         'Accept: text/event-stream\r\n\r\n'.encode())
            seen = b''
            while b'\r\n\r\n' not in seen:
                seen += link.recv(65536)
            made, began = self.api.ask('POST', '/sandboxes', {}), time.monotonic()
            while made['id'].encode() not in seen:
                seen += link.recv(65536)
            self.assertLess(time.monotonic() - began, 12)

    def test_a_name_leads_to_a_port(self):
        made = self.api.ask('POST', '/sandboxes', {})
        self.api.ask('POST', f"/sandboxes/{made['id']}/execute",
                     {'shell': 'cd /tmp; echo served > page; python3 -m http.server 8000 >/dev/null 2>&1 &',
                      'timeout_ms': 90000, 'background': True})
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            answer = self.ask(f"8000-{made['id']}.box.example.com", 'GET /page HTTP/1.1')
            if b'served' in answer:
                return
            time.sleep(0.3)
        self.fail(answer)

    def test_a_large_upload_is_passed_on_as_it_comes(self):
        made = self.api.ask('POST', '/sandboxes', {})
        answer = self.ask('box.example.com', f"PUT /api/v1/sandboxes/{made['id']}/files?path=/tmp/big HTTP/1.1",
                          bytes(8 << 20))
        self.assertIn(b' 20', answer.split(b'\r\n')[0])
        said = self.api.ask('POST', f"/sandboxes/{made['id']}/execute", {'shell': 'stat -c %s /tmp/big'})
        self.assertEqual(said['stdout'], f'{8 << 20}\n')


if __name__ == '__main__':
    unittest.main()
