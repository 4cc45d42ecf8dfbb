"""Commands: what goes in, what comes out, and how they end."""
import time

from e2b import (AuthenticationException, CommandExitException, NotFoundException, Sandbox,
                 SandboxException, TimeoutException)
from support import Boxed, Unboxed, eventually


class Commands(Boxed):
    OPTIONS = {'envs': {'PLACE': 'sandbox', 'BOTH': 'sandbox'}}

    def out(self, command, **options):
        return self.box.commands.run(command, **options).stdout

    def test_outputs_come_apart(self):
        seen, errors = [], []
        result = self.box.commands.run('echo one; echo two >&2', on_stdout=seen.append,
                                       on_stderr=errors.append)
        self.assertEqual((result.stdout, result.stderr, result.exit_code), ('one\n', 'two\n', 0))
        self.assertEqual((''.join(seen), ''.join(errors)), ('one\n', 'two\n'))

    def test_a_failure_carries_code_and_outputs(self):
        with self.assertRaises(CommandExitException) as caught:
            self.box.commands.run('echo so far; echo why >&2; exit 9')
        self.assertEqual((caught.exception.exit_code, caught.exception.stdout, caught.exception.stderr),
                         (9, 'so far\n', 'why\n'))

    def test_shell_user_place_and_environment(self):
        self.assertEqual(self.out('shopt -q login_shell && pwd && id -un'), '/home/user\nuser\n')
        self.assertEqual(self.out('id -un; pwd', user='root', cwd='/tmp'), 'root\n/tmp\n')
        self.assertEqual(self.out('echo $PLACE $BOTH $OWN', envs={'BOTH': 'command', 'OWN': 'ü'}),
                         'sandbox command ü\n')

    def test_what_cannot_begin_is_explained(self):
        with self.assertRaisesRegex(SandboxException, '/no/such/place'):
            self.box.commands.run('true', cwd='/no/such/place')
        with self.assertRaisesRegex(AuthenticationException, 'nobody-here'):
            self.box.commands.run('true', user='nobody-here')

    def test_large_output_is_whole(self):
        self.assertEqual(self.out('seq 200000'), ''.join(f'{i}\n' for i in range(1, 200001)))

    def test_characters_cut_in_the_middle_survive(self):
        self.assertEqual(self.out(r"printf '\xc3'; sleep 0.2; printf '\xbc'"), 'ü')

    def test_a_time_limit_is_no_exit_code(self):
        began = time.monotonic()
        with self.assertRaises(TimeoutException):
            self.box.commands.run('sleep 31', timeout=1)
        self.assertLess(time.monotonic() - began, 25)
        eventually(lambda: not self.running('sleep 31'), 'the end of the process')

    def running(self, text):
        return any(text in ' '.join([p.cmd, *p.args]) for p in self.box.commands.list())

    def test_background_listed_killed_gone(self):
        command = self.box.commands.run('exec sleep 77', background=True)
        listed = {p.pid: p for p in self.box.commands.list()}
        self.assertIn('exec sleep 77', listed[command.pid].args)
        self.assertTrue(command.kill())
        self.assertFalse(self.box.commands.kill(command.pid))
        with self.assertRaises(CommandExitException):
            command.wait()
        self.assertFalse(self.running('sleep 77'))

    def test_input_is_answered_before_its_end(self):
        command = self.box.commands.run('cat; echo done', background=True, stdin=True)
        self.box.commands.send_stdin(command.pid, 'first\n')
        self.assertEqual(next(iter(command))[0], 'first\n')
        command.send_stdin(b'second\n')
        command.close_stdin()
        self.assertEqual(command.wait().stdout, 'first\nsecond\ndone\n')

    def test_input_as_a_stream(self):
        command = self.box.commands.run('wc -c', background=True, stdin=True)
        self.box.commands.stream_input(command.pid, ('x' * 1000 for _ in range(500)))
        self.box.commands.close_stdin(command.pid)
        self.assertEqual(command.wait().stdout.strip(), '500000')

    def test_one_client_goes_and_another_connects(self):
        command = self.box.commands.run('while read line; do echo "got $line"; done', stdin=True,
                                        background=True)
        command.disconnect()
        again = Sandbox.connect(self.box.sandbox_id).commands.connect(command.pid)
        self.box.commands.send_stdin(command.pid, 'it\n')
        self.box.commands.close_stdin(command.pid)
        self.assertEqual(again.wait().stdout, 'got it\n')
        with self.assertRaises(NotFoundException):
            self.box.commands.connect(4194000)


class Killed(Unboxed):
    def test_a_killed_sandbox_says_so_to_its_commands(self):
        box = self.make()
        command = box.commands.run('sleep 60', background=True)
        box.kill()
        with self.assertRaisesRegex(TimeoutException, 'killed or reached its end of life'):
            command.wait()
