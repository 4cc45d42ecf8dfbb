"""Traces of a real server at a collector of ours: what arrives, when it does not listen, and that
nobody waits for it."""
import base64
import http.server
import json
import os
import pathlib
import re
import subprocess
import tempfile
import threading
import time
import unittest

from harness.environment import PYTHON_SDK
from harness.processes import lose_host
from harness.sandbox import Sandbox
from harness.server import Server
from harness.together import arrange
from harness.v1 import Api

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
TRACE, PARENT = '0af7651916cd43dd8448eb211c80319c', 'b7ad6b7169203331'
SECRET = 'sk-lf-0123456789-not-to-be-seen'


class Collector:
    """Answers as it is told: a status for each request, the last one for ever; None hangs."""

    def __init__(self, *statuses, retry_after=None):
        self.statuses, self.retry_after = list(statuses) or [200], retry_after
        self.posts, self.times, self.bodies = [], [], []
        self.released = threading.Event()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def do_POST(self):
                collector.take(self)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.server.daemon_threads = True
        self.url = f'http://127.0.0.1:{self.server.server_port}'
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, request):
        body = request.rfile.read(int(request.headers['Content-Length']))
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        self.times.append(time.monotonic())
        self.posts.append((request.path, dict(request.headers), status))
        if status is None:
            self.released.wait(60)
            return
        if status == 200:
            self.bodies.append(json.loads(body))
        request.send_response(status)
        if self.retry_after and status != 200:
            request.send_header('Retry-After', self.retry_after)
        request.send_header('Content-Length', '2')
        request.end_headers()
        request.wfile.write(b'{}')

    def close(self):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()

    def spans(self):
        return [span for body in self.bodies for resource in body['resourceSpans']
                for scope in resource['scopeSpans'] for span in scope['spans']]

    def of(self, sandbox_id):
        return [s for s in self.spans() if attributes(s).get('sandbox.id') == sandbox_id]

    def wait(self, test, seconds=60):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if test():
                return
            time.sleep(0.05)
        raise AssertionError(f'it did not come: {[s["name"] for s in self.spans()]} {self.posts}')


def attributes(span):
    return {a['key']: next(iter(a['value'].values())) for a in span['attributes']}


READER = '''
import base64, json, sys
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

def ids(value):  # OTLP's JSON has these in hex, where protobuf's has base64
    if isinstance(value, dict):
        return {k: base64.b64encode(bytes.fromhex(v)).decode()
                if k in ("traceId", "spanId", "parentSpanId") else ids(v) for k, v in value.items()}
    return [ids(v) for v in value] if isinstance(value, list) else value

n = 0
for body in json.load(sys.stdin):
    request = json_format.ParseDict(ids(body), ExportTraceServiceRequest())  # refuses what it does not know
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                assert len(span.trace_id) == 16 and len(span.span_id) == 8
                assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
                n += 1
print(n)
'''


class Case(unittest.TestCase):
    def serve(self, *options, collector=None, **environment):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-traces-')
        self.addCleanup(scratch.cleanup)
        pathlib.Path(scratch.name).chmod(0o755)
        server = Server(BUILD, scratch.name, '--pool', '2', '--stop-sandboxes', '--metrics-open', *options)
        server.environment.update({k: str(v) for k, v in environment.items()})
        self.addCleanup(server.stop)
        if collector:
            self.addCleanup(collector.close)
        return server.start()

    def tearDown(self):
        for server in [c for c in self.__dict__.values() if isinstance(c, Server)]:
            self.assertEqual(server.sanitizer_findings(), '')


class Lives(Case):
    def test_a_life_is_one_trace(self):
        collector = Collector()
        self.server = self.serve('--trace-endpoint', collector.url, '--trace-header', 'X-Test: yes',
                                 '--price-vcpu-hour', '1', collector=collector)
        api = Api(self.server)
        made = api.ask('POST', '/sandboxes', {'template': 'base', 'agent_id': 'ag', 'task_id': 'job'},
                       traceparent=f'00-{TRACE}-{PARENT}-01')
        box = made['id']
        ran = api.call('POST', f'/sandboxes/{box}/execute', {'shell': 'exit 3'})
        api.ask('POST', f'/sandboxes/{box}/pause', {})
        api.ask('POST', f'/sandboxes/{box}/resume', {})
        api.ask('DELETE', f'/sandboxes/{box}')
        collector.wait(lambda: {'sandbox', 'destroy'} <= {s['name'] for s in collector.of(box)})
        spans = collector.of(box)
        by_name = {s['name']: s for s in spans}
        wanted = {'sandbox', 'create', 'quota', 'row', 'runtime', 'ready', 'pause', 'resume', 'destroy'}
        self.assertEqual(wanted - set(by_name), set())
        self.assertEqual({s['traceId'] for s in spans}, {TRACE})
        root = by_name['sandbox']
        self.assertEqual(root['parentSpanId'], PARENT)
        for name in ('create', 'pause', 'resume', 'destroy'):
            self.assertEqual(by_name[name]['parentSpanId'], root['spanId'], name)
        for name in ('quota', 'row', 'runtime', 'ready'):
            self.assertEqual(by_name[name]['parentSpanId'], by_name['create']['spanId'], name)
        self.assertEqual(len({s['spanId'] for s in spans}), len(spans))
        self.check_times(by_name)
        said = attributes(root)
        self.assertEqual((said['user.id'], said['session.id'], said['atoll.ended_by']), ('ag', 'job', 'user'))
        self.assertGreater(float(said['atoll.cost']), 0)
        self.assertEqual(root['status'], {'code': 1})
        path, headers, _ = collector.posts[0]
        self.assertEqual((path, headers['X-Test'], headers['Content-Type']),
                         ('/v1/traces', 'yes', 'application/json'))
        self.assertEqual(ran.status, 200)
        said = attributes(by_name['execute'])
        self.assertEqual((said['process.exit.code'], said['atoll.ended_by']), ('3', 'process'))
        self.assertIn('exit 3', said['process.command_line'])
        self.assertEqual(by_name['execute']['status'], {'code': 1})  # its own failure, not ours
        self.read_by_opentelemetry(collector)

    def check_times(self, by_name):
        for span in by_name.values():
            self.assertRegex(span['startTimeUnixNano'], r'^[0-9]{19}$')
            self.assertLessEqual(int(span['startTimeUnixNano']), int(span['endTimeUnixNano']))
        root, create = by_name['sandbox'], by_name['create']
        self.assertLess(abs(int(root['startTimeUnixNano']) - int(create['startTimeUnixNano'])), 5e9)
        for name in ('quota', 'row', 'runtime', 'ready'):
            self.assertGreaterEqual(int(by_name[name]['startTimeUnixNano']) + 1000,
                                    int(create['startTimeUnixNano']))
            self.assertLessEqual(int(by_name[name]['endTimeUnixNano']), int(create['endTimeUnixNano']) + 1000)

    def read_by_opentelemetry(self, collector):
        if PYTHON_SDK.reason_missing():
            self.skipTest(f'not read by opentelemetry-proto: {PYTHON_SDK.reason_missing()}')
        read = subprocess.run([PYTHON_SDK.program(), '-c', READER], input=json.dumps(collector.bodies), text=True,
                              capture_output=True, check=False)
        self.assertEqual(read.returncode, 0, read.stderr)
        self.assertEqual(int(read.stdout), len(collector.spans()))

    def test_what_is_left_is_sent_when_the_server_stops(self):
        collector = Collector()
        self.server = self.serve('--trace-endpoint', collector.url + '/v1/traces', collector=collector)
        with Sandbox(env=self.server.env()) as box:
            pass
        began = time.monotonic()
        self.assertEqual(self.server.stop(), 0)
        self.assertLess(time.monotonic() - began, 30)
        names = {s['name'] for s in collector.of(box.id)}
        self.assertEqual({'sandbox', 'create'} - names, set())
        self.assertEqual({p for p, _, _ in collector.posts}, {'/v1/traces'})

    def test_infrastructure_failures_are_errors(self):
        collector = Collector()
        self.server = self.serve('--trace-endpoint', collector.url, collector=collector)
        box = Sandbox(env=self.server.env())
        lose_host(self.server)
        time.sleep(1)
        self.server.start()
        collector.wait(lambda: 'sandbox' in {s['name'] for s in collector.of(box.id)})
        root = [s for s in collector.of(box.id) if s['name'] == 'sandbox'][0]
        self.assertEqual(root['status']['code'], 2)
        self.assertIn('gone', root['status']['message'])
        self.assertNotIn('parentSpanId', root)
        self.assertRegex(root['traceId'], '^[0-9a-f]{32}$')


class Collectors(Case):
    def test_one_that_hangs_holds_nobody_up(self):
        collector = Collector(None)
        self.server = self.serve('--trace-endpoint', collector.url, collector=collector)
        times = []
        for _ in range(3):
            began = time.monotonic()
            with Sandbox(env=self.server.env()):
                times.append(time.monotonic() - began)
            time.sleep(2)
        collector.wait(lambda: collector.posts)
        began = time.monotonic()
        with Sandbox(env=self.server.env()) as box:
            self.assertEqual(box.run('echo on').text(), 'on\n')
        self.assertLess(time.monotonic() - began, max(20, 10 * max(times)))
        began = time.monotonic()
        self.assertEqual(self.server.stop(), 0)
        self.assertLess(time.monotonic() - began, 9)  # a request is given ten

    def test_what_was_not_taken_comes_later_and_the_wait_is_as_asked(self):
        collector = Collector(503, 429, 200, retry_after='2')
        self.server = self.serve('--trace-endpoint', collector.url, collector=collector)
        with Sandbox(env=self.server.env()) as box:
            pass
        collector.wait(lambda: 'sandbox' in {s['name'] for s in collector.of(box.id)}, 90)
        first, second, third = collector.times[:3]
        self.assertGreaterEqual(second - first, 1.9)
        self.assertGreaterEqual(third - second, 1.9)
        ids = [s['spanId'] for s in collector.of(box.id)]
        self.assertEqual(len(ids), len(set(ids)))

    def test_what_is_refused_is_not_sent_again(self):
        collector = Collector(400, 200)
        self.server = self.serve('--trace-endpoint', collector.url, collector=collector)
        with Sandbox(env=self.server.env()) as lost:
            pass
        collector.wait(lambda: collector.posts)
        time.sleep(0.5)
        with Sandbox(env=self.server.env()) as kept:
            pass
        collector.wait(lambda: 'sandbox' in {s['name'] for s in collector.of(kept.id)})
        self.assertEqual([s for s in collector.of(lost.id) if s['name'] == 'create'], [])
        metrics = Api(self.server).get('/metrics').body.decode()
        self.assertRegex(metrics, r'atoll_trace_spans_total\{result="rejected"\} [1-9]')
        self.assertRegex(metrics, r'atoll_trace_requests_total\{result="400"\} 1\n')
        self.assertIn('traces.rejected', self.server.log.read_text())

    def test_one_that_is_away_over_a_crash_gets_everything(self):
        collector = Collector(503)
        self.server = self.serve('--trace-endpoint', collector.url, collector=collector)
        boxes = []
        for _ in range(3):
            with Sandbox(env=self.server.env()) as box:
                boxes.append(box.id)
            self.server.kill()
            self.server.start()
        collector.statuses = [200]
        collector.wait(lambda: all('sandbox' in {s['name'] for s in collector.of(b)} for b in boxes), 150)
        for box in boxes:
            spans = {s['spanId']: s for s in collector.of(box)}
            self.assertEqual(sorted(s['name'] for s in spans.values() if s['name'] in ('sandbox', 'create')),
                             ['create', 'sandbox'])

    def test_langfuse_is_found_by_its_own_variables_and_its_key_is_seen_nowhere(self):
        collector = Collector()
        self.server = self.serve('--log-level', 'debug', collector=collector,
                                 LANGFUSE_BASE_URL=collector.url, LANGFUSE_PUBLIC_KEY='pk-lf-1',
                                 LANGFUSE_SECRET_KEY=SECRET)
        with Sandbox(env=self.server.env()) as box:
            pass
        collector.wait(lambda: 'sandbox' in {s['name'] for s in collector.of(box.id)})
        path, headers, _ = collector.posts[0]
        self.assertEqual(path, '/api/public/otel/v1/traces')
        self.assertEqual(headers['Authorization'],
                         'Basic ' + base64.b64encode(f'pk-lf-1:{SECRET}'.encode()).decode())
        self.assertEqual(headers['X-Langfuse-Ingestion-Version'.lower()], '4')
        text = self.server.log.read_text() + json.dumps(collector.bodies)
        self.assertNotIn(SECRET, text)
        self.assertNotIn(headers['Authorization'][6:], text)

    def test_opentelemetrys_variables_are_read_too(self):
        collector = Collector()
        self.server = self.serve(collector=collector,
                                 # by a name, too
                                 OTEL_EXPORTER_OTLP_ENDPOINT=collector.url.replace('127.0.0.1', 'localhost') + '/base/',
                                 OTEL_EXPORTER_OTLP_HEADERS='api-key=a%20b,x-other=2')
        with Sandbox(env=self.server.env()) as box:
            pass
        collector.wait(lambda: collector.of(box.id))
        path, headers, _ = collector.posts[0]
        self.assertEqual((path, headers['api-key'], headers['x-other']), ('/base/v1/traces', 'a b', '2'))


class Options(unittest.TestCase):
    def fails(self, *options, **environment):
        with tempfile.TemporaryDirectory() as scratch:
            done = subprocess.run([BUILD / 'atoll', 'serve', '--data', f'{scratch}/data', *options],
                                  capture_output=True, text=True, check=False, timeout=30,
                                  env={**os.environ, **environment})
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr

    def test_what_is_wrong_is_said_without_what_is_secret(self):
        self.assertIn('http', self.fails('--trace-endpoint', 'ftp://x'))
        text = self.fails('--trace-endpoint', 'http://127.0.0.1:1', '--trace-header', f'no colon {SECRET}')
        self.assertIn('Name: value', text)
        self.assertNotIn(SECRET, text)
        self.assertIn('nine decimals', self.fails('--price-vcpu-hour', 'free'))
        self.assertIn('logfmt', self.fails('--log-format', 'xml'))
        self.assertTrue(re.search('OTLP_HEADERS', self.fails(
            OTEL_EXPORTER_OTLP_ENDPOINT='http://127.0.0.1:1', OTEL_EXPORTER_OTLP_HEADERS='novalue')))


def load_tests(_loader, standard, _pattern):
    """Each has a server and a collector of its own, and mostly waits for a batch to go out."""
    return arrange(standard, lambda test: isinstance(test, Case), 5)
