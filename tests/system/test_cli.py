"""The command line against a real server: what scripts rely on, and what a person at a terminal sees."""
import base64
import contextlib
import fcntl
import hashlib
import http.server
import json
import os
import pathlib
import pty
import re
import select
import shlex
import shutil
import signal
import ssl
import struct
import subprocess
import tempfile
import termios
import threading
import time
import unittest

ATOLL = os.environ['ATOLL_TEST_BIN']
NOWHERE = 'http://127.0.0.1:1'


def atoll(*words, stdin=b'', env=None, timeout=60, **more):
    """Runs it to its end, with stdin as bytes; stdout and stderr are bytes too."""
    if 'stdin_file' in more:
        given = {'stdin': more.pop('stdin_file')}
    else:
        given = {'input': stdin}
    return subprocess.run([ATOLL, *map(str, words)], capture_output=True, timeout=timeout,
                          env={**os.environ, **(env or {})}, check=False, **given, **more)


class Cli(unittest.TestCase):
    maxDiff = None

    def ok(self, *words, **more):
        run = atoll(*words, **more)
        self.assertEqual(run.returncode, 0, run.stderr.decode(errors='replace'))
        return run.stdout

    def fails(self, status, *words, **more):
        run = atoll(*words, **more)
        self.assertEqual(run.returncode, status, run.stderr.decode(errors='replace'))
        return run

    def json(self, *words, status=0, **more):
        """The one document on stdout."""
        run = self.fails(status, *words, '--json', **more) if '--' not in words else \
            self.fails(status, *words[:words.index('--')], '--json', *words[words.index('--'):],
                       **more)
        return json.loads(run.stdout)

    def sandbox(self, *words):
        made = self.ok('sandbox', 'create', 'base', *words).decode().strip()
        self.addCleanup(atoll, 'sandbox', 'kill', made)
        return made

    def scratch(self):
        made = tempfile.TemporaryDirectory(prefix='atoll-cli-')
        self.addCleanup(made.cleanup)
        return pathlib.Path(made.name)


class Words(Cli):
    """No server is needed for these."""

    def commands(self):
        return json.loads(self.ok('help', '--json'))['commands']

    def test_help_fits_one_screen_and_shows_examples_first(self):
        for command in self.commands():
            name = [word for word in (command['group'], command['name']) if word]
            text = self.ok('help', *name).decode()
            self.assertEqual(text, self.ok(*name, '--help').decode())
            # All that a server can be told, or a team may have, is a list.
            most = 72 if name in (['serve'], ['team', 'limits']) else 43 if name == ['run'] else 40
            self.assertLessEqual(len(text.splitlines()), most, name)
            self.assertLess(text.index('  atoll '), text.index('Usage:'), name)
            self.assertLessEqual(max(map(len, text.splitlines())), 100, name)

    def test_every_command_fails_as_one_document(self):
        for command in self.commands():
            name = [word for word in (command['group'], command['name']) if word]
            if name in (['help'], ['version'], ['doctor'], ['serve'], ['completion'], ['upgrade'],
                        ['backup'], ['restore']):
                continue
            if command['group'] in ('config', 'db'):  # these need no server
                continue
            words = ['x' if word.isupper() else word
                     for word in command['words'].replace('...', '').split()
                     if word.isupper()]
            if command['name'] == 'cp':
                words = ['x:a', 'b']
            if command['name'] in ('extend', 'port'):
                words = ['x', '80']
            if command['name'] == 'api':
                words = ['GET', 'x']
            if name == ['secret', 'set']:
                words += ['--file', '/etc/hostname']
            if name == ['network', 'set']:
                words += ['--no-internet']
            if name == ['execution', 'fetch']:
                words = ['x', self.scratch() / 'x']
            elif 'N' in command['words'].split():
                words = ['x', '1']
            if command['group'] == 'team':  # the operator's token comes first
                words += ['--admin-token-file', '/etc/hostname']
            ours = command['name'] in ('exec', 'run', 'connect')
            run = self.fails(125 if ours else 7, '--json', '--api-url', NOWHERE, *name, *words,
                             stdin_file=subprocess.DEVNULL)
            document = json.loads(run.stdout)
            self.assertEqual(document['code'], 'unreachable', document)
            self.assertIn(NOWHERE, document['message'])
            self.assertIn('hint', document)
            if ours:
                self.assertEqual(document['source'], 'atoll')

    def test_wrong_words_are_a_usage_error_with_a_suggestion(self):
        for words, hint in [(['sandbx'], "'atoll sandbox'"), (['sbx', 'lst'], "'atoll sandbox ls'"),
                            (['exec', 'i1'], "'atoll sandbox exec'"),
                            (['sbx', 'ls', '--jsno'], "'--json'")]:
            self.assertIn(hint, self.fails(2, *words).stderr.decode())
        self.assertIn("'atoll sandbox ls'", self.fails(2, 'help', 'sbx', 'lss').stderr.decode())
        for words in [['sbx', 'info'], ['sbx', 'ls', 'extra'], ['sbx', 'create', '--timeout', '0'],
                      ['sbx', 'create', '--timeout'], ['sbx', 'ls', '--color', 'pink'],
                      ['sbx', 'cp', 'a', 'b'], ['sbx', 'kill'], ['sbx', 'create', '--env', 'x'],
                      ['doctor', '--explain', 'nothing'], ['sbx'], ['sbx', 'ls', '-z']]:
            run = self.fails(2, *words)
            self.assertEqual(run.stdout, b'')
            document = self.json(*words, status=2)
            self.assertIn(document['code'], ('usage',), words)

    def test_the_version_is_told_in_every_way(self):
        self.assertEqual(self.ok('--version'), self.ok('version'))
        self.assertEqual(self.json('--version'), self.json('version'))

    def test_data_directory_gives_address_and_key(self):
        data = self.scratch()
        (data / 'env').write_text(f"export E2B_API_URL='{NOWHERE}'\nE2B_API_KEY=e2b_00\n")
        clean = {'E2B_API_URL': '', 'E2B_API_KEY': '', 'E2B_SANDBOX_URL': ''}
        self.assertIn(NOWHERE, self.json('sbx', 'ls', '--data', data, status=7)['message'])
        run = self.json('sbx', 'ls', env={**clean, 'ATOLL_DATA': str(data)}, status=7)
        self.assertIn(NOWHERE, run['message'])
        self.fails(3, 'sbx', 'ls', '--data', data / 'no')
        (data / 'env').write_text('E2B_API_URL=$(reboot)\n')
        self.fails(2, 'sbx', 'ls', '--data', data)


class Life(Cli):
    def test_create_list_info_kill(self):
        made = self.ok('sandbox', 'create', 'base', '--timeout', '5m', '--meta', 'job=4 2')
        self.assertRegex(made, rb'^[a-z0-9]{20,}\n$')
        box = made.decode().strip()
        self.addCleanup(atoll, 'sandbox', 'kill', box)
        self.assertIn(box, self.ok('sandbox', 'ls', '-q').decode().split())
        rows = [row.split('\t') for row in self.ok('sbx', 'list').decode().splitlines()]
        row = next(row for row in rows if row[0] == box)
        self.assertEqual(row[2], 'running')
        self.assertRegex(row[3], r'^\d{4}-\d\d-\d\dT')
        listed = next(b for b in self.json('sbx', 'ls') if b['sandboxID'] == box)
        self.assertEqual(listed['metadata'], {'job': '4 2'})
        shown = self.json('sandbox', 'get', box)
        self.assertEqual(shown['state'], 'running')
        self.assertNotIn('envdAccessToken', shown)
        self.assertIn(f'id\t{box}\n', self.ok('sandbox', 'info', box).decode())
        self.assertEqual(self.ok('sandbox', 'kill', box).decode().strip(), box)
        self.assertEqual(self.json('sandbox', 'info', box, status=3)['code'], 'not_found')
        self.fails(3, 'sandbox', 'kill', box)

    def test_a_unique_prefix_is_enough_and_an_ambiguous_one_lists_candidates(self):
        boxes = [self.sandbox(), self.sandbox()]
        shared = len(os.path.commonprefix(boxes))
        prefix = boxes[0][:shared + 1]
        others = self.ok('sbx', 'ls', '-q').decode().split()
        while sum(box.startswith(prefix) for box in others) > 1:
            prefix = boxes[0][:len(prefix) + 1]
        self.assertEqual(self.json('sbx', 'info', prefix)['sandboxID'], boxes[0])
        document = self.json('sbx', 'info', boxes[0][:shared], status=2)
        self.assertEqual(document['code'], 'ambiguous')
        self.assertIn(boxes[0], document['hint'])
        self.assertEqual(self.json('sbx', 'info', 'zzzz', status=3)['code'], 'not_found')

    def test_memory_that_ran_out_is_said_and_in_the_document(self):
        box = self.sandbox()
        hog = ['sandbox', 'exec', box, '--', 'python3', '-c', 'x = bytearray(2 << 30)']
        why = "out of memory: the sandbox's limit of 1024 MiB was reached"
        run = self.fails(137, *hog)
        self.assertIn(why, run.stderr.decode())
        self.assertEqual(self.json(*hog, status=137)['reason'], why)
        ended = self.json('sandbox', 'exec', box, '--', 'bash', '-c', 'kill -9 $$', status=137)
        self.assertEqual((ended['signal'], ended.get('reason')), ('SIGKILL', None))
        self.ok('sandbox', 'kill', box)

    def test_no_escape_byte_reaches_a_pipe(self):
        self.sandbox()
        for words in (['sbx', 'ls'], ['sbx', 'create', '--meta', 'bad=\x1b[31m'], ['doctor'],
                      ['key', 'ls'], ['help']):
            run = atoll(*words)
            self.assertNotIn(b'\x1b', run.stdout + run.stderr, words)
            if words[1:2] == ['create']:
                box = run.stdout.decode().strip()
                self.assertNotIn(b'\x1b', self.ok('sbx', 'info', box))
                self.ok('sbx', 'kill', box)

    def test_refusals_have_their_exit_codes(self):
        wrong = {'E2B_API_KEY': 'e2b_' + '0' * 40}
        self.assertEqual(self.json('sbx', 'ls', env=wrong, status=4)['code'], 'unauthorized')
        self.assertEqual(self.json('sbx', 'create', 'no-such', status=3)['code'], 'not_found')
        self.assertEqual(self.json('sbx', 'ls', '--api-url', NOWHERE, status=7)['code'],
                         'unreachable')

    @unittest.skipUnless(shutil.which('openssl'), 'needs openssl to make a certificate')
    def test_a_server_that_cannot_prove_its_name_is_refused(self):
        here = self.scratch()
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '1',
                        '-subj', '/CN=127.0.0.1', '-keyout', here / 'key', '-out', here / 'cert'],
                       check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(here / 'cert', here / 'key')
        asked = []

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)

        with http.server.HTTPServer(('127.0.0.1', 0), Answer) as server:
            server.socket = context.wrap_socket(server.socket, server_side=True)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            document = self.json('sbx', 'ls', '--api-url',
                                 f'https://127.0.0.1:{server.server_address[1]}', status=7)
            server.shutdown()
        self.assertEqual(document['code'], 'certificate')
        self.assertIn('--ca-file', document['hint'])
        self.assertEqual(asked, [])

    def test_with_stdin_closed_nothing_waits(self):
        box = self.sandbox()
        for words in (['sbx', 'ls'], ['sbx', 'exec', box, '--', 'cat'], ['key', 'ls'],
                      ['sbx', 'info', box], ['version']):
            run = subprocess.run(['sh', '-c', 'exec "$0" "$@" <&-', ATOLL, *words], timeout=30,
                                 capture_output=True, check=False)
            self.assertEqual(run.returncode, 0, run.stderr)


class Exec(Cli):
    @classmethod
    def setUpClass(cls):
        cls.box = atoll('sandbox', 'create', 'base').stdout.decode().strip()

    @classmethod
    def tearDownClass(cls):
        atoll('sandbox', 'kill', cls.box)

    def exec(self, *words, **more):
        return atoll('sandbox', 'exec', self.box, *words, **more)

    def test_exit_codes_pass_through(self):
        for script, status in [('exit 0', 0), ('exit 42', 42), ('exit 125', 125),
                               ('kill -9 $$', 137), ('kill -15 $$', 143)]:
            self.assertEqual(self.exec('--', 'sh', '-c', script).returncode, status, script)
        self.assertEqual(self.exec('--', 'no-such-command').returncode, 127)
        self.assertEqual(self.exec('--', '/etc/passwd').returncode, 126)
        self.assertEqual(self.exec('--timeout', '1', '--', 'sleep', '30').returncode, 124)

    def test_failures_of_ours_are_125(self):
        for words in ([], ['--cwd', '/no/such', '--', 'ls'], ['--user', 'nobodyhere', '--', 'ls'],
                      ['--env', 'x', '--', 'ls'], ['--api-url', NOWHERE, '--', 'ls']):
            run = self.exec(*words)
            self.assertEqual(run.returncode, 125, words)
            self.assertTrue(run.stderr.startswith(b'atoll: '), run.stderr)
        gone = self.json('sandbox', 'exec', 'i' + '0' * 20, '--', 'ls', status=125)
        self.assertEqual((gone['code'], gone['source']), ('not_found', 'atoll'))

    def test_argv_is_exact(self):
        words = ['', 'a b', '$HOME', '*', "'", '"', '\\', 'é', '--', '--json', '-h', '\n']
        run = self.exec('--', 'python3', '-c', 'import sys, json; print(json.dumps(sys.argv[1:]))',
                        *words)
        self.assertEqual(json.loads(run.stdout), words)
        self.assertEqual(self.exec('echo', '--json', '-q').stdout, b'--json -q\n')

    def test_streams_are_apart_and_binary_exact(self):
        run = self.exec('--', 'python3', '-c', 'import os\nos.write(1, bytes(range(256)))\n'
                        'os.write(2, bytes(range(255, -1, -1)))')
        self.assertEqual(run.stdout, bytes(range(256)))
        self.assertEqual(run.stderr, bytes(range(255, -1, -1)))

    def test_large_stdin_and_stdout(self):
        data = os.urandom(1 << 20) * 16
        run = self.exec('--', 'cat', stdin=data)
        self.assertEqual(hashlib.sha256(run.stdout).digest(), hashlib.sha256(data).digest())
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.seek(0)
            run = self.exec('--', 'sha256sum', stdin_file=file)
        self.assertEqual(run.stdout.split()[0].decode(), hashlib.sha256(data).hexdigest())

    def test_slow_reader_holds_the_command_back(self):
        with subprocess.Popen([ATOLL, 'sbx', 'exec', '-n', self.box, '--', 'sh', '-c',
                               'yes & p=$!; sleep 2; cat /proc/$p/io >&2; kill $p'],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
            # Nothing of it comes while nobody reads the rest: that is what holds the command back.
            io = run.stderr.read(1) if select.select([run.stderr], [], [], 10)[0] else b''
            total = len(run.stdout.read())
            io += run.stderr.read()
            self.assertEqual(run.wait(), 0)
        written = int(next(line.split()[1] for line in io.decode().splitlines()
                           if line.startswith('wchar')))
        self.assertLess(written, 16 << 20)
        self.assertGreaterEqual(total, 1 << 16)

    def test_reader_that_leaves_ends_the_command(self):
        with subprocess.Popen([ATOLL, 'sbx', 'exec', '-n', self.box, '--', 'sh', '-c',
                               'echo $$; exec yes'], stdout=subprocess.PIPE) as run:
            pid = run.stdout.readline().decode().strip()
            run.stdout.close()
            self.assertEqual(run.wait(60), 141)
        end = time.monotonic() + 30
        while self.exec('--', 'kill', '-0', pid).returncode == 0:
            self.assertLess(time.monotonic(), end, 'it lives on')

    def test_environment_directory_user(self):
        run = self.exec('-e', 'A=b=c', '-w', '/tmp', '-u', 'root', '--', 'sh', '-c',
                        'echo "$A $PWD $(id -un)"')
        self.assertEqual(run.stdout, b'b=c /tmp root\n')

    def test_json_document(self):
        done = self.json('sbx', 'exec', self.box, '--', 'sh', '-c', 'echo hi; printf "\\377" >&2;'
                         'exit 3', status=3)
        self.assertEqual((done['source'], done['exit_code'], done['signal']), ('command', 3, None))
        self.assertEqual(done['stdout'], 'hi\n')
        self.assertEqual(base64.b64decode(done['stderr']), b'\xff')
        self.assertEqual(done['stderr_encoding'], 'base64')
        self.assertGreaterEqual(done['duration_ms'], 0)
        done = self.json('sbx', 'exec', self.box, '--', 'sh', '-c', 'kill -9 $$', status=137)
        self.assertEqual((done['exit_code'], done['signal']), (137, 'SIGKILL'))
        done = self.json('sbx', 'exec', self.box, '--timeout', '1', '--', 'sleep', '9', status=124)
        self.assertTrue(done['timed_out'])

    def test_signals_reach_the_command(self):
        for signo in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen([ATOLL, 'sbx', 'exec', self.box, '--', 'sh', '-c',
                                   'trap "echo caught; exit 9" INT TERM; echo ready;'
                                   'while :; do sleep 0.1; done'],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as run:
                self.assertEqual(run.stdout.readline(), b'ready\n')
                run.send_signal(signo)
                self.assertEqual(run.stdout.read(), b'caught\n')
                self.assertEqual(run.wait(60), 9)

    def test_second_interrupt_kills(self):
        with subprocess.Popen([ATOLL, 'sbx', 'exec', self.box, '--', 'sh', '-c',
                               'trap "" INT TERM; echo ready; sleep 60'],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as run:
            self.assertEqual(run.stdout.readline(), b'ready\n')
            run.send_signal(signal.SIGINT)
            self.interrupt_is_taken(run.pid)
            run.send_signal(signal.SIGINT)
            self.assertEqual(run.wait(60), 137)

    def test_what_the_command_started_ends_with_it(self):
        # A shell with children in its group, one that has ended before its child, and a time-out.
        tree = 'sleep {0}.5 & sleep {0}.5 & echo ready; wait'
        for mark, script, signo in ((7001, tree, signal.SIGTERM), (7002, tree, signal.SIGINT), (7003, tree, signal.SIGHUP),
                                    (7004, 'sleep {0}.5 & echo ready', signal.SIGTERM), (7005, tree, None),
                                    (7006, 'sleep {0}.5 & echo ready', signal.SIGINT)):
            words = ['--timeout', '2'] if signo is None else []
            with subprocess.Popen([ATOLL, 'sbx', 'exec', self.box, *words, '--', 'sh', '-c', script.format(mark)],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as run:
                self.assertEqual(run.stdout.readline(), b'ready\n')
                if signo:
                    run.send_signal(signo)
                self.assertNotEqual(run.wait(60), 125)
            self.all_end(mark)
        # On purpose it may stay.
        self.exec('--timeout', '2', '--', 'sh', '-c', 'setsid sleep 7009.5 >/dev/null 2>&1 & sleep 60')
        self.assertEqual(self.exec('--', 'pkill', '-f', 'sleep 7009.5').returncode, 0)

    def all_end(self, mark):
        end = time.monotonic() + 30
        while self.exec('--', 'pgrep', '-f', f'^sleep {mark}[.]5').returncode == 0:
            self.assertLess(time.monotonic(), end, f'{mark} lives on')
            time.sleep(0.1)

    def interrupt_is_taken(self, pid):
        """Waits until none is pending: two of them at once would be one."""
        end, pending = time.monotonic() + 30, 1 << signal.SIGINT - 1
        while pending & 1 << signal.SIGINT - 1:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
            status = pathlib.Path(f'/proc/{pid}/status').read_text()
            pending = int(re.search(r'ShdPnd:\t(\w+)', status)[1], 16)

    def test_sandbox_that_ends_meanwhile_is_named(self):
        box = self.sandbox()
        with subprocess.Popen([ATOLL, 'sbx', 'exec', box, '--json', '--', 'sleep', '60'],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as run:
            time.sleep(0.7)
            self.ok('sbx', 'kill', box)
            self.assertEqual(run.wait(20), 125)
            self.assertEqual(json.loads(run.stdout.read())['code'], 'not_found')


class Run(Cli):
    def boxes(self):
        return set(self.ok('sbx', 'ls', '-q').decode().split())

    def test_exit_code_and_nothing_left(self):
        before = self.boxes()
        run = atoll('run', 'base', '-e', 'A=b', '--', 'sh', '-c', 'echo $A; exit 42')
        self.assertEqual((run.returncode, run.stdout), (42, b'b\n'))
        self.assertEqual(self.boxes() - before, set())

    def test_without_a_command_a_shell_reads_stdin(self):
        self.assertEqual(atoll('run', 'base', stdin=b'cd /tmp\npwd\nexit 5\n').stdout, b'/tmp\n')

    def test_keep_leaves_the_sandbox(self):
        run = atoll('run', 'base', '--keep', '--', 'touch', '/tmp/mark')
        box = run.stderr.decode().strip()
        self.addCleanup(atoll, 'sbx', 'kill', box)
        self.assertEqual(self.ok('sbx', 'exec', box, '--', 'ls', '/tmp/mark'), b'/tmp/mark\n')

    def test_interrupt_ends_command_and_sandbox(self):
        before = self.boxes()
        with subprocess.Popen([ATOLL, 'run', 'base', '--', 'sh', '-c', 'echo ready; exec sleep 60'],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as run:
            self.assertEqual(run.stdout.readline(), b'ready\n')
            run.send_signal(signal.SIGINT)
            self.assertIn(run.wait(20), (130, 143))
        self.assertEqual(self.boxes() - before, set())

    def test_unknown_template_is_ours(self):
        document = self.json('run', 'no-such', '--', 'true', status=125)
        self.assertEqual((document['source'], document['code']), ('atoll', 'not_found'))


class Copy(Cli):
    @classmethod
    def setUpClass(cls):
        cls.box = atoll('sandbox', 'create', 'base').stdout.decode().strip()

    @classmethod
    def tearDownClass(cls):
        atoll('sandbox', 'kill', cls.box)

    def cp(self, *words, **more):
        return self.ok('sandbox', 'cp', *words, timeout=300, **more)

    def test_large_file_there_and_back(self):
        here = self.scratch()
        with open(here / 'up', 'wb') as file:
            block = os.urandom(1 << 20)
            for i in range(128):
                file.write(struct.pack('<Q', i) + block)
        self.cp(here / 'up', f'{self.box}:/tmp/big')
        self.cp(f'{self.box}:/tmp/big', here / 'down')
        subprocess.run(['cmp', here / 'up', here / 'down'], check=True)
        self.assertEqual(os.listdir(here), ['up', 'down'] if os.listdir(here)[0] == 'up'
                         else ['down', 'up'])
        self.ok('sbx', 'exec', self.box, '--', 'rm', '/tmp/big')

    def test_stdin_stdout_names_and_modes(self):
        here = self.scratch()
        self.cp('-', f'{self.box}:/tmp/dir name/from stdin', stdin=b'abc\0')
        self.assertEqual(self.cp(f'{self.box}:/tmp/dir name/from stdin', '-'), b'abc\0')
        self.cp(f'{self.box}:/tmp/dir name/from stdin', here)
        self.assertEqual((here / 'from stdin').read_bytes(), b'abc\0')
        (here / 'tool').write_text('#!/bin/sh\necho works\n')
        (here / 'tool').chmod(0o755)
        self.cp(here / 'tool', f'{self.box}:/tmp/')
        self.assertEqual(self.ok('sbx', 'exec', self.box, '--', '/tmp/tool'), b'works\n')
        self.cp(f'{self.box}:/tmp/tool', here / 'back')
        self.assertTrue((here / 'back').stat().st_mode & 0o100)
        self.cp(here / 'tool', f'{self.box}:relative')
        self.assertEqual(self.ok('sbx', 'exec', self.box, '--', 'sh', '-c', 'cat ~/relative'),
                         (here / 'tool').read_bytes())

    def test_directories_there_and_back(self):
        here = self.scratch()
        deep = here / 'tree' / ('d' * 120) / ('e' * 120)
        deep.mkdir(parents=True)
        (deep / ('f' * 200)).write_text('long name')
        (here / 'tree' / 'link').symlink_to('data')
        (here / 'tree' / 'data').write_bytes(os.urandom(300000))
        (here / 'tree' / 'empty').mkdir()
        (here / 'tree' / 'tool').write_text('x')
        (here / 'tree' / 'tool').chmod(0o750)
        self.cp(here / 'tree', f'{self.box}:/tmp/copy')
        self.cp(f'{self.box}:/tmp/copy', here / 'back')
        subprocess.run(['diff', '-r', '--no-dereference', here / 'tree', here / 'back'], check=True)
        self.assertEqual((here / 'back/tool').stat().st_mode & 0o777, 0o750)
        self.cp(here / 'tree', f'{self.box}:/tmp/copy')
        self.assertIn(b'data', self.ok('sbx', 'exec', self.box, '--', 'ls', '/tmp/copy/tree'))
        archive = self.cp(f'{self.box}:/tmp/copy', '-')
        self.ok('sbx', 'exec', self.box, '--', 'mkdir', '/tmp/again')
        self.cp('-', f'{self.box}:/tmp/again', stdin=archive)
        self.ok('sbx', 'exec', self.box, '--', 'diff', '-r', '/tmp/copy', '/tmp/again')

    def test_links_of_a_sandbox_lead_nowhere(self):
        here = self.scratch()
        (outside := here / 'outside').mkdir()
        inside = ('sbx', 'exec', self.box, '--', 'sh', '-ec')
        self.ok(*inside, f'mkdir /tmp/proj; cd /tmp/proj; echo x >file; ln -s file near; ln -s {outside} docs')
        run = self.fails(0, 'sbx', 'cp', f'{self.box}:/tmp/proj', here)
        self.assertEqual(sorted(os.listdir(here / 'proj')), ['file', 'near'])
        self.assertIn(f"left out: 'docs' -> '{outside}'; --links".encode(), run.stderr)
        self.cp('--links', f'{self.box}:/tmp/proj', here)
        self.assertEqual(os.readlink(here / 'proj/docs'), str(outside))
        # What that has left: nothing goes through it, whichever way it is met.
        self.ok(*inside, 'cd /tmp/proj; rm docs; mkdir docs; echo evil >docs/evil')
        for source, to in (('/tmp/proj/docs', here / 'proj'), ('/tmp/proj', here), ('/tmp/proj/.', here / 'proj')):
            self.assertIn(b'link', self.fails(1, 'sbx', 'cp', f'{self.box}:{source}', to).stderr)
        self.assertEqual(os.listdir(outside), [])
        (here / 'proj/file').unlink()
        (here / 'proj/file').symlink_to(outside / 'file')
        self.cp(f'{self.box}:/tmp/proj/file', here / 'proj')
        self.assertEqual((os.listdir(outside), (here / 'proj/file').is_symlink()), ([], False))
        # One that the user names is the user's.
        self.cp(f'{self.box}:/tmp/proj/file', here / 'proj/docs')
        self.cp(f'{self.box}:/tmp/proj/docs', here / 'proj/docs/')
        self.assertEqual(sorted(os.listdir(outside)), ['docs', 'file'])
        self.assertEqual((outside / 'docs/evil').read_text(), 'evil\n')

    def test_what_is_not_there(self):
        here = self.scratch()
        self.fails(3, 'sbx', 'cp', here / 'no', f'{self.box}:/tmp/x')
        self.fails(3, 'sbx', 'cp', f'{self.box}:/no/such', here / 'x')
        self.assertEqual(list(here.iterdir()), [])
        self.fails(2, 'sbx', 'cp', f'{self.box}:/a', f'{self.box}:/b')


class Terminal:
    """A person: the program runs in a pseudo-terminal of its own."""

    def __init__(self, *words, rows=30, columns=100):
        ready, go = os.pipe()  # it begins when the terminal has its size, and its settings were seen
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.close(go)
            os.read(ready, 1)
            os.execve(ATOLL, [ATOLL, *words], {**os.environ, 'TERM': 'xterm'})
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.fd)
        os.close(ready)
        os.close(go)
        self.seen = b''

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))

    def send(self, text):
        os.write(self.fd, text)

    def expect(self, text, seconds=60):
        end = time.monotonic() + seconds
        while text not in self.seen:
            if not select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f'{text!r} did not come; seen: {self.seen!r}')
            try:
                self.seen += os.read(self.fd, 65536)
            except OSError as error:
                raise AssertionError(f'{text!r} did not come; seen: {self.seen!r}') from error
        before, self.seen = self.seen.split(text, 1)
        return before

    def wait(self, seconds=60):
        """Its exit code. The terminal's settings are looked at before it is gone."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.after = termios.tcgetattr(self.fd)
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    self.seen += os.read(self.fd, 65536)
                except OSError:
                    pass
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError(f'it does not end; seen: {self.seen!r}')


class Tty(Cli):
    @classmethod
    def setUpClass(cls):
        cls.box = atoll('sandbox', 'create', 'base').stdout.decode().strip()

    @classmethod
    def tearDownClass(cls):
        atoll('sandbox', 'kill', cls.box)

    def shell(self):
        terminal = Terminal('sbx', 'exec', '-it', '-e', 'PS1=ready:', self.box, '--', 'bash',
                            '--norc')
        terminal.expect(b'ready:')
        return terminal

    def test_nothing_that_a_sandbox_wrote_commands_the_terminal(self):
        evil = b'\x1b]0;owned\x07\x1b[2J\xc2\x9b31m\x7fend'
        self.ok('sbx', 'exec', self.box, '--', 'bash', '-c', "printf '%s' " + shlex.quote(evil.decode()) + ' >/tmp/evil')
        where = f'sandboxes/{self.box}/files?path=/tmp/evil'
        self.assertEqual(self.ok('api', 'GET', where).rstrip(b'\n'), evil)  # a pipe gets what is there
        made = self.ok('sbx', 'create', 'base', '--meta', f'evil={evil.decode()}').decode().strip()
        self.addCleanup(self.ok, 'sbx', 'kill', made)
        for words in (['api', 'GET', where], ['sbx', 'info', made], ['sbx', 'info', made, '--json'],
                      ['api', 'GET', f'sandboxes/{made}'], ['sbx', 'logs', self.box], ['events', '--json']):
            terminal = Terminal(*words)
            self.assertEqual(terminal.wait(), 0, (words, terminal.seen))
            seen = re.sub(rb'\x1b\[\d*m', b'', terminal.seen)  # our own styles
            self.assertIsNone(re.search(rb'[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]', seen), (words, seen))
        terminal = Terminal('sbx', 'exec', self.box, '--', 'cat', '/tmp/evil')  # which is what was asked for
        terminal.expect(evil)
        self.assertEqual(terminal.wait(), 0)

    def test_size_resize_keys_and_exit_code(self):
        terminal = self.shell()
        terminal.send(b'tty; echo $TERM; stty size\n')
        terminal.expect(b'/dev/pts/')
        terminal.expect(b'xterm')
        terminal.expect(b'30 100')
        terminal.resize(40, 120)
        terminal.send(b'until [ "$(stty size)" = "40 120" ]; do sleep 0.1; done; echo resi""zed\n')
        terminal.expect(b'resized')
        terminal.send(b'echo slee""ping; sleep 300\n')
        terminal.expect(b'sleeping')
        self.interrupt(terminal)
        terminal.send(b'echo code $?\n')
        terminal.expect(b'code 130')
        terminal.send(b'exit 7\n')
        self.assertEqual(terminal.wait(), 7)
        self.assertEqual(terminal.after, terminal.before)

    def interrupt(self, terminal):
        """Between two commands the shell may take it for itself and wait on."""
        for _ in range(20):
            terminal.send(b'\x03')
            with contextlib.suppress(AssertionError):
                terminal.expect(b'ready:', 3)
                return
        self.fail('the command goes on')

    def test_run_without_a_command_is_a_login_shell(self):
        terminal = Terminal('run', 'base')
        terminal.expect(b'$ ')
        terminal.send(b'shopt -q login_shell && echo "log""in"; exit 3\n')
        terminal.expect(b'login')
        self.assertEqual(terminal.wait(), 3)
        self.assertEqual(terminal.after, terminal.before)

    def test_end_of_file_key_ends_the_shell(self):
        terminal = self.shell()
        terminal.send(b'\x04')
        self.assertEqual(terminal.wait(), 0)

    def test_terminal_is_put_back_when_a_signal_ends_us(self):
        for signo in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGSEGV):
            terminal = self.shell()
            self.assertNotEqual(termios.tcgetattr(terminal.fd), terminal.before)
            os.kill(terminal.pid, signo)
            self.assertIn(terminal.wait(), (128 + signo, -signo))
            self.assertEqual(terminal.after, terminal.before, signo)

    def test_the_jobs_of_a_shell_end_with_its_terminal(self):
        terminal = self.shell()
        terminal.send(b'sleep 7011.5 & sleep 7011.5 & echo beg""un; sleep 7011.5\n')
        terminal.expect(b'begun')
        os.kill(terminal.pid, signal.SIGHUP)
        self.assertIn(terminal.wait(), (128 + signal.SIGHUP, -signal.SIGHUP))
        end = time.monotonic() + 30
        while atoll('sbx', 'exec', self.box, '--', 'pgrep', '-f', '^sleep 7011').returncode == 0:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)

    def test_without_i_the_terminal_is_left_alone(self):
        terminal = Terminal('sbx', 'exec', self.box, '--', 'cat')
        self.assertEqual(terminal.wait(), 0)

    def test_a_person_gets_a_table_and_relative_times(self):
        terminal = Terminal('sbx', 'ls')
        terminal.expect(b'TEMPLATE')
        terminal.expect(self.box.encode())
        terminal.expect(b' ago')
        self.assertEqual(terminal.wait(), 0)


class Keys(Cli):
    def test_a_key_works_until_it_is_revoked(self):
        key = self.ok('key', 'create', 'cli test').decode().strip()
        self.assertRegex(key, r'^e2b_[0-9a-f]{40}$')
        self.ok('sbx', 'ls', env={'E2B_API_KEY': key})
        rows = [row.split('\t') for row in self.ok('key', 'ls').decode().splitlines()]
        row = next(row for row in rows if row[1] == 'cli test')
        self.assertNotIn(key, self.ok('key', 'ls').decode())
        self.assertTrue(row[2].endswith(key[-4:]), row)
        self.assertEqual(self.ok('key', 'revoke', row[0][:12]).decode().strip(), row[0])
        self.assertEqual(self.json('sbx', 'ls', env={'E2B_API_KEY': key}, status=4)['code'],
                         'unauthorized')
        self.fails(3, 'key', 'revoke', 'cli test')


class Doctor(Cli):
    def test_says_that_sandboxes_run_here(self):
        document = self.json('doctor')
        self.assertTrue(document['ready'])
        checks = {check['id']: check for check in document['checks']}
        self.assertEqual(checks['server']['status'], 'ok')
        self.assertEqual(checks['key']['status'], 'ok')
        self.assertEqual(checks['kernel']['status'], 'ok')

    def test_without_a_server_the_machine_decides_and_each_problem_has_a_fix(self):
        run = atoll('doctor', '--json', '--api-url', NOWHERE)
        document = json.loads(run.stdout)
        self.assertEqual(run.returncode, 0 if document['ready'] else 1)
        for check in document['checks']:
            self.assertIn(check['status'], ('ok', 'warn', 'fail', 'skipped'))
            if check['status'] != 'ok':
                self.assertTrue(check['fix'], check)

    @unittest.skipUnless(os.geteuid() == 0, 'needs root to become an ordinary user')
    def test_an_ordinary_user_is_told_what_only_root_can_see(self):
        place = self.scratch()  # the checkout may be closed to him
        place.chmod(0o755)
        for name in ('atoll', 'atoll-warden'):
            shutil.copy(pathlib.Path(ATOLL).with_name(name), place)
        run = subprocess.run([place / 'atoll', 'doctor', '--json', '--api-url', NOWHERE], cwd='/',
                             user=65534, group=65534, extra_groups=[], capture_output=True,
                             stdin=subprocess.DEVNULL, timeout=60, check=False)
        document = json.loads(run.stdout)
        self.assertEqual((run.returncode, document['ready'], document['root']), (1, False, False))
        self.assertIn('skipped', [check['status'] for check in document['checks']])

    @unittest.skipUnless(os.geteuid() == 0, 'needs root to change settings')
    def test_raises_the_kernels_settings(self):
        place = self.scratch()
        small = {'kernel/pid_max': '32768', 'kernel/threads-max': '30000', 'fs/file-max': '100000',
                 'user/max_user_namespaces': '100'}
        if pathlib.Path('/proc/sys/vm/memfd_noexec').exists():
            small['vm/memfd_noexec'] = '2'
        covers = ''
        for name, value in small.items():  # files in the place of the machine's own
            (place / name.replace('/', '.')).write_text(value + '\n')
            covers += f'mount --bind {place}/{name.replace("/", ".")} /proc/sys/{name}\n'
        (place / 'sysctl.d').mkdir()
        (place / 'sysctl.d/60-atoll.conf').write_text('# mine\nkernel.pid_max = 40000\nvm.swappiness = 7\n')
        script = f"""set -e
            mkdir -p /etc/sysctl.d
            mount --bind {place}/sysctl.d /etc/sysctl.d
            {covers}
            {ATOLL} doctor --json --api-url {NOWHERE} >{place}/before || true
            {ATOLL} doctor --api-url {NOWHERE} >{place}/offered || true
            {ATOLL} doctor --fix --api-url {NOWHERE} >{place}/said || true
            {ATOLL} doctor --json --api-url {NOWHERE} >{place}/after || true
            {ATOLL} doctor --fix --api-url {NOWHERE} | head -1 >{place}/again"""
        subprocess.run(['unshare', '--mount', 'bash', '-c', script], check=True, timeout=120)

        def status(name):
            return {check['id']: check['status'] for check in json.loads((place / name).read_text())['checks']}
        for when, want in (('before', 'warn'), ('after', 'ok')):
            self.assertEqual([status(when)[name] for name in ('pids', 'file-max', 'userns')], [want] * 3)
        self.assertIn('sudo atoll doctor --fix sets', (place / 'offered').read_text())
        said = (place / 'said').read_text()
        for line in ('set kernel.pid_max = 4194304 (was 32768)', 'set kernel.threads-max = 4194304 (was 30000)',
                     'set fs.file-max = 9223372036854775807 (was 100000)',
                     'set user.max_user_namespaces = 65536 (was 100)',
                     *(['set vm.memfd_noexec = 0 (was 2)'] if 'vm/memfd_noexec' in small else [])):
            self.assertIn(line, said)
        kept = (place / 'sysctl.d/60-atoll.conf').read_text().splitlines()
        self.assertEqual(kept[:2], ['# mine', 'vm.swappiness = 7'])
        self.assertIn('kernel.pid_max = 4194304', kept)
        self.assertEqual(len([line for line in kept if line.startswith('kernel.pid_max')]), 1)
        self.assertIn('No setting', (place / 'again').read_text())

    @unittest.skipUnless(os.geteuid() == 0, 'needs root to change settings')
    def test_says_what_it_may_not_set_and_sets_the_others(self):
        place = self.scratch()
        (place / 'first').write_text('30000\n')
        (place / 'second').write_text('100\n')
        (place / 'sysctl.d').mkdir()
        script = f'''set -e
            mkdir -p /etc/sysctl.d
            mount --bind {place}/sysctl.d /etc/sysctl.d
            mount --bind {place}/first /proc/sys/kernel/threads-max
            mount -o remount,ro,bind /proc/sys/kernel/threads-max
            mount --bind {place}/second /proc/sys/user/max_user_namespaces
            ! {ATOLL} doctor --fix --api-url {NOWHERE} >{place}/said 2>{place}/wrong'''
        subprocess.run(['unshare', '--mount', 'bash', '-c', script], check=True, timeout=120)
        said = (place / 'said').read_text()
        self.assertIn('set kernel.threads-max: ', said)
        self.assertIn('Read-only file system', said)
        self.assertIn('set user.max_user_namespaces = 65536 (was 100)', said)
        self.assertIn('kernel.threads-max', (place / 'wrong').read_text())
        self.assertEqual((place / 'second').read_text().strip(), '65536')

    @unittest.skipUnless(os.geteuid() == 0, 'needs root to become an ordinary user')
    def test_an_ordinary_user_raises_nothing(self):
        place = self.scratch()
        place.chmod(0o755)
        shutil.copy(ATOLL, place)
        run = subprocess.run([place / 'atoll', 'doctor', '--fix', '--api-url', NOWHERE], cwd='/', user=65534,
                             group=65534, extra_groups=[], capture_output=True, text=True, timeout=60,
                             stdin=subprocess.DEVNULL, check=False)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn('sudo atoll doctor --fix', run.stderr)

    def test_explains_every_check(self):
        hint = self.json('doctor', '--explain', 'nothing', status=2)['hint']
        for name in hint.removeprefix('one of: ').split():
            self.assertIn(name + ': ', self.ok('doctor', '--explain', name, timeout=30).decode())


if __name__ == '__main__':
    unittest.main()
