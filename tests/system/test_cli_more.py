"""The rest of the command line against a real server: the life of a sandbox after it was made, and what is
generated from the command table (completions, manual pages)."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest
import urllib.request

from test_cli import ATOLL, NOWHERE, Cli, Terminal, atoll

HOUR = 3600


def seconds_left(end_at):
    return time.mktime(time.strptime(end_at[:19], '%Y-%m-%dT%H:%M:%S')) - time.mktime(time.gmtime())


class Life(Cli):
    def run_in(self, box, script):
        return self.ok('sbx', 'exec', box, '--', 'sh', '-c', script).decode().strip()

    def state(self, box):
        return self.json('sbx', 'info', box)['state']

    def test_pause_and_resume_keep_processes_and_may_be_repeated(self):
        box = self.sandbox()
        pid = self.run_in(box, 'sleep 1000 >/dev/null 2>&1 & echo $!')
        self.assertEqual(self.ok('sbx', 'pause', box[:12]).decode().strip(), box)
        self.assertEqual(self.json('sbx', 'pause', box), {'sandboxID': box, 'state': 'paused'})
        self.assertEqual(self.state(box), 'paused')
        self.fails(125, 'sbx', 'exec', box, '--', 'true')
        self.fails(5, 'sbx', 'extend', box, '1h')
        self.fails(5, 'sbx', 'port', box, '80')
        self.assertEqual(self.ok('sbx', 'resume', box, '--timeout', '1h').decode().strip(), box)
        self.assertEqual(self.json('sbx', 'resume', box), {'sandboxID': box, 'state': 'running'})
        self.assertGreater(seconds_left(self.json('sbx', 'info', box)['endAt']), HOUR - 60)
        self.run_in(box, f'kill -0 {pid}')

    def test_files_only_pause_and_cold_resume_boot_again(self):
        box = self.sandbox()
        for pause, resume in (['--disk'], []), ([], ['--cold']):
            before = self.run_in(box, 'touch ~/kept; cat /proc/sys/kernel/random/boot_id')
            self.ok('sbx', 'pause', box, *pause)
            self.ok('sbx', 'resume', box, *resume)
            after = self.run_in(box, 'ls ~/kept >/dev/null && cat /proc/sys/kernel/random/boot_id')
            self.assertNotEqual(before, after)

    def test_extend_moves_the_end_and_never_closer(self):
        box = self.sandbox('--timeout', '60')
        end = self.json('sbx', 'extend', box, '1h')['endAt']
        self.assertGreater(seconds_left(end), HOUR - 60)
        self.assertEqual(self.ok('sbx', 'extend', box, '5').decode().strip(), end)
        for word in ('0', 'x', '-1', ''):
            self.fails(2, 'sbx', 'extend', '--', box, word)

    def test_snapshot_list_start_and_remove(self):
        box = self.sandbox()
        self.run_in(box, 'echo 42 > ~/answer')
        made = self.json('sbx', 'snapshot', box, '--name', 'cli-more')
        unnamed = self.ok('sbx', 'snapshot', box).decode().strip()
        listed = self.ok('snapshot', 'ls', '-q').decode().split()
        self.assertIn(made['snapshotID'], listed)
        self.assertIn(unnamed, listed)
        self.assertIn(made, self.json('snapshot', 'ls'))
        for template in ('cli-more', unnamed):
            copy = self.ok('sbx', 'create', template).decode().strip()
            self.addCleanup(atoll, 'sbx', 'kill', copy)
            self.assertEqual(self.run_in(copy, 'cat ~/answer'), '42')
            self.ok('sbx', 'kill', copy)
        self.assertEqual(self.ok('snapshot', 'rm', 'cli-more').decode().strip(), made['snapshotID'])
        self.assertTrue(self.json('snapshot', 'rm', unnamed)['removed'])
        self.assertEqual(self.json('snapshot', 'rm', unnamed, status=3)['code'], 'not_found')
        self.fails(3, 'snapshot', 'rm', 'base')  # a template that is no snapshot is left alone
        self.ok('run', 'base', '--', 'true')

    def test_fork_makes_many_with_the_same_files(self):
        box = self.sandbox()
        self.run_in(box, 'echo 42 > ~/answer')
        forks = self.ok('sbx', 'fork', box, '--count', '3').decode().split()
        forks += [fork['sandboxID'] for fork in self.json('sbx', 'fork', box)]
        for fork in forks:
            self.addCleanup(atoll, 'sbx', 'kill', fork)
            self.assertEqual(self.run_in(fork, 'cat ~/answer'), '42')
        self.assertEqual(len({box, *forks}), 5)
        for count in ('0', '101', 'x'):
            self.fails(2, 'sbx', 'fork', box, '--count', count)

    def test_port_is_an_address_that_answers(self):
        box = self.sandbox()
        self.ok('sbx', 'exec', box, '--', 'sh', '-c', 'mkdir -p /tmp/w; echo hello >/tmp/w/index.html;'
                'cd /tmp/w; python3 -m http.server 8123 >/dev/null 2>&1 &')
        url = self.ok('sbx', 'port', box, '8123').decode().strip()
        self.assertEqual(self.json('sbx', 'port', box, '8123')['url'], url)
        host = url.split('://')[1]
        self.assertTrue(host.startswith(f'8123-{box}.'), url)
        request = urllib.request.Request(os.environ['E2B_API_URL'], headers={'Host': host})
        for attempt in range(400):
            try:
                self.assertEqual(urllib.request.urlopen(request, timeout=10).read(), b'hello\n')
                break
            except OSError:
                self.assertLess(attempt, 399)
                time.sleep(0.1)
        for port in ('0', '65536', 'x'):
            self.fails(2, 'sbx', 'port', box, port)

    def test_logs_once_and_as_they_come(self):
        box = self.sandbox()
        self.ok('sbx', 'pause', box)
        self.ok('sbx', 'resume', box)
        entries = self.json('sbx', 'logs', box)
        self.assertEqual([entry['message'] for entry in entries],
                         ['sandbox.created', 'sandbox.paused', 'sandbox.resumed'])
        rows = [row.split('\t') for row in self.ok('sbx', 'logs', box).decode().splitlines()]
        self.assertEqual([row[0] for row in rows], [entry['timestamp'] for entry in entries])
        with subprocess.Popen([ATOLL, 'sbx', 'logs', '-f', '--json', box], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE) as run:
            for entry in entries:
                self.assertEqual(json.loads(run.stdout.readline()), entry)
            self.ok('sbx', 'pause', box)
            self.assertEqual(json.loads(run.stdout.readline())['message'], 'sandbox.paused')
            self.ok('sbx', 'kill', box)
            self.assertEqual(json.loads(run.stdout.read().splitlines()[-1])['message'], 'sandbox.ended')
            self.assertEqual(run.wait(20), 0)
        again = self.ok('sbx', 'logs', '-f', box).decode().splitlines()
        self.assertIn('killed through the API', again[-1])
        self.fails(3, 'sbx', 'logs', 'i' + 'z' * 20)

    def test_interrupt_ends_following(self):
        box = self.sandbox()
        with subprocess.Popen([ATOLL, 'sbx', 'logs', '-f', box], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE) as run:
            self.assertIn(b'sandbox.created', run.stdout.readline())
            run.send_signal(signal.SIGINT)
            self.assertIn(run.wait(60), (130, -signal.SIGINT))

    def test_metrics_of_a_sandbox(self):
        box = self.sandbox()
        end = time.monotonic() + 30
        while not (samples := self.json('sbx', 'metrics', box)) and time.monotonic() < end:
            time.sleep(0.5)
        self.assertGreater(samples[0]['memTotal'], 0)
        self.assertGreaterEqual(samples[0]['cpuUsedPct'], 0)
        rows = [row.split('\t') for row in self.ok('sbx', 'metrics', box).decode().splitlines()]
        self.assertEqual(rows[0][0], samples[0]['timestamp'])
        self.assertEqual(len(rows[0]), 7)
        self.assertTrue(self.json('sbx', 'metrics', box, '--since', '1h'))
        self.fails(2, 'sbx', 'metrics', box, '--since', 'x')

    def test_connect_is_a_login_shell_that_wakes_and_shortens_nothing(self):
        box = self.sandbox('--timeout', '2h')
        end = self.json('sbx', 'info', box)['endAt']
        run = atoll('sbx', 'connect', box, stdin=b'shopt -q login_shell && echo login; exit 4\n')
        self.assertEqual((run.returncode, run.stdout), (4, b'login\n'))
        self.assertEqual(self.json('sbx', 'info', box)['endAt'], end)
        self.ok('sbx', 'pause', box)
        terminal = Terminal('sbx', 'connect', '-u', 'root', box)
        terminal.expect(b'# ')
        terminal.send(b'tty; exit 3\n')
        terminal.expect(b'/dev/pts/')
        self.assertEqual(terminal.wait(), 3)
        self.assertEqual(terminal.after, terminal.before)
        self.assertEqual(self.json('sbx', 'connect', 'i' * 21, status=125)['code'], 'not_found')

    def test_missing_sandboxes_are_not_found(self):
        for words in (['pause'], ['resume'], ['snapshot'], ['fork'], ['logs'], ['metrics'],
                      ['extend', '5'], ['port', '80']):
            for box in ('i' * 21, 'izzz'):
                document = self.json('sbx', words[0], box, *words[1:], status=3)
                self.assertEqual(document['code'], 'not_found', words)


class Status(Cli):
    def test_says_where_how_and_how_many(self):
        before = self.json('status')
        self.sandbox()
        document = self.json('status')
        self.assertEqual((document['url'], document['urlFrom'], document['health']),
                         (os.environ['E2B_API_URL'], 'E2B_API_URL', 'ok'))
        self.assertEqual(document['version'], document['clientVersion'])
        self.assertEqual(document['sandboxes']['running'], before['sandboxes']['running'] + 1)
        rows = dict(row.split('\t') for row in self.ok('status').decode().splitlines())
        self.assertEqual(rows['health'], 'ok')
        self.assertEqual(self.ok('status', '-q'), b'ok\n')
        self.fails(4, 'status', env={'E2B_API_KEY': 'e2b_' + '0' * 40})


class Completion(Cli):
    def words(self, *words, shell='bash', **more):
        return self.ok('completion', shell, '--', *words, **more).decode().splitlines()

    def known(self, *words, **more):
        """The same of what only the server knows: it is not waited for long, and it may be busy."""
        end = time.monotonic() + 60
        while not (offered := self.words(*words, **more)) and time.monotonic() < end:
            time.sleep(0.2)
        return offered

    def commands(self):
        return json.loads(self.ok('help', '--json'))['commands']

    def test_every_command_and_option_of_the_table(self):
        for command in self.commands():
            name = [word for word in (command['group'], command['name']) if word]
            self.assertIn(name[-1], self.words(*name[:-1], ''))
            self.assertIn(name[-1], self.words(*name[:-1], name[-1][:2]))
            self.assertEqual(sorted(self.words(*name, '--')),
                             sorted('--' + option['name'] for option in command['options']))

    def test_where_nothing_is_known_nothing_is_offered(self):
        for words in (['nothing', ''], ['sbx', 'exec', 'x', '--', ''], ['run', '--user', ''],
                      ['run', 'base', 'x', ''], ['--data', ''], ['sbx', 'nothing', 'x', '']):
            self.assertEqual(self.words(*words), [], words)

    def test_ids_are_those_of_now(self):
        box = self.sandbox()
        self.assertEqual(self.known('sandbox', 'exec', box[:8]), [box])
        self.assertIn(box, self.known('--json', 'sbx', 'kill', 'x', ''))
        self.assertIn(box + '\trunning', self.known('sbx', 'info', '', shell='fish'))
        self.assertEqual(self.words('sbx', 'port', box, ''), [])
        self.assertTrue(self.known('key', 'revoke', ''))
        for _ in range(100):
            offered = json.loads(self.ok('completion', 'bash', '--json', '--', 'sbx', 'info', box))
            if offered:
                break
        self.assertEqual(offered, [box])

    def test_names_and_values_of_options(self):
        self.assertIn('base', self.known('sandbox', 'create', ''))
        self.assertEqual(self.known('run', 'bas'), ['base'])
        self.assertEqual(self.known('template', 'info', 'ba'), ['base'])
        self.assertEqual(self.known('sbx', 'ls', '--template', 'ba'), ['base'])
        self.assertEqual(self.words('run', '--runtime', ''), ['crun', 'gvisor', 'local', 'runc'])
        self.assertEqual(self.words('sbx', 'create', 'base', '--runtime', 'gv'), ['gvisor'])
        self.assertEqual(self.words('sbx', 'ls', '--state', 'p'), ['paused'])
        self.assertEqual(self.words('sbx', 'ls', '--color', ''), ['always', 'auto', 'never'])
        self.assertEqual(self.words('--vers'), ['--version'])
        box = self.sandbox()
        snapshot = self.ok('sbx', 'snapshot', box, '--name', 'completes').decode().strip()
        self.addCleanup(atoll, 'snapshot', 'rm', snapshot)
        self.assertEqual(self.known('snapshot', 'rm', 'compl'), [snapshot])
        self.assertEqual(self.known('sbx', 'create', 'compl'), [snapshot])
        self.assertIn(box, self.known('network', 'show', ''))
        self.ok('volume', 'create', 'completes')
        self.addCleanup(atoll, 'volume', 'rm', 'completes')
        self.assertEqual(self.known('volume', 'info', 'compl'), ['completes'])
        self.assertEqual(self.known('run', 'base', '--volume', 'compl'), ['completes:/'])
        self.ok('secret', 'set', 'completes', stdin=b'a-value')
        self.addCleanup(atoll, 'secret', 'rm', 'completes')
        self.assertEqual(self.known('secret', 'rm', 'compl'), ['completes'])
        self.assertEqual(self.known('run', '--secret', 'compl'), ['completes'])
        self.ok('api', 'POST', f'sandboxes/{box}/execute', '-d', '{"shell": "true"}')
        self.assertEqual(self.known('execution', 'logs', box, ''), ['1'])

    def test_a_silent_server_is_not_waited_for(self):
        with socket.create_server(('127.0.0.1', 0)) as silent:
            address = f'http://127.0.0.1:{silent.getsockname()[1]}'
            for url, words in ((address, ('sbx', 'info', '')), (NOWHERE, ('sbx', 'info', '')),
                               (address, ('sbx', 'create', ''))):  # two lists are asked for
                for _ in range(5):  # of several times the best: a busy machine is slow now and then
                    start = time.monotonic()
                    self.assertEqual(self.words(*words, env={'E2B_API_URL': url}), [])
                    took = time.monotonic() - start
                    if took < 2:
                        break
                self.assertLess(took, 2)

    def test_shell_choices(self):
        self.assertEqual(self.words('completion', ''), ['bash', 'zsh', 'fish'])
        self.fails(2, 'completion', 'pink')
        for shell in ('bash', 'zsh', 'fish'):
            text = self.ok('completion', shell).decode()
            self.assertEqual(self.json('completion', shell), {'shell': shell, 'script': text})
            if shutil.which(shell):
                subprocess.run([shell, '-n', '/dev/stdin'], input=text.encode(), check=True)

    def test_bash_itself_completes(self):
        box = self.sandbox()
        script = ('source <(atoll completion bash)\n'
                  'try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _atoll; echo "${COMPREPLY[*]}"; }\n'
                  f'try atoll sandbox ext; try atoll sandbox info {box[:9]}; try atoll sbx exec --us\n')
        path = f'{pathlib.Path(ATOLL).resolve().parent}:{os.environ["PATH"]}'
        for _ in range(100):  # the server may be too busy to be waited for
            done = subprocess.run(['bash', '-c', script], env={**os.environ, 'PATH': path},
                                  capture_output=True, check=True, timeout=60)
            if box.encode() in done.stdout:
                break
        self.assertEqual(done.stdout.decode().split(), ['extend', box, '--user'])


class Manual(Cli):
    def test_pages_say_what_help_says(self):
        commands = json.loads(self.ok('help', '--json'))['commands']
        whole = self.ok('help', '--man').decode().replace('\\-', '-')
        for command in commands:
            name = [word for word in (command['group'], command['name']) if word]
            page = self.ok('help', '--man', *name).decode().replace('\\-', '-')
            options = sorted('--' + option['name'] for option in command['options'])
            common = options if command['name'] != 'serve' else \
                sorted(set(re.findall(r'^ .*(--[a-z-]+)', self.ok('help', 'version').decode(), re.M)
                           + options))
            self.assertEqual(sorted(set(re.findall(r'\\fB(--[a-z-]+)\\fR', page))), common, name)
            helped = self.ok('help', *name).decode()
            self.assertEqual(sorted(set(re.findall(r'^  (?:-.,|   ) (--[a-z-]+)', helped, re.M))),
                             options, name)
            self.assertIn(f'.SS {" ".join(name)}\n', whole)

    @unittest.skipUnless(shutil.which('groff'), 'groff is not installed')
    def test_pages_are_clean_troff(self):
        for words in ([], ['sandbox'], ['key'], ['snapshot'], ['network'], ['execution'], ['secret'], ['volume'],
                      ['template'], ['sandbox', 'exec']):
            page = self.ok('help', '--man', *words)
            done = subprocess.run(['groff', '-man', '-Tascii', '-ww', '-z'], input=page,
                                  capture_output=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, b''))
        self.assertEqual(self.json('help', '--man', 'sandbox')['name'], 'atoll-sandbox')


if __name__ == '__main__':
    unittest.main()
