"""Terminals."""
import re

from e2b import CommandExitException, PtySize
from support import Boxed, eventually


class Terminal(Boxed):
    def open(self, **options):
        pty = self.box.pty.create(PtySize(rows=24, cols=80), **options)
        self.addCleanup(self.box.pty.kill, pty.pid)
        return pty

    def type(self, pty, text):
        self.box.pty.send_stdin(pty.pid, text.encode())

    def until(self, pty, pattern):
        seen = ''
        for _, _, data in pty:
            seen += (data or b'').decode(errors='replace')
            if found := re.search(pattern, seen):
                return found
        self.fail(f'ended before {pattern}: {seen!r}')

    def test_size_and_resize(self):
        pty = self.open()
        self.type(pty, 'stty size; tty\n')
        self.until(pty, r'24 80\r\n/dev/pts/\d+')
        self.box.pty.resize(pty.pid, PtySize(rows=40, cols=132))
        self.type(pty, 'stty size; tput cols\n')
        self.until(pty, r'40 132\r\n132')

    def test_environment_place_and_user(self):
        pty = self.open(user='root', cwd='/etc', envs={'WORD': 'given'})
        self.type(pty, 'echo $WORD:$PWD:$(id -un)\n')
        self.until(pty, r'given:/etc:root\r\n')

    def test_how_it_ends(self):
        pty = self.open()
        self.type(pty, 'exit\n')
        self.assertEqual(pty.wait().exit_code, 0)
        pty = self.open()
        self.type(pty, 'exit 5\n')
        with self.assertRaises(CommandExitException) as caught:
            pty.wait()
        self.assertEqual(caught.exception.exit_code, 5)
        self.assertFalse(self.box.pty.kill(pty.pid))

    def test_one_goes_and_another_connects(self):
        pty = self.open()
        self.type(pty, 'X=$((40 + 2)); echo ready-$X\n')
        self.until(pty, 'ready-42')
        pty.disconnect()
        again = self.box.pty.connect(pty.pid)
        self.type(pty, 'echo still-$X\n')
        self.until(again, 'still-42')

    def test_control_c(self):
        pty = self.open()
        self.type(pty, 'echo go; sleep 99\n')
        self.until(pty, r'go\r\n')
        # Between two commands the shell may take it for itself and wait on.
        eventually(lambda: self.box.commands.run('pgrep -x sleep || true').stdout, 'the second command')
        self.type(pty, '\x03')
        self.until(pty, r'\^C[^$]*\$ ')  # what is typed before the prompt, the shell may drop
        self.type(pty, 'echo back-$?\n')
        self.until(pty, 'back-130')
