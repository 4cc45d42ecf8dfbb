"""`atoll team`: teams and their ceilings, for the operator and for those who look at their own."""
import json
import os

from test_cli import ATOLL, Cli, atoll
from test_team_limits import TeamServer


class Team(Cli, TeamServer):
    def setUp(self):
        self.as_key = {k: v for k, v in self.env.items() if k.startswith('E2B_')}
        self.as_operator = {**self.as_key, 'ATOLL_ADMIN_TOKEN_FILE': str(self.token)}

    def test_list(self):
        self.assertTrue(os.access(ATOLL, os.X_OK))
        [team] = self.json('team', 'ls', env=self.as_operator)
        self.assertEqual((team['teamID'], team['name'], team['limits']), (self.team, 'default', {}))
        self.assertEqual(team['ceilings']['snapshots'], 3)
        self.assertEqual(self.ok('team', 'ls', '-q', env=self.as_operator).decode(), self.team + '\n')
        lines = self.ok('team', 'ls', env=self.as_operator).decode().splitlines()
        self.assertEqual(lines[-1].split('\t')[:2], [self.team, 'default'])

    def test_limits_are_set_shown_and_taken_away(self):
        shown = self.json('team', 'limits', 'default', '--max-memory', '1GiB', '--max-snapshots', '2',
                          '--max-volume', '512MiB', env=self.as_operator)
        own = {'memoryMB': 1024, 'snapshots': 2, 'volumeSizeMB': 512}
        self.assertEqual(shown['limits'], own)
        self.assertEqual(self.admin.ok('GET', self.path), own)
        self.assertEqual({k: shown['ceilings'][k] for k in own}, own)
        shown = self.json('team', 'limits', self.team[:8], '--max-memory', 'usual', env=self.as_operator)
        self.assertEqual(shown['limits'], {'snapshots': 2, 'volumeSizeMB': 512})
        lines = [line.split('\t') for line in
                 self.ok('team', 'limits', 'default', env=self.as_operator).decode().splitlines()]
        self.assertIn(['snapshots', '2', '2', '0'], lines)
        self.assertIn(['memoryMB', '2.0 GiB', '-', '-'], lines)
        shown = self.json('team', 'limits', 'default', '--reset', '--max-cpu', '4', env=self.as_operator)
        self.assertEqual(shown['limits'], {'cpuCount': 4})

    def test_every_ceiling_has_an_option(self):
        words = [w for i, name in enumerate(self.seen()['ceilings']) for w in (self.option(name), str(2000 + i))]
        words[words.index('--max-cpu') + 1] = '3'
        shown = self.json('team', 'limits', 'default', *words, env=self.as_operator)
        self.assertEqual(set(shown['limits']), set(self.seen()['ceilings']))

    def option(self, name):
        """As the help says it."""
        names = {'cpuCount': 'cpu', 'memoryMB': 'memory', 'diskSizeMB': 'disk', 'openFiles': 'open-files',
                 'shmSizeMB': 'shm', 'logLines': 'log-lines', 'logLinesPerMinute': 'log-rate',
                 'snapshotStorageMB': 'snapshot-storage', 'volumeSizeMB': 'volume',
                 'volumeStorageMB': 'volume-storage', 'artifactStorageMB': 'artifact-storage', 'historyMB': 'history',
                 'commandsMB': 'commands', 'outputMB': 'output', 'eventsMB': 'events', 'apiKeys': 'api-keys',
                 'commandRules': 'command-rules'}
        option = '--max-' + names.get(name, name)
        self.assertIn(option, self.ok('help', 'team', 'limits').decode())
        return option

    def test_ones_own_needs_no_operator(self):
        shown = self.json('team', 'limits', env=self.as_key)
        self.assertEqual((shown['teamID'], shown['ceilings']['snapshots']), (self.team, 3))
        self.assertNotIn('limits', shown)
        self.fails(4, 'team', 'ls', env=self.as_key)
        failed = self.json('team', 'limits', 'default', '--max-cpu', '1', status=4, env=self.as_key)
        self.assertIn('ATOLL_ADMIN_TOKEN_FILE', failed['hint'])

    def test_what_is_wrong_is_said(self):
        for words in (('default', '--max-memory', 'much'), ('default', '--max-memory', '4KiB'),
                      ('default', '--max-cpu', '0'), ('default', '--max-cpu', 'two'), ('--max-cpu', '2')):
            self.fails(2, 'team', 'limits', *words, env=self.as_operator)
        self.fails(3, 'team', 'limits', 'nobody', env=self.as_operator)
        run = atoll('team', 'limits', 'default', '--max-memory', '1MiB', env=self.as_operator)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn(b'memoryMB: must be a number from 128', run.stderr)
        wrong = self.scratch / 'wrong'
        wrong.write_text('another-token\n')
        self.fails(4, 'team', 'ls', '--admin-token-file', str(wrong), env=self.as_key)
        self.fails(3, 'team', 'ls', '--admin-token-file', '/nonexistent', env=self.as_key)
        self.assertEqual(self.admin.ok('GET', self.path), {})

    def test_the_table_knows_it(self):
        commands = json.loads(self.ok('help', '--json'))['commands']
        self.assertEqual([c['name'] for c in commands if c['group'] == 'team'], ['activity', 'ls', 'limits', 'env'])
        self.assertIn(rb'\-\-max\-memory', self.ok('help', '--man', 'team'))
        self.assertIn(b'limits', self.ok('completion', 'bash', '--', 'team', ''))
