"""--history-retention: what is over for long is forgotten, what lives is not, and readers of the event
log hear of it."""
import contextlib
import json
import os
import pathlib
import sqlite3
import tempfile
import time
import unittest

from harness import postgres
from harness.server import Server
from harness.v1 import Api, Follower, another_team

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

    def rows(self, tables=TABLES):
        """How many there are in each of them."""
        return self.numbers(*(f'(SELECT COUNT(*) FROM {table})' for table in tables))

    def numbers(self, *expressions):
        sql = f'SELECT {", ".join(expressions)}'
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


class Neighbours(Case):
    """One team has more than it may, and all of it lives: nobody else's history waits for that."""
    OPTIONS = ('--ceilings', 'historyMB=1', '--history-retention', '2')

    def test_what_is_over_goes_all_the_same(self):
        token = self.server.scratch / 'token'
        token.write_text('the-operator-of-neighbours')
        self.server.options += ('--admin-token-file', token)
        other = another_team(self.server, Api(self.server, operator='the-operator-of-neighbours'))
        wide = {'metadata': {'k': '\x01' * ((16 << 10) - 1)}, 'timeout': 300, 'disk_mb': 64}
        for _ in range(11):
            self.api.ask('POST', '/sandboxes', wide)
        [used] = self.numbers('(SELECT MAX(history) FROM team_bytes)')
        self.assertGreater(used, 1 << 20)
        box = other.ask('POST', '/sandboxes', {'timeout': 300, 'disk_mb': 64})['id']
        other.ask('DELETE', f'/sandboxes/{box}')
        self.wait_for(lambda: other.get(f'/sandboxes/{box}').status == 404)
        self.assertEqual(self.rows(('sandboxes',)), [11])


class Ceilings(Case):
    """How much of the database one team may take: low ceilings, each crossed for real."""
    OPTIONS = ('--ceilings', 'historyMB=1,commandsMB=1,outputMB=1,eventsMB=1,secrets=2,apiKeys=4,commandRules=2,'
               'volumes=2,snapshots=1,artifactStorageMB=1')
    MOST = 1 << 20

    def used(self, kind):
        return self.numbers(f'(SELECT COALESCE(SUM({kind}), 0) FROM team_bytes)')[0]

    def tearDown(self):
        """What is counted is what there is."""
        self.doCleanups()
        counted, there = (lambda: [self.used(kind) for kind in ('history', 'commands', 'output', 'events')]), (
            lambda: self.numbers('(SELECT COALESCE(SUM(bytes), 0) FROM sandboxes)',
                                 '(SELECT COALESCE(SUM(bytes), 0) FROM executions) + 512 * (SELECT COUNT(*) FROM runs)',
                                 '(SELECT COALESCE(SUM(output_bytes), 0) FROM executions)',
                                 '(SELECT COALESCE(SUM(bytes), 0) FROM events WHERE team_id IS NOT NULL)'))
        self.wait_for(lambda: counted() == there())
        self.assertEqual(self.numbers('(SELECT COALESCE(SUM(LENGTH(data) + 128), 0) FROM output)'),
                         self.numbers('(SELECT COALESCE(SUM(output_bytes), 0) FROM executions)'))
        super().tearDown()

    def make(self, **body):
        box = self.api.ask('POST', '/sandboxes', {'timeout': 300, 'disk_mb': 64, **body})['id']
        self.addCleanup(self.api.call, 'DELETE', f'/sandboxes/{box}')
        return box

    def refused(self, status, word, method, path, body):
        answer = self.api.call(method, path, body)
        self.assertEqual(answer.status, status, answer.body)
        self.assertIn(word, answer.json()['message'])
        if status == 429:  # not another advice
            self.assertIn('as the message says', answer.json()['hint'])

    def test_old_sandboxes_go_early_and_only_living_ones_are_in_the_way(self):
        wide = {'metadata': {'k': '\x01' * ((16 << 10) - 1)}, 'timeout': 300, 'disk_mb': 64}  # 96 KiB in the row
        boxes = []
        for _ in range(14):
            boxes.append(self.api.ask('POST', '/sandboxes', wide)['id'])
            self.api.ask('DELETE', f'/sandboxes/{boxes[-1]}')
            self.wait_for(lambda: self.used('history') <= self.MOST)
        self.assertEqual((self.status(f'/sandboxes/{boxes[0]}'), self.status(f'/sandboxes/{boxes[-1]}')), (404, 200))
        alive = []
        for _ in range(14):
            answer = self.api.call('POST', '/sandboxes', wide)
            if answer.status == 429:
                break
            alive.append(answer.json()['id'])
        self.assertEqual((answer.status, answer.json()['code']), (429, 'quota_exceeded'), answer.body)
        self.assertIn('1 MiB of rows of sandboxes (history_mb)', answer.json()['message'])
        self.assertGreater(len(alive), 9)
        self.server.kill()  # the counts are what they were
        self.server.start()
        self.assertEqual(self.api.call('POST', '/sandboxes', wide).status, 429)
        for box in alive:
            self.api.ask('DELETE', f'/sandboxes/{box}')
        self.wait_for(lambda: self.used('history') <= self.MOST)
        self.make()

    def test_what_an_ended_one_does_not_need_goes_with_it(self):
        rules = {'h.example.com': [{'transform': {'headers': {'X-Key': 'v' * 2000}}}]}
        box = self.make(envs={'SECRET': 'x' * 1000}, network={'rules': rules}, metadata={'k': 'v'})
        self.api.ask('DELETE', f'/sandboxes/{box}')
        ended = f"FROM sandboxes WHERE id = '{box}'"
        self.assertEqual(self.numbers(f'(SELECT LENGTH(options) {ended})', f'(SELECT COUNT(env_sealed) {ended})'), [2, 0])
        self.assertEqual(self.api.ask('GET', f'/sandboxes/{box}')['metadata'], {'k': 'v'})

    def test_old_commands_go_early(self):
        box = self.make()
        for n in range(14):
            self.assertEqual(self.execute(box, f': {"x" * 100000} {n}')['execution'], n + 1)
            self.wait_for(lambda: self.used('commands') <= self.MOST)
        path = f'/sandboxes/{box}/executions'
        self.assertEqual((self.status(f'{path}/1'), self.status(f'{path}/14')), (404, 200))
        self.refused(413, '256 KiB', 'POST', f'/sandboxes/{box}/execute', {'argv': ['true', *['x' * 100000] * 3]})

    def test_old_output_goes_early_and_what_has_no_room_is_cut_but_streamed(self):
        box = self.make()
        for _ in range(24):
            self.execute(box, 'head -c 40000 /dev/zero | tr "\\0" x')
            self.wait_for(lambda: self.used('output') <= self.MOST * 15 // 16)  # then there is room for one more
        first, last = (self.api.ask('GET', f'/sandboxes/{box}/executions/{n}') for n in (1, 24))
        self.assertEqual((first['stdout_bytes'], first['truncated'], first['last_seq']), (40000, True, 0))
        self.assertEqual((last['stdout_bytes'], last['truncated']), (40000, False))
        got = self.execute(box, 'head -c 3000000 /dev/zero | tr "\\0" y')
        self.assertEqual((len(got['stdout']), got['stdout_bytes'], got['truncated']), (3000000, 3000000, True))
        self.assertLessEqual(self.used('output'), self.MOST)

    def test_old_events_go_early(self):
        box = self.make()
        oldest = self.api.events(subject=box)[0]['seq']
        for n in range(300):
            self.api.raw('PUT', f'/api/v1/sandboxes/{box}/files?path=/tmp/{"./" * 1900}{n}', b'')
        self.wait_for(lambda: self.used('events') <= self.MOST and self.numbers('(SELECT COUNT(*) FROM events)')[0] > 9)
        self.wait_for(lambda: oldest not in {event['seq'] for event in self.api.events(subject=box)})

    def test_everything_else_is_counted(self):
        for n in range(2):
            self.api.ask('PUT', f'/secrets/S{n}', {'value': 'four'})
            self.addCleanup(self.api.call, 'DELETE', f'/secrets/S{n}')
        self.refused(429, '2 secrets', 'PUT', '/secrets/S2', {'value': 'four'})
        self.api.ask('PUT', '/secrets/S1', {'value': 'another'})
        keys = [self.api.ask('POST', '/keys', {'name': 'k'})['id'] for _ in range(3)]
        self.refused(429, '4 API keys', 'POST', '/keys', {'name': 'k'})
        for _ in range(9):
            self.api.ask('DELETE', f'/keys/{keys.pop()}')
            keys.append(self.api.ask('POST', '/keys', {'name': 'k'})['id'])
        self.assertEqual(self.rows(['api_keys']), [8])  # that live, and as many that were
        for key in keys:
            self.api.ask('DELETE', f'/keys/{key}')
        for agent in ('a', 'b', 'a'):
            self.api.ask('PUT', '/rules/commands', {'agent_id': agent, 'programs': ['true']})
        self.refused(429, '2 lists of programs', 'PUT', '/rules/commands', {'agent_id': 'c', 'programs': ['true']})
        for n in range(3):
            status = self.api.raw('POST', '/volumes', json.dumps({'name': f'v{n}'})).status
            self.assertEqual(status, 201 if n < 2 else 429)
        box = self.make()
        for n in range(2):
            status = self.api.call('POST', f'/sandboxes/{box}/snapshot', {'name': f'snap-{n}'}).status
            self.assertEqual(status, 429 if n else 201)
        self.refused(429, 'remove some first', 'POST', f'/sandboxes/{box}/snapshot', {'name': 'snap-2'})
        self.api.raw('DELETE', '/templates/snap-0')

    def test_who_is_refused_writes_nothing(self):
        tables = ('events', 'api_keys', 'sandboxes', 'executions', 'runs', 'team_bytes', 'secrets', 'volumes')
        box = self.make()
        reader, made = self.api.key_for(scopes=['sandboxes:read'])
        self.addCleanup(self.api.call, 'DELETE', f"/keys/{made['id']}")
        nobody, unknown = Api(self.server, 'x'), Api(self.server, 'e2b_' + '0' * 40)
        asked = (('POST', '/api/v1/sandboxes', '{}'), ('POST', f'/api/v1/sandboxes/{box}/execute', '{"shell": "id"}'),
                 ('POST', '/api/v1/run', '{"shell": "id"}'), ('PUT', '/api/v1/secrets/X', '{"value": "four"}'),
                 ('POST', '/api/v1/keys', '{"name": "k"}'), ('POST', '/v2/sandboxes', '{"templateID": "base"}'),
                 ('PUT', '/api/v1/sandboxes/inobodyinobodyinobody/files?path=/x', 'x'), ('POST', '/volumes', '{"name": "v"}'),
                 ('DELETE', f'/sandboxes/{box}', None), ('GET', '/nodes', None), ('PUT', '/admin/teams/x/limits', '{}'))
        time.sleep(1)  # what making it told
        before = self.rows(tables)
        for _ in range(5):
            for api in (reader, nobody, unknown):
                for method, path, body in asked:
                    answer = api.raw(method, path, body, {'Idempotency-Key': str(time.time_ns())})
                    self.assertIn(answer.status, (401, 403, 404), (method, path))
        time.sleep(1)
        self.assertEqual(self.rows(tables), before)


if __name__ == '__main__':
    unittest.main()
