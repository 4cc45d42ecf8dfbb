"""One secret, planted wherever a request can carry it, and looked for wherever the server writes or answers: its log at
the finest level, the database and all else below the data directory, every page of the API, metrics, and traces."""
import base64
import http.server
import os
import pathlib
import tempfile
import threading
import time
import unittest
import urllib.parse
import uuid

from harness.server import Server
from harness.v1 import Api, Follower

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes traces, and keeps their bytes."""

    heard = []

    def do_POST(self):
        Collector.heard.append(self.rfile.read(int(self.headers['Content-Length'])))
        self.send_response(200)
        self.send_header('Content-Length', '2')
        self.end_headers()
        self.wfile.write(b'{}')

    def log_message(self, *_):
        pass


class Planted(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.value = f'planted-{uuid.uuid4().hex}-+/value'
        packed = base64.b64encode(cls.value.encode()).decode().rstrip('=')
        cls.forms = [form.encode() for form in (
            cls.value, urllib.parse.quote(cls.value, safe=''), packed, cls.value[:30])]
        collector = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Collector)
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        cls.addClassCleanup(collector.server_close)
        cls.addClassCleanup(collector.shutdown)
        scratch = tempfile.TemporaryDirectory(prefix='atoll-secrets-')
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)
        cls.scratch.chmod(0o755)
        cls.server = Server(BUILD, cls.scratch, '--pool', '2', '--stop-sandboxes', '--log-level', 'debug',
                            '--trace-endpoint', f'http://127.0.0.1:{collector.server_port}')
        cls.addClassCleanup(cls.server.stop)
        cls.server.start()
        cls.api = Api(cls.server)

    def clean(self, what, text):
        for form in self.forms:
            self.assertNotIn(form, text, what)

    def asked(self, method, path, body=None, status=None, **more):
        """One call whose answer must not have it, whatever it is."""
        answer = self.api.call(method, path, body, **more)
        if status:
            self.assertEqual(answer.status, status, answer.body)
        self.clean(f'{method} {path}', answer.body)
        self.clean(f'{method} {path}', str(answer.headers).encode())
        return answer

    def test_it_is_found_nowhere(self):
        with Follower(self.api) as live:
            box = self.plant()
            self.mistakes()
            self.uses(box)
            self.api.call('DELETE', f'/sandboxes/{box}')
            live.wait(lambda seen: any(e['kind'] == 'sandbox.ended' and e['subject'] == box for e in seen))
            self.clean('events, live', repr(live.seen).encode())
        self.pages(box)
        self.places()

    def plant(self):
        self.asked('PUT', '/secrets/planted', {'value': self.value}, 201)
        self.asked('PUT', '/secrets/planted', {'value': self.value, 'metadata': {'for': 'all'}}, 200)
        secrets = {'TOKEN': 'planted'}
        return self.asked('POST', '/sandboxes', {'secrets': secrets, 'task_id': 'planted'}, 201).json()['id']

    def mistakes(self):
        """What is wrong is named, but not with the value."""
        for method, path, body in (
                ('PUT', '/secrets/planted', {'value': self.value, self.value[:20]: 1}),
                ('PUT', '/secrets/planted', {'value': {'x': self.value}}),
                ('PUT', '/secrets/planted', [self.value]),
                ('PUT', '/secrets/not%20a%20name', {'value': self.value}),
                ('PUT', '/secrets/too-long', {'value': self.value * 3000})):
            answer = self.api.call(method, path, body)
            self.assertEqual(answer.status, 400, (path, answer.body))
            self.assertNotIn(self.value.encode(), answer.body)

    def uses(self, box):
        secrets = {'TOKEN': 'planted'}
        run = f'/sandboxes/{box}/execute'
        self.asked('POST', run, {'shell': 'echo "$TOKEN"; echo "$TOKEN" >&2', 'secrets': secrets}, 200)
        by_letter = 'for i in $(seq 1 ${#TOKEN}); do printf %s "${TOKEN:i-1:1}"; sleep 0.005; done'
        self.asked('POST', run, {'shell': by_letter, 'secrets': secrets}, 200)
        self.asked('POST', run, {'shell': 'printf %s "$TOKEN" | base64 -w0', 'secrets': secrets}, 200)
        self.asked('POST', run, {'shell': f"echo '{self.value}'; false", 'secrets': secrets}, 200)
        self.asked('POST', run, {'argv': ['nothing-of-this-name', self.value], 'secrets': secrets})
        self.asked('POST', '/run', {'shell': 'env; exit 3', 'secrets': secrets}, 200)
        self.asked('POST', f'/sandboxes/{box}/pause', {}, 200)
        self.asked('POST', f'/sandboxes/{box}/resume', {}, 200)

    def pages(self, box):
        for path in ('/sandboxes?state=running,paused,ended', f'/sandboxes/{box}', f'/sandboxes/{box}/executions',
                     f'/sandboxes/{box}/executions/1', f'/sandboxes/{box}/executions/1/logs',
                     f'/sandboxes/{box}/executions/2/logs', f'/sandboxes/{box}/executions/4/logs', '/secrets', '/keys',
                     '/events?format=json&limit=1000', '/audit?limit=500', '/audit?format=ndjson', '/audit?format=csv',
                     '/usage', '/metrics', '/health', '/ready', '/quota', '/artifacts'):
            self.asked('GET', path, status=200)
        self.clean("E2B's logs", self.api.raw('GET', f'/v2/sandboxes/{box}/logs').body)
        self.clean("E2B's events", self.api.raw('GET', f'/events/sandboxes/{box}').body)

    def places(self):
        deadline = time.monotonic() + 60  # traces go in batches
        while not any(b'sandbox' in body for body in Collector.heard) and time.monotonic() < deadline:
            time.sleep(0.2)
        self.assertTrue(Collector.heard, 'no trace came')
        for body in Collector.heard:
            self.clean('a trace', body)
        self.clean('the log', self.server.log.read_bytes())
        seen = 0
        for path in (self.server.data / 'state').rglob('*'):
            if path.is_file():
                self.clean(path, path.read_bytes())
                seen += 1
        self.assertGreater(seen, 1)


if __name__ == '__main__':
    unittest.main()
