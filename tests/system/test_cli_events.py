"""`atoll events`, `audit` and `usage` against a server that is restarted under them."""
import csv
import io
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from harness.sandbox import Sandbox
from harness.server import Server
from harness.v1 import Api

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
ATOLL = BUILD / 'atoll'


class Events(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-cli-events-')
        cls.addClassCleanup(scratch.cleanup)
        pathlib.Path(scratch.name).chmod(0o755)
        cls.server = Server(BUILD, scratch.name, '--pool', '2', '--stop-sandboxes', '--metrics-open', '--price-vcpu-hour', '1')
        cls.addClassCleanup(cls.server.stop)
        cls.server.start()
        cls.api = Api(cls.server)
        cls.env = {**os.environ, **cls.server.env()}

    def atoll(self, *words, code=0):
        done = subprocess.run([ATOLL, *words], capture_output=True, text=True, env=self.env, check=False,
                              stdin=subprocess.DEVNULL, timeout=60)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout

    def set_secrets(self, n, name='cli'):
        for i in range(n):
            self.api.ask('PUT', f'/secrets/{name}', {'value': f'value-{i}'})

    def test_the_newest_are_listed_as_they_happened(self):
        self.set_secrets(5)
        shown = json.loads(self.atoll('events', '--json', '--limit', '3', '--kind', 'secret.'))
        stored = self.api.events(kind='secret.')
        self.assertEqual([e['seq'] for e in shown], [e['seq'] for e in stored[-3:]])
        table = self.atoll('events', '--limit', '2').splitlines()
        self.assertEqual([int(row.split('\t')[0]) for row in table], [e['seq'] for e in self.api.events()[-2:]])
        self.assertEqual(self.atoll('events', '-q', '--limit', '1').strip(), str(self.api.events()[-1]['seq']))
        after = json.loads(self.atoll('events', '--json', '--after', str(stored[-3]['seq']), '--kind', 'secret.'))
        self.assertEqual([e['seq'] for e in after], [e['seq'] for e in stored[-2:]])

    def test_following_goes_on_over_a_restart(self):
        start = self.api.events()[-1]['seq']
        follower = subprocess.Popen([ATOLL, 'events', '--follow', '--json', '--after', str(start)],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env)
        self.addCleanup(follower.stdout.close)
        self.addCleanup(follower.stderr.close)
        for kill in (False, True, False):
            self.set_secrets(4, 'followed')
            if kill:
                self.server.kill()
            else:
                self.server.stop()
            self.server.start()
        self.set_secrets(3, 'followed')
        wanted = [e['seq'] for e in self.api.events(after=start)]
        seen = [json.loads(follower.stdout.readline())['seq'] for _ in wanted]
        self.assertEqual(seen, wanted)
        follower.send_signal(signal.SIGINT)
        self.assertEqual(follower.wait(20), 130)
        self.assertEqual(follower.stdout.read(), '')

    def test_following_has_the_columns_of_the_list(self):
        start = self.api.events()[-1]['seq']
        agent, _ = self.api.key_for(agent_id='follows', scopes=['sandboxes:read', 'sandboxes:write'])
        box = agent.ask('POST', '/sandboxes', {'timeout': 60})['id']
        agent.ask('DELETE', f'/sandboxes/{box}')
        follower = subprocess.Popen([ATOLL, 'events', '-f', '--after', str(start), '--kind', 'sandbox.,key.'],
                                    stdout=subprocess.PIPE, text=True, env=self.env)
        self.addCleanup(follower.stdout.close)
        watchdog = threading.Timer(150, follower.kill)
        watchdog.start()
        self.addCleanup(watchdog.cancel)
        followed = []
        while not followed or followed[-1][2] != 'sandbox.ended':
            followed.append(follower.stdout.readline().rstrip('\n').split('\t'))
        follower.send_signal(signal.SIGINT)
        self.assertEqual(follower.wait(20), 130)
        listed = [row.split('\t') for row in self.atoll('events', '--after', str(start), '--kind',
                                                        'sandbox.,key.').splitlines()]
        self.assertEqual(listed[:len(followed)], followed)
        self.assertEqual({len(row) for row in followed}, {9})
        self.assertIn((box, 'follows'), {(row[3], row[6]) for row in followed})
        self.assertNotIn('', {cell for row in followed for cell in row})

    def wait_for_readers(self, n):
        deadline = time.monotonic() + 60
        while f'atoll_feed_readers {n}\n' not in self.api.get('/metrics').body.decode():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def test_following_misses_nothing_before_its_first_event(self):
        self.wait_for_readers(0)
        follower = subprocess.Popen([ATOLL, 'events', '--follow', '--json', '--kind', 'secret.'],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env)
        self.addCleanup(follower.stdout.close)
        self.addCleanup(follower.stderr.close)
        watchdog = threading.Timer(150, follower.kill)
        watchdog.start()
        self.addCleanup(watchdog.cancel)
        self.wait_for_readers(1)
        self.server.kill()
        self.server.start()
        self.set_secrets(3, 'early')  # while it waits to come again
        wanted = [e['seq'] for e in self.api.events(kind='secret.')[-3:]]
        self.assertEqual([json.loads(follower.stdout.readline() or '{}').get('seq') for _ in wanted], wanted)
        follower.send_signal(signal.SIGINT)
        self.assertEqual(follower.wait(20), 130)

    def test_a_follower_that_may_not_says_so(self):
        files, _ = self.api.key_for(scopes=['files'])
        done = subprocess.run([ATOLL, 'events', '-f', '--json'], capture_output=True, text=True, check=False,
                              env={**self.env, 'E2B_API_KEY': files.key}, timeout=30)
        self.assertEqual(done.returncode, 4)
        self.assertEqual(json.loads(done.stdout)['code'], 'unauthorized')

    def test_audit_is_listed_and_exported(self):
        self.set_secrets(3, 'audited')
        rows = json.loads(self.atoll('audit', '--json', '--kind', 'secret.', '--limit', '1000'))
        self.assertEqual([r['seq'] for r in rows], sorted((r['seq'] for r in rows), reverse=True))
        table = list(csv.DictReader(io.StringIO(self.atoll('audit', '--export', 'csv', '--kind', 'secret.'))))
        self.assertEqual([int(r['seq']) for r in table], [r['seq'] for r in rows])
        lines = self.atoll('audit', '--export', 'ndjson', '--kind', 'secret.', '--from', '1h').splitlines()
        self.assertEqual([json.loads(line)['seq'] for line in lines], [r['seq'] for r in rows])
        self.assertEqual(json.loads(self.atoll('audit', '--json', '--actor', 'nobody')), [])
        self.assertEqual(json.loads(self.atoll('audit', '--json', '--to', '2020-01-01T00:00:00Z')), [])
        self.assertEqual({(r['actor_name'], r['source']) for r in rows}, {(rows[0]['actor_name'], '127.0.0.1')})
        head, first = self.atoll('audit', '--kind', 'secret.').splitlines()[:2]
        self.assertIn(rows[0]['actor_name'], first)
        self.assertIn('127.0.0.1', first)
        self.assertNotIn(rows[0]['actor'], first)
        self.atoll('audit', '--export', 'xml', code=2)
        self.atoll('audit', '--from', 'yesterday', code=2)

    def test_usage_is_summed_up(self):
        with Sandbox(env=self.server.env()):
            time.sleep(1)
        usage = json.loads(self.atoll('usage', '--json', '--by', 'template'))
        self.assertEqual([i['template'] for i in usage['items']], ['base'])
        self.assertGreater(usage['total']['cost'], 0)
        table = [line.split('\t') for line in self.atoll('usage', '--by', 'template', '--since', '1d').splitlines()]
        self.assertEqual([row[0] for row in table], ['base', 'total'])
        self.assertEqual(table[0][1:], table[1][1:])
        self.assertIn('USD', table[1][-1])
        self.atoll('usage', '--by', 'colour', code=1)


if __name__ == '__main__':
    unittest.main()
