"""The command line is as able as the API: what a new sandbox is to be like, lists of all that there is, secrets,
volumes, templates, commands that were recorded, and what a sandbox may reach."""
import json
import os
import pathlib
import re
import socket
import subprocess
import unittest
import uuid

from test_cli import ATOLL, Cli, Terminal, atoll


class Case(Cli):
    def name(self):
        return f'cli-{uuid.uuid4().hex[:10]}'

    def rows(self, *words):
        return [row.split('\t') for row in self.ok(*words).decode().splitlines()]

    def pairs(self, *words):
        return dict(row for row in self.rows(*words))

    def says(self, status, *words, **more):
        return self.fails(status, *words, **more).stderr.decode()

    def api(self, *words):
        return json.loads(self.ok('api', *words) or b'null')


class Create(Case):
    def test_what_it_may_use(self):
        box = self.sandbox('--memory', '512MiB', '--cpu', '1', '--disk', '1GiB', '--meta', 'k=v')
        shown = self.json('sbx', 'info', box)
        self.assertEqual((shown['cpuCount'], shown['memoryMB'], shown['diskSizeMB']), (1, 512, 1024))
        self.assertEqual(shown['limits']['memory_mb'], 512)
        pairs = self.pairs('sbx', 'info', box)
        self.assertEqual((pairs['cpu'], pairs['memory'], pairs['disk'], pairs['runtime'], pairs['internet']),
                         ('1', '512 MiB', '1.0 GiB', 'local', 'yes'))
        self.assertIn('max_pids', pairs)
        self.assertTrue(re.match(rf'https?://PORT-{box}\.', pairs['address']), pairs)
        hog = ('run', 'base', '--memory', '256', '--', 'python3', '-c', 'x = bytearray(1 << 30)')
        self.assertIn("the sandbox's limit of 256 MiB was reached", self.says(137, *hog))

    def test_what_it_may_reach(self):
        box = self.sandbox('--no-internet', '--allow', '1.1.1.1,example.com', '--allow', '8.8.8.0/24', '--deny', '9.9.9.9')
        shown = self.json('sbx', 'info', box)
        self.assertEqual((shown['internet'], shown['network']),
                         (False, {'allow_out': ['1.1.1.1', 'example.com', '8.8.8.0/24'], 'deny_out': ['9.9.9.9']}))
        said = self.says(1, 'sbx', 'create', '--allow', 'example.com')
        self.assertIn('allow_out', said)
        self.assertIn('--no-internet', said)

    def test_secrets_and_volumes_are_given_to_it(self):
        secret, volume = self.name(), self.name()
        self.ok('secret', 'set', secret, stdin=b's3cr3t-of-the-cli\n')
        self.addCleanup(atoll, 'secret', 'rm', secret)
        self.ok('volume', 'create', volume)
        self.addCleanup(atoll, 'volume', 'rm', volume)
        given = ('--secret', f'{secret}=TOKEN', '--volume', f'{volume}:/data')
        self.assertEqual(self.ok('run', 'base', *given, '--', 'sh', '-c', 'echo "$TOKEN" > /data/x; echo done'), b'done\n')
        self.assertEqual(self.ok('run', 'base', '--volume', f'{volume}:/v', '--', 'cat', '/v/x'), b's3cr3t-of-the-cli\n')
        box = self.sandbox('--volume', f'{volume}:/data')
        self.assertEqual(self.json('sbx', 'info', box)['volumes'], [{'name': volume, 'path': '/data'}])
        self.ok('sbx', 'kill', box)
        self.assertIn('no-such', self.says(1, 'sbx', 'create', '--volume', 'no-such:/v'))
        self.assertIn('no_such', self.says(1, 'sbx', 'create', '--secret', 'no_such'))

    def test_what_is_wrong_is_a_usage_error(self):
        for words, says in ((('--memory', '1 GiB'), '--memory'), (('--disk', '0'), '--disk'), (('--cpu', '0'), '--cpu'),
                            (('--cpu', 'all'), '--cpu'), (('--volume', 'v'), 'NAME:/PATH'), (('--volume', 'v:p'), 'NAME:/PATH'),
                            (('--volume', 'v:/p:ro'), 'reading and writing'), (('--secret', 'a-b'), 'NAME=VARIABLE'),
                            (('--secret', 'a=b-c'), 'NAME=VARIABLE'), (('--secret', '=X'), 'NAME=VARIABLE')):
            self.assertIn(says, self.says(2, 'sbx', 'create', *words), words)
            self.assertEqual(self.json('run', 'base', *words, status=125)['code'], 'usage')


class Lists(Case):
    def test_whose_they_are_and_those_that_have_ended(self):
        agent, task = self.name(), self.name()
        box = self.sandbox('--agent', agent, '--task', task, '--meta', 'job=4 2', '--meta', 'n=1')
        gone = self.sandbox('--agent', agent)
        self.ok('sbx', 'kill', gone)
        [row] = self.rows('ls', '--agent', agent)
        self.assertEqual((row[0], row[1], row[2], row[7:]), (box, 'base', 'running', [agent, task, 'job=4 2,n=1']))
        self.assertEqual(self.rows('sandbox', 'ls', '--agent', agent), [row])
        for words in (('--task', task), ('--meta', 'n=1', '--meta', 'job=4 2'), ('--template', 'base', '--task', task)):
            self.assertEqual(self.rows('ls', *words), [row], words)
        self.assertEqual(self.rows('ls', '--agent', agent, '--meta', 'n=2'), [])
        both = {row[0]: row for row in self.rows('ls', '--all', '--agent', agent)}
        self.assertEqual({box: 'running', gone: 'ended'}, {box: row[2] for box, row in both.items()})
        self.assertRegex(both[gone][4], r'^\d{4}-\d\d-\d\dT')
        told = {b['sandboxID']: b for b in self.json('ls', '-a', '--agent', agent)}
        self.assertEqual((told[gone]['endedBy'], told[gone]['endAt'], told[box]['agentID']), ('user', None, agent))
        self.assertEqual(self.ok('ls', '-q', '--state', 'ended', '--agent', agent).decode().split(), [gone])
        self.assertEqual(len(self.rows('ls', '--all', '--limit', '1')), 1)
        self.says(2, 'ls', '--all', '--state', 'ended')
        self.says(2, 'ls', '--limit', '0')
        self.says(1, 'ls', '--state', 'dead')

    def test_one_that_has_ended_says_why(self):
        box = self.sandbox()
        self.ok('sbx', 'kill', box)
        for words in (('info', box), ('exec', box, '--', 'true')):
            run = atoll('sbx', *words)
            self.assertEqual(run.returncode, 3 if words[0] == 'info' else 125)
            self.assertIn(f'sandbox {box} has ended: killed through the API (user)', run.stderr.decode())
        pairs = self.pairs('sbx', 'info', '--all', box)
        self.assertEqual((pairs['state'], pairs['ended by']), ('ended', 'user'))
        self.assertEqual(self.json('sbx', 'info', '-a', box)['endedWhy'], 'killed through the API')

    def test_more_than_a_page(self):
        name = self.name()
        for i in range(3):
            self.ok('secret', 'set', f'{name}-{i}', stdin=b'a value')
            self.addCleanup(atoll, 'secret', 'rm', f'{name}-{i}')
        self.assertEqual([row[0] for row in self.rows('secret', 'ls') if row[0].startswith(name)],
                         [f'{name}-{i}' for i in range(3)])

    def test_a_piped_table_never_loses_a_column(self):
        box = self.sandbox()
        table = self.ok('ls')
        row = next(row for row in table.decode().splitlines() if row.startswith(box))
        self.assertEqual(row.split('\t')[7:], ['-', '-', '-'])
        cut = subprocess.run(['cut', '-f8,10'], input=row.encode(), capture_output=True, check=True).stdout
        self.assertEqual(cut, b'-\t-\n')
        # A shell takes several tabs for one.
        script = "IFS=$'\\t' read -r id template state started ends cpu memory agent task meta; echo $state/$memory/$meta"
        read = subprocess.run(['bash', '-c', script], input=row.encode() + b'\n', capture_output=True, check=True).stdout
        self.assertEqual(read.decode().split('/')[::2], ['running', '-\n'])
        for words in (['template', 'ls'], ['snapshot', 'ls'], ['volume', 'ls'], ['secret', 'ls'], ['key', 'ls'],
                      ['events', '--limit', '100'], ['audit', '--limit', '100'], ['usage', '--by', 'agent,task'],
                      ['execution', 'artifacts'], ['sbx', 'metrics', box]):
            rows = self.rows(*words)
            self.assertLessEqual(len({len(row) for row in rows}), 1, words)
            self.assertNotIn('', {cell for row in rows for cell in row}, words)


class Resources(Case):
    def test_secrets_are_set_listed_and_removed(self):
        name = self.name()
        value = self.scratch() / 'value'
        value.write_text('first-value\n')
        self.assertEqual(self.ok('secret', 'set', name, '--file', value).decode().strip(), name)
        odd = 'c"]},[{\\'  # a list is cut into its items by its brackets
        told = self.json('secret', 'set', name, '--meta', f'of={odd}', stdin=b'second-value')
        self.assertEqual((told['version'], told['metadata']), (2, {'of': odd}))
        row = next(row for row in self.rows('secret', 'ls') if row[0] == name)
        self.assertEqual((row[1], row[4]), ('2', f'of={odd}'))
        listed = next(s for s in self.json('secret', 'ls') if s['name'] == name)
        self.assertEqual(listed, told)
        for words in (('secret', 'ls'), ('secret', 'ls', '--json')):
            self.assertNotIn(b'-value', self.ok(*words))
        self.assertIn('empty', self.says(2, 'secret', 'set', name, stdin=b''))
        self.says(2, 'secret', 'set', name, stdin=b'\xff\xfe')
        self.says(3, 'secret', 'set', name, '--file', self.scratch() / 'none')
        terminal = Terminal('secret', 'set', name)  # nobody is left waiting at a prompt
        terminal.expect(b'the value is read from --file or stdin')
        self.assertEqual(terminal.wait(), 2)
        self.assertEqual(self.ok('secret', 'rm', name).decode().strip(), name)
        self.assertEqual(self.json('secret', 'rm', name, status=3)['code'], 'not_found')

    def test_volumes_are_made_shown_and_removed(self):
        name = self.name()
        made = self.ok('volume', 'create', name).decode().strip()
        self.addCleanup(atoll, 'volume', 'rm', made)
        self.assertEqual([row[1] for row in self.rows('volume', 'ls') if row[0] == made], [name])
        for typed in (name, made, made[:13]):
            self.assertEqual(self.json('volume', 'info', typed)['id'], made)
        pairs = self.pairs('volume', 'info', name)
        self.assertEqual((pairs['id'], pairs['name']), (made, name))
        self.assertIn('at most', pairs)
        self.assertNotIn(self.json('volume', 'info', name)['token'], self.ok('volume', 'info', name).decode())
        self.says(1, 'volume', 'create', name)
        self.says(1, 'volume', 'create', 'a b')
        self.assertEqual(self.json('volume', 'rm', name), {'id': made, 'removed': True})
        for command in ('rm', 'info'):
            self.assertIn('volume ls', self.says(3, 'volume', command, name))

    def test_templates_and_snapshots(self):
        row = next(row for row in self.rows('template', 'ls') if row[0] == 'base')
        self.assertEqual((row[1].split(',')[0], row[3]), ('default', '1.0 GiB'))
        self.assertIn('base', self.ok('tpl', 'ls', '-q').decode().split())
        shown = self.json('template', 'info', 'base')
        self.assertEqual((shown['kind'], self.pairs('template', 'info', 'base')['id']), ('directory', shown['id']))
        self.assertIn('operator', self.says(5, 'template', 'rm', 'base'))
        self.assertIn('template ls', self.says(3, 'template', 'info', 'no-such'))
        name, box = self.name(), self.sandbox()
        first = self.ok('sbx', 'snapshot', box, '--name', f'{name}:a').decode().strip()
        self.ok('sbx', 'snapshot', box, '--name', f'{name}:b')
        rows = self.rows('snapshot', 'ls', '--name', name)
        self.assertEqual([(row[0], row[1], row[4], row[5]) for row in rows],
                         [(f'{name}:b', name, box, 'base'), (first, name, box, 'base')])
        self.assertRegex(rows[0][2], r'^[\d.]+ (MiB|GiB)$')
        self.assertRegex(rows[0][3], r'^\d{4}-\d\d-\d\dT')
        self.assertEqual(self.rows('snapshot', 'ls', '--sandbox', box), rows)
        self.assertGreater(self.json('snapshot', 'info', first)['sizeMB'], 0)
        self.assertEqual(self.pairs('snapshot', 'info', first)['tag'], 'a')
        self.assertEqual(self.ok('snapshot', 'name', f'{name}:b', f'{name}:c').decode().strip(), f'{name}:c')
        self.assertIn(f'{name}:a', self.says(5, 'snapshot', 'name', f'{name}:c', f'{name}:a'))
        self.assertEqual(self.ok('snapshot', 'rm', name).decode().strip(), f'{name}:c')
        self.assertEqual(self.json('template', 'info', name)['tags'], ['a'])
        self.ok('template', 'rm', name)
        self.assertEqual(self.rows('snapshot', 'ls', '--name', name), [])


class Network(Case):
    def test_it_is_shown_and_changed_in_parts(self):
        box = self.sandbox('--deny', '9.9.9.9')
        self.assertEqual(self.ok('network', 'set', box, '--no-internet', '--allow', 'example.com').decode().strip(), box)
        shown = self.json('network', 'show', box)
        self.assertEqual((shown['internet'], shown['allow_out'], shown['deny_out']), (False, ['example.com'], ['9.9.9.9']))
        self.assertEqual([row for row in self.rows('network', 'show', box) if row[0] in ('internet', 'allow', 'deny')],
                         [['internet', 'no'], ['allow', 'example.com'], ['deny', '9.9.9.9']])
        self.assertIn('--no-internet', self.says(1, 'network', 'set', box, '--internet'))  # a name is allowed still
        told = self.json('network', 'set', box, '--internet', '--allow', '')
        self.assertEqual((told['internet'], told['allow_out'], told['deny_out']), (True, [], ['9.9.9.9']))
        rules = self.scratch() / 'rules.json'
        rules.write_text('{"api.example.com": [{"transform": {"headers": {"X-A": "b"}}}]}')
        told = self.json('network', 'set', box, '--rules', rules)
        self.assertEqual((told['rules'], told['deny_out']), (json.loads(rules.read_text()), ['9.9.9.9']))
        told = self.json('network', 'set', box, '--reset')
        self.assertEqual((told['internet'], told['allow_out'], told['deny_out'], told['rules']), (True, None, None, None))
        self.assertEqual(self.json('network', 'set', box, '--reset', '--no-internet')['internet'], False)
        rules.write_text('{')
        for words in ((), ('--internet', '--no-internet'), ('--rules', rules)):
            self.says(2, 'network', 'set', box, *words)
        self.says(3, 'network', 'set', box, '--rules', self.scratch() / 'none')
        self.says(3, 'network', 'show', 'i00000000000000000000')


class Executions(Case):
    def execute(self, box, body):
        return self.api('POST', f'sandboxes/{box}/execute', '-d', json.dumps(body))

    def test_they_are_listed_shown_and_what_they_printed(self):
        box = self.sandbox('--task', 'cli-exe')
        self.execute(box, {'shell': 'echo out; echo err >&2; exit 3'})
        self.execute(box, {'argv': ['printf', r'\377']})
        rows = self.rows('execution', 'ls', box)
        self.assertEqual([(row[0], row[1], row[2], row[5], row[6]) for row in rows],
                         [('2', 'ended', '0', 'cli-exe', r'printf \377'),
                          ('1', 'ended', '3', 'cli-exe', 'echo out; echo err >&2; exit 3')])
        self.assertEqual(self.ok('execution', 'ls', box, '-q', '--limit', '1'), b'2\n')
        self.assertEqual(self.pairs('execution', 'info', box, '1')['exit'], '3')
        self.assertEqual(self.json('execution', 'info', box, '1')['exit_code'], 3)
        run = atoll('execution', 'logs', box, '1')
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, b'out\n', b'err\n'))
        self.assertEqual(self.ok('execution', 'logs', box, '2'), b'\xff')
        chunks = self.json('execution', 'logs', box, '1')
        self.assertEqual({c['stream']: c['text'] for c in chunks}, {'stdout': 'out\n', 'stderr': 'err\n'})
        for words in (('info', box, '9'), ('logs', box, '9'), ('cancel', box, '9')):
            self.assertEqual(self.json('execution', *words, status=3)['code'], 'not_found')
        self.says(2, 'execution', 'logs', box, 'x')

    def test_one_that_runs_is_followed_and_cancelled(self):
        box = self.sandbox()
        started = self.execute(box, {'shell': 'echo begun; sleep 600; echo never', 'background': True})['execution']
        follower = subprocess.Popen([ATOLL, 'execution', 'logs', '-f', box, str(started)], stdout=subprocess.PIPE)
        self.addCleanup(follower.stdout.close)
        self.assertEqual(follower.stdout.readline(), b'begun\n')
        self.assertEqual(self.pairs('execution', 'info', box, started)['state'], 'running')
        self.ok('execution', 'cancel', box, started)
        self.assertEqual(follower.wait(60), 0)
        self.assertEqual(follower.stdout.read(), b'')
        self.assertEqual(self.pairs('execution', 'info', box, started)['exit'], 'SIGTERM')

    def test_artifacts_are_listed_and_fetched(self):
        task = self.name()
        run = self.api('POST', 'run', '-d', json.dumps({
            'shell': 'head -c 300000 /dev/urandom | tee big | sha256sum; echo small > small', 'artifacts': ['big', 'small'],
            'sandbox': {'task_id': task}}))
        rows = {pathlib.Path(row[1]).name: row for row in self.rows('execution', 'artifacts', '--task', task)}
        self.assertEqual((rows['big'][5], rows['big'][7], rows['small'][2]), (run['sandbox_id'], task, '6 B'))
        self.assertEqual(len(self.rows('execution', 'artifacts', run['sandbox_id'])), 2)
        here = self.scratch() / 'here'
        told = self.json('execution', 'fetch', rows['big'][0], here)
        self.assertEqual((told['bytes'], told['file']), (300000, str(here)))
        digest = subprocess.run(['sha256sum', here], capture_output=True, check=True).stdout.split()[0]
        self.assertEqual(digest.decode(), run['execution']['stdout'].split()[0])
        self.assertEqual(self.ok('execution', 'fetch', rows['small'][0], '-'), b'small\n')
        self.assertIn('exists', self.says(1, 'execution', 'fetch', rows['small'][0], here))
        self.assertEqual(here.stat().st_size, 300000)
        missing = self.scratch() / 'missing'
        self.says(3, 'execution', 'fetch', str(uuid.uuid4()), missing)
        self.assertFalse(missing.exists())
        self.says(2, 'execution', 'fetch', rows['small'][0], '-', '--json')


@unittest.skipUnless(os.geteuid() == 0, 'serving needs root')
class Address(Case):
    def serve(self, address):
        return subprocess.run([ATOLL, 'serve', '--data', self.scratch() / 'data', '--listen', address], timeout=120,
                              capture_output=True, check=False)

    def test_who_has_it_is_named_with_what_to_do(self):
        address = os.environ['E2B_API_URL'].split('://')[1].rstrip('/')
        run = self.serve(address)
        said = (run.stdout + run.stderr).decode()
        self.assertNotEqual(run.returncode, 0)
        self.assertIn(f'{address} is in use by the Atoll server of pid', said)
        for what in (os.environ['ATOLL_TEST_DATA'], 'atoll upgrade', '--listen HOST:PORT'):
            self.assertIn(what, said)
        pid = int(re.search(r'pid (\d+)', said)[1])
        self.assertIn(b'serve', pathlib.Path(f'/proc/{pid}/cmdline').read_bytes().split(b'\0'))
        with socket.create_server(('127.0.0.1', 0)) as taken:
            address = f'127.0.0.1:{taken.getsockname()[1]}'
            run = self.serve(address)
        said = (run.stdout + run.stderr).decode()
        self.assertNotEqual(run.returncode, 0)
        self.assertRegex(said, rf'{address} is in use by python[\d.]* \(pid {os.getpid()}\)')


if __name__ == '__main__':
    unittest.main()
