"""The short form of `make soak`: random work by many clients, crashes in between, nothing left over."""
import os
import pathlib
import tempfile
import unittest
import warnings

from harness import soak
from harness.server import Server

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent


class Soaked(unittest.TestCase):
    def test_nothing_is_lost_and_nothing_is_left(self):
        warnings.simplefilter('ignore', ResourceWarning)  # connections that a crash has cut
        with tempfile.TemporaryDirectory(prefix='atoll-soak-') as scratch:
            pathlib.Path(scratch).chmod(0o755)
            with Server(BUILD, scratch) as server:
                before = soak.settled(server)
                done = soak.Soak(server, clients=8, seconds=15, kill_every=4).run()
                self.assertGreater(done.get('crash', 0), 0)
                self.assertGreater(done.get('execute', 0), 0)
                soak.end_all(server.env())
                # A sanitizer keeps freed memory for a while: its amount says nothing here.
                self.assertEqual(soak.grown(before, soak.settled(server), memory_kib=1 << 20), {})
