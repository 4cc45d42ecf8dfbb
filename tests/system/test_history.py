"""--history-retention: what is over for long is forgotten, what lives is not, and readers of the event
log hear of it."""
import contextlib
import os
import pathlib
import sqlite3
import tempfile
import time
import unittest

from harness import postgres
from harness.server import Server
from harness.v1 import Api, Follower

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
TABLES = ('sandboxes', 'sandbox_runs', 'executions', 'output', 'runs')


class Case(unittest.TestCase):
    OPTIONS = ()

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-history-')
        cls.addClassCleanup(scratch.cleanup)
        os.chmod(scratch.name, 0o755)
        cls.server = Server(BUILD, scratch.name, '--pool', '2', '--stop-sandboxes', *cls.OPTIONS)
        cls.addClassCleanup(cls.server.stop)
        cls.server.start()
        cls.api = Api(cls.server)

    def tearDown(self):
        self.assertEqual(self.server.sanitizer_findings(), '')

    def rows(self):
        """How many there are in each of TABLES."""
        sql = f'SELECT {", ".join(f"(SELECT COUNT(*) FROM {table})" for table in TABLES)}'
        if url := self.server.environment.get('ATOLL_DATABASE'):
            return list(map(int, postgres.ask(url, sql).split('|')))
        with contextlib.closing(sqlite3.connect(self.server.data / 'state/atoll.db', timeout=30)) as db:
            return list(db.execute(sql).fetchone())

    def wait_for(self, what, seconds=90):
        deadline = time.monotonic() + seconds
        while not what():
            self.assertLess(time.monotonic(), deadline, self.server.log.read_text()[-2000:])
            time.sleep(0.3)

    def execute(self, sandbox, line):
        return self.api.ask('POST', f'/sandboxes/{sandbox}/execute', {'shell': line})

    def status(self, path):
        return self.api.get(path).status


class Forgotten(Case):
    OPTIONS = ('--history-retention', '2')

    def test_what_is_over_goes_and_what_lives_stays(self):
        lives = self.api.ask('POST', '/sandboxes', {'agent_id': 'stays'})['id']
        ended = [self.api.ask('POST', '/sandboxes', {'agent_id': 'goes'})['id'] for _ in range(3)]
        for sandbox in (lives, *ended):
            for i in range(3):
                self.assertEqual(self.execute(sandbox, f'echo {i}')['exit_code'], 0)
        self.api.ask('POST', '/run', {'shell': 'echo of a run'})
        for _ in range(2):
            self.api.ask('POST', f'/sandboxes/{lives}/pause')
            self.api.ask('POST', f'/sandboxes/{lives}/resume')
        self.assertEqual(self.status(f'/sandboxes/{ended[0]}'), 200)
        for sandbox in ended:
            self.api.ask('DELETE', f'/sandboxes/{sandbox}')
        self.wait_for(lambda: {self.status(f'/sandboxes/{sandbox}') for sandbox in ended} == {404})
        # Of the one that lives: its newest command, so that numbers go on, and all that it costs.
        self.wait_for(lambda: self.rows() == [1, 3, 1, 1, 0])
        self.assertEqual([e['execution'] for e in self.api.ask('GET', f'/sandboxes/{lives}/executions')['items']], [3])
        self.assertEqual(self.execute(lives, 'echo more')['execution'], 4)
        self.assertEqual(self.api.ask('GET', f'/sandboxes/{lives}')['used']['runs'], 3)
        self.server.kill()
        self.server.start()
        self.assertEqual(self.execute(lives, 'echo after a crash')['execution'], 5)

    def test_readers_hear_what_they_missed(self):
        self.api.ask('PUT', '/secrets/first', {'value': 'some-value'})
        first = self.api.events()[-1]['seq']
        self.api.ask('PUT', '/secrets/second', {'value': 'some-value'})
        self.wait_for(lambda: self.api.events()[0]['seq'] > first)
        self.api.ask('PUT', '/secrets/third', {'value': 'some-value'})
        oldest = self.api.events()[0]['seq']
        with Follower(self.api, after=1) as follower:
            self.api.ask('PUT', '/secrets/third', {'value': 'some-value'})  # that of before may be gone by now
            follower.wait(lambda seen: seen and seen[-1]['subject'])
            name, told = follower.notices[0]
            self.assertEqual((name, told['from']), ('forgotten', 2))
            self.assertGreaterEqual(told['to'], oldest - 1)
            self.assertGreater(follower.seen[0]['seq'], told['to'])
            self.assertGreaterEqual(follower.last, follower.seen[-1]['seq'])
        with Follower(self.api) as live:
            self.api.ask('PUT', '/secrets/fourth', {'value': 'some-value'})
            live.wait(lambda seen: seen)
            self.assertEqual(live.notices, [])


class Kept(Case):
    OPTIONS = ('--history-retention', '0')

    def test_nothing_is_forgotten(self):
        sandbox = self.api.ask('POST', '/sandboxes', {})['id']
        self.execute(sandbox, 'true')
        self.api.ask('DELETE', f'/sandboxes/{sandbox}')
        before = self.api.events()[0]['seq']
        time.sleep(7)  # every sweep has been there
        self.assertEqual(self.status(f'/sandboxes/{sandbox}'), 200)
        self.assertEqual(self.api.events()[0]['seq'], before)
        self.assertNotIn('history.forgotten', self.server.log.read_text())


if __name__ == '__main__':
    unittest.main()
