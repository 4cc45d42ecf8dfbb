"""Usage and cost: what was really run, and nothing else. Each class has a server of its own."""
import csv
import io
import json
import os
import pathlib
import re
import struct
import subprocess
import tempfile
import time
import unittest

from harness.processes import lose_host
from harness.sandbox import Sandbox
from harness.server import Server
from harness.together import arrange_classes
from harness.v1 import Api

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
SLACK_S = 0.1  # between our clock and the server's
PRICES = {'vcpu': 3.6, 'memory': 7.2, 'disk': 0.036, 'egress': 1000}
TOKEN = 'the-operator-of-this-test'


class Case(unittest.TestCase):
    OPTIONS = ()

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-usage-')
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)
        cls.scratch.chmod(0o755)
        (cls.scratch / 'token').write_text(TOKEN)
        cls.server = Server(BUILD, cls.scratch, '--pool', '2', '--stop-sandboxes', '--admin-token-file',
                            cls.scratch / 'token',
                            '--price-vcpu-hour', '3.6', '--price-memory-gib-hour', '7.2',
                            '--price-disk-gib-hour', '0.036', '--price-egress-gib', '1000',
                            '--price-currency', 'EUR', *cls.OPTIONS)
        cls.prepare()
        cls.addClassCleanup(cls.server.stop)
        cls.server.start()
        cls.api = Api(cls.server)

    @classmethod
    def prepare(cls):
        pass

    def tearDown(self):
        self.assertEqual(self.server.sanitizer_findings(), '')

    def box(self, **body):
        return Sandbox(env=self.server.env(), timeout=600, **body)

    def of(self, box, **query):
        return self.api.get('/usage', sandbox_id=box.id, **query).json()['total']

    def between(self, got, least, most):
        """What was surely run, and what can have been: it began before its creation was answered, and not before
        that was asked for."""
        self.assertGreaterEqual(got, least - SLACK_S)
        self.assertLessEqual(got, most + SLACK_S)


class Sums(Case):
    def test_a_run_counts_by_what_it_reserved_and_how_long(self):
        asked = time.monotonic()
        with self.box() as box:
            made = time.monotonic()
            limits = self.api.ask('GET', f'/sandboxes/{box.id}')['limits']
            time.sleep(2)
            looked = time.monotonic()
            live = self.of(box)
            self.between(live['sandbox_seconds'], looked - made, time.monotonic() - asked)
            ending = time.monotonic()
        used, ended = self.of(box), time.monotonic()
        self.between(used['sandbox_seconds'], ending - made, ended - asked)
        time.sleep(1)
        self.assertEqual(self.of(box), used)  # what has ended counts no more
        self.assertEqual((used['sandboxes'], used['runs']), (1, 1))
        seconds = used['sandbox_seconds']
        self.assertAlmostEqual(used['vcpu_seconds'], seconds * limits['cpu'], places=3)
        self.assertAlmostEqual(used['memory_mib_seconds'] / seconds, limits['memory_mb'], places=3)
        self.assertAlmostEqual(used['disk_mib_seconds'] / seconds, limits['disk_mb'], places=3)
        cost = (used['vcpu_seconds'] / 3600 * PRICES['vcpu']
                + used['memory_mib_seconds'] / 1024 / 3600 * PRICES['memory']
                + used['disk_mib_seconds'] / 1024 / 3600 * PRICES['disk']
                + used['egress_bytes'] / 2 ** 30 * PRICES['egress'])
        self.assertAlmostEqual(used['cost'], cost, places=6)
        self.assertEqual(used['currency'], 'EUR')

    def test_a_pause_costs_nothing(self):
        asked = time.monotonic()
        with self.box() as box:
            made = time.monotonic()
            time.sleep(0.5)
            pausing = time.monotonic()
            box.api('POST', f'/sandboxes/{box.id}/pause', {})
            paused, is_paused = self.of(box), time.monotonic()
            time.sleep(3)
            self.assertEqual(self.of(box), paused)
            resuming = time.monotonic()
            box.api('POST', f'/sandboxes/{box.id}/connect', {'timeout': 600})
            resumed = time.monotonic()
            time.sleep(0.5)
            ending = time.monotonic()
        used, ended = self.of(box), time.monotonic()
        self.assertEqual(used['runs'], 2)
        self.between(used['sandbox_seconds'], pausing - made + ending - resumed, is_paused - asked + ended - resuming)

    def test_a_sandbox_tells_what_it_costs_so_far(self):
        with self.box() as box:
            time.sleep(1)
            asked = time.monotonic()
            shown = self.api.ask('GET', f'/sandboxes/{box.id}')
            counted = self.of(box)
            passed = time.monotonic() - asked
        more = counted['sandbox_seconds'] - shown['used']['sandbox_seconds']
        self.between(more, 0, passed)
        self.assertAlmostEqual(shown['used']['cost'] / shown['used']['sandbox_seconds'],
                               counted['cost'] / counted['sandbox_seconds'], delta=counted['cost'] / 2)
        ended = self.api.ask('GET', f'/sandboxes/{box.id}')
        self.assertAlmostEqual(ended['used']['sandbox_seconds'], self.of(box)['sandbox_seconds'], 3)


class Counts(Case):
    def test_processor_time_and_what_was_sent_are_the_kernels_word(self):
        with self.box() as box:
            burn = "perl -e '1 while (times)[0] < 0.5'"
            send = ('for i in $(seq 200); do printf "%01000d" 0 > /dev/udp/192.0.2.1/9; '
                    'done 2>/dev/null; true')
            box.run(burn)
            box.run(send)
        used = self.of(box)
        self.assertGreater(used['cpu_used_seconds'], 0.45)
        self.assertLess(used['cpu_used_seconds'], used['vcpu_seconds'] + 1)
        self.assertGreaterEqual(used['egress_bytes'], 200 * 1000)
        self.assertLess(used['egress_bytes'], 200 * 1000 * 3)

    def test_processor_time_before_a_pause_is_not_counted_again(self):
        with self.box() as box:
            box.run("perl -e '1 while (times)[0] < 1'")
            box.api('POST', f'/sandboxes/{box.id}/pause', {})
            first = self.of(box)['cpu_used_seconds']
            self.assertGreater(first, 0.9)
            box.api('POST', f'/sandboxes/{box.id}/connect', {'timeout': 600})
            time.sleep(0.5)
        self.assertLess(self.of(box)['cpu_used_seconds'], first + 0.8)

    def test_groups_add_up(self):
        for agent, task in (('a1', 't1'), ('a1', 't2'), ('a2', 't1')):
            made = self.api.ask('POST', '/sandboxes', {'template': 'base', 'agent_id': agent, 'task_id': task})
            self.api.ask('DELETE', f"/sandboxes/{made['id']}")
        to = int(time.time()) + 1
        time.sleep(1.1)
        whole = self.api.get('/usage', to=to).json()
        for group in ('team', 'agent', 'task', 'template', 'sandbox', 'agent,task', 'team,agent,task,template'):
            usage = self.api.get('/usage', to=to, group_by=group).json()
            self.assertEqual(usage['total'], whole['total'], group)
            for name in ('sandbox_seconds', 'memory_mib_seconds', 'egress_bytes', 'runs', 'sandboxes'):
                self.assertAlmostEqual(sum(i[name] for i in usage['items']), whole['total'][name], 3)
            self.assertEqual({k for i in usage['items'] for k in i} & {'team', 'agent', 'task', 'template',
                                                                       'sandbox'}, set(group.split(',')))
        agents = {i['agent']: i for i in self.api.get('/usage', to=to, group_by='agent').json()['items']}
        self.assertEqual((agents['a1']['sandboxes'], agents['a2']['sandboxes']), (2, 1))
        self.assertEqual(self.api.get('/usage', to=to, agent_id='a2').json()['total']['sandboxes'], 1)
        table = self.api.get('/usage', to=to, group_by='agent', format='csv').body.decode()
        rows = {r['agent']: r for r in csv.DictReader(io.StringIO(table))}
        self.assertAlmostEqual(float(rows['a1']['sandbox_seconds']), agents['a1']['sandbox_seconds'], 3)
        self.assertAlmostEqual(float(rows['a1']['cost']), agents['a1']['cost'], 5)

    def test_a_sandbox_that_could_not_be_made_costs_nothing(self):
        answer = self.api.call('POST', '/sandboxes', {'template': 'base', 'runtime': 'crun'})
        if answer.status < 300:
            self.api.ask('DELETE', f"/sandboxes/{answer.json()['id']}")
            self.skipTest('crun is installed here: it can be made')
        self.assertEqual(self.api.get('/usage', from_=int(time.time()) - 2, group_by='sandbox').json()['items'], [])


class Crashes(Case):
    def test_spans_go_on_over_a_crash_of_the_server(self):
        asked = time.monotonic()
        with self.box() as box:
            made = time.monotonic()
            time.sleep(1)
            self.server.kill()
            time.sleep(1)
            self.server.start()
            time.sleep(1)
            ending = time.monotonic()
        used, ended = self.of(box), time.monotonic()
        self.assertEqual(used['runs'], 1)
        self.between(used['sandbox_seconds'], ending - made, ended - asked)

    def test_one_that_went_with_the_host_counts_until_it_was_last_seen(self):
        asked = time.monotonic()
        box = self.box()
        time.sleep(1)
        lose_host(self.server)
        lost = time.monotonic()
        time.sleep(3)
        self.server.start()
        used = self.of(box)
        self.assertEqual(used['runs'], 1)
        self.assertLess(used['sandbox_seconds'], lost - asked + 1)
        self.assertEqual(self.api.ask('GET', f'/sandboxes/{box.id}')['state'], 'ended')


class ClockJumps(Case):
    """The server's wall clock is set forward and back while a sandbox runs."""

    @classmethod
    def prepare(cls):
        library = cls.scratch / 'clock.so'
        made = subprocess.run(['cc', '-shared', '-fPIC', '-O1', '-o', library,
                               pathlib.Path(__file__).parent / 'clock.c', '-ldl'],
                              capture_output=True, text=True, check=False)
        if made.returncode:
            raise unittest.SkipTest(f'no clock of our own: {made.stderr}')
        cls.offset = cls.scratch / 'offset'
        cls.offset.write_bytes(struct.pack('l', 0))
        cls.offset.chmod(0o644)
        cls.server.environment.update(LD_PRELOAD=str(library), TEST_CLOCK=str(cls.offset))
        if 'asan' in str(BUILD):
            cls.server.environment['ASAN_OPTIONS'] = 'verify_asan_link_order=0'

    def jump(self, seconds):
        with open(self.offset, 'r+b') as file:
            file.write(struct.pack('l', seconds))

    def test_a_jump_changes_no_bill(self):
        asked = time.monotonic()
        with self.box() as box:
            made = time.monotonic()
            time.sleep(1)
            self.jump(300)
            time.sleep(1)
            self.jump(-300)
            time.sleep(1)
            ending = time.monotonic()
        ended = time.monotonic()
        self.jump(0)
        used = self.of(box)
        self.assertEqual(used['runs'], 1)
        self.between(used['sandbox_seconds'], ending - made - 0.5, ended - asked + 0.5)

    def test_events_stay_in_order_over_a_jump(self):
        first = self.api.get('/events', format='json', order='desc', limit=1).json()['items']
        self.jump(-3600)
        self.api.ask('PUT', '/secrets/jumped', {'value': 'some-value'})
        self.jump(0)
        self.api.ask('PUT', '/secrets/jumped', {'value': 'some-value'})
        seen = self.api.events(after=first[0]['seq'] if first else 0, kind='secret.')
        self.assertEqual([e['seq'] for e in seen], sorted(e['seq'] for e in seen))
        self.assertGreater(seen[-1]['at'], seen[0]['at'])


SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*\})? '
                    r'(-?[0-9.]+(?:e[+-]?[0-9]+)?|\+Inf|NaN)$')


class Metrics(Case):
    def parse(self, text):
        """Strictly by the text format 0.0.4: families in one piece, each with its type before it."""
        types, values, current, closed = {}, {}, None, set()
        self.assertTrue(text.endswith('\n'))
        for line in text.splitlines():
            if line.startswith('# HELP '):
                name = line.split(' ', 3)[2]
                self.assertNotIn(name, closed)
                current = name
                closed.add(name)
            elif line.startswith('# TYPE '):
                _, _, name, kind = line.split(' ')
                self.assertEqual(name, current)
                self.assertNotIn(name, types)
                self.assertIn(kind, ('counter', 'gauge', 'histogram'))
                types[name] = kind
            else:
                found = SAMPLE.match(line)
                self.assertTrue(found, line)
                base = found[1]
                if types[current] == 'histogram':
                    base = re.sub('_(bucket|sum|count)$', '', base)
                self.assertEqual(base, current, line)
                key = found[1] + (found[2] or '')
                self.assertNotIn(key, values)
                values[key] = float(found[3])
        for name, kind in types.items():
            if kind == 'histogram':
                self.check_histogram(name, values)
        return types, values

    def check_histogram(self, name, values):
        series = {}
        for key, value in values.items():
            found = re.match(re.escape(name) + r'_bucket\{(.*,)?le="([^"]+)"\}$', key)
            if found:
                series.setdefault(found[1] or '', []).append((float(found[2].replace('+Inf', 'inf')), value))
        for labels, buckets in series.items():
            buckets.sort()
            self.assertEqual([v for _, v in buckets], sorted(v for _, v in buckets), name)
            self.assertEqual(buckets[-1][0], float('inf'))
            plain = '{' + labels.rstrip(',') + '}' if labels else ''
            self.assertEqual(buckets[-1][1], values[f'{name}_count{plain}'], name)
            self.assertIn(f'{name}_sum{plain}', values)

    def test_the_text_is_what_prometheus_reads(self):
        with self.box():
            self.api.call('GET', '/sandboxes/nosuchsandbox')
            deadline = time.monotonic() + 60  # what is counted by events is counted soon
            operator = Api(self.server, operator=TOKEN)
            answer = operator.get('/metrics')
            wanted = b'atoll_sandbox_create_seconds_count{', b'atoll_events_total{kind="sandbox.created"}'
            while not all(text in answer.body for text in wanted) and time.monotonic() < deadline:
                time.sleep(0.2)
                answer = operator.get('/metrics')
        self.assertEqual(answer.headers['Content-Type'], 'text/plain; version=0.0.4; charset=utf-8')
        types, values = self.parse(answer.body.decode())
        self.assertEqual(values['atoll_sandboxes{state="running"}'], 1)
        self.assertGreaterEqual(values['atoll_sandboxes_created_total{template="base"}'], 1)
        self.assertGreaterEqual(values['atoll_sandbox_create_seconds_count{runtime="local"}'], 1)
        self.assertGreaterEqual(values['atoll_events_total{kind="sandbox.created"}'], 1)
        self.assertTrue(any(k.startswith('atoll_http_requests_total{route="/api/v1/sandboxes/{id}"') and
                            'status="404"' in k for k in values))
        self.assertGreater(values['atoll_store_seconds_count'], 0)
        for name in ('atoll_build_info', 'atoll_queue_depth', 'atoll_errors_total', 'atoll_breaker_state',
                     'atoll_trace_exporter_up', 'atoll_executions_total', 'atoll_feed_readers'):
            self.assertIn(name, types)
        self.assertEqual(values['atoll_trace_exporter_up'], -1)
        promtool = subprocess.run(['sh', '-c', 'command -v promtool'], capture_output=True, check=False)
        if promtool.returncode == 0:
            lint = subprocess.run(['promtool', 'check', 'metrics'], input=answer.body, capture_output=True,
                                  check=False)
            self.assertEqual(lint.returncode, 0, lint.stderr + lint.stdout)

    def test_health_and_readiness_are_open(self):
        nobody = Api(self.server, 'none')
        self.assertEqual(nobody.get('/health').json()['status'], 'ok')
        ready = nobody.get('/ready')
        self.assertEqual(ready.status, 200)
        parts = ready.json()
        self.assertEqual((parts['status'], parts['store']['state'], parts['warden']['state'],
                          parts['runtimes']['local']['state']), ('ready',) * 4)

    def test_metrics_need_a_key(self):
        self.assertEqual(Api(self.server, 'none').get('/metrics').status, 401)


class OpenMetrics(Case):
    OPTIONS = ('--metrics-open', '--log-format', 'json')

    def test_metrics_are_open_when_the_server_was_told_so(self):
        self.assertEqual(Api(self.server, 'none').get('/metrics').status, 200)

    def test_the_log_is_json(self):
        made = self.api.ask('POST', '/sandboxes', {'template': 'base', 'agent_id': 'logged', 'task_id': 'job'})
        self.api.ask('DELETE', f"/sandboxes/{made['id']}")
        lines = [json.loads(line) for line in self.server.log.read_text().splitlines() if line.startswith('{')]
        mine = [line for line in lines if line.get('sandbox_id') == made['id']]
        self.assertIn('sandbox.created', [line['event'] for line in mine])
        for line in mine:
            if line['event'] in ('sandbox.created', 'sandbox.ended'):
                self.assertEqual((line['agent_id'], line['task_id']), ('logged', 'job'))
                self.assertEqual({'ts', 'level', 'event'} - set(line), set())


def load_tests(_loader, standard, _pattern):
    """Classes side by side: each has a server of its own, and its tests mostly wait."""
    return arrange_classes(standard, lambda test: True, 4)
