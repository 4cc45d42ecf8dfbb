"""What `atoll serve` does about a crash of its own: it starts again, and sandboxes do not notice."""
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from harness.sandbox import Sandbox
from harness.server import Server

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent


def child(pid, name):
    found = subprocess.run(['pgrep', '-P', str(pid), '-x', name], capture_output=True, text=True,
                           check=False).stdout.split()
    return int(found[0]) if found else None


def wait_for(what, seconds=90):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        seen = what()
        if seen:
            return seen
        time.sleep(0.05)
    raise AssertionError('it did not come about')


class Keeper(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-keeper-')
        self.addCleanup(scratch.cleanup)
        pathlib.Path(scratch.name).chmod(0o755)
        self.server = Server(BUILD, scratch.name, '--pool', '2', '--stop-sandboxes', kept=True)
        self.addCleanup(self.server.stop)
        self.server.start()
        self.box = Sandbox(env=self.server.env())
        self.box.run('echo kept > file')

    def serving(self):
        return child(self.server.process.pid, 'atoll')

    def after_death_of(self, victim):
        """The server that stands after that one was killed."""
        before = self.serving()
        os.kill(victim, signal.SIGKILL)
        now = wait_for(lambda: self.serving() not in (before, None) and self.server.healthy()
                       and self.serving())
        self.assertEqual(self.box.run('cat file').text(), 'kept\n')
        with Sandbox(env=self.server.env()) as other:
            self.assertEqual(other.run('echo new').text(), 'new\n')
        return now

    def test_a_crash_of_server_or_warden_is_mended(self):
        server = self.after_death_of(self.serving())
        server = self.after_death_of(child(server, 'atoll-warden'))
        self.assertEqual(self.server.stop(), 0)
        self.assertFalse(pathlib.Path(f'/proc/{server}').exists())

    def test_a_next_one_that_cannot_start_is_not_the_last(self):
        before, version = self.serving(), self.server.data / 'version'
        good = version.read_text()
        version.write_text('not a number\n')
        os.kill(before, signal.SIGKILL)
        wait_for(lambda: 'status=1' in self.server.tail())
        version.write_text(good)
        wait_for(lambda: self.serving() not in (before, None) and self.server.healthy())
        self.assertEqual(self.box.run('cat file').text(), 'kept\n')

    def test_who_has_nothing_to_reload_does_not_end(self):
        before = self.serving()
        self.server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: 'nothing_to_reload' in self.server.tail())
        self.assertEqual(self.serving(), before)
        self.assertEqual(self.box.run('cat file').text(), 'kept\n')

    def test_one_that_was_told_to_leave_by_another_comes_again(self):
        before = self.serving()
        os.kill(before, signal.SIGUSR2)
        wait_for(lambda: self.serving() not in (before, None) and self.server.healthy())
        self.assertEqual(self.box.run('cat file').text(), 'kept\n')

    def test_the_keeper_takes_the_server_with_it(self):
        server = self.serving()
        self.server.kill()
        wait_for(lambda: not pathlib.Path(f'/proc/{server}').exists())
        self.server.start()  # the data directory is free again
        self.assertEqual(self.box.run('cat file').text(), 'kept\n')
