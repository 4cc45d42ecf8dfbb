"""Root opens nothing that a server, or a sandbox, could have put in its way.

The state directory is the server's: here it is what whoever got hold of a server might leave in it."""
import contextlib
import ctypes
import json
import os
import pathlib
import re
import select
import sqlite3
import stat
import struct
import subprocess
import tempfile
import threading
import unittest

from harness.sandbox import Sandbox
from harness.server import Failed, Server

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
ATOLL = BUILD / 'atoll'
SERVER = 0x70000000
JOURNAL_MAGIC, SECTOR = bytes.fromhex('d9d505f920a163d7'), 4096
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != 'ATOLL_DATABASE'}


def hot_journal(database, obeys):
    """A journal of SQLite's that has nothing to roll back, and belongs to a transaction over several
    databases whose list is the file `obeys`: whoever rolls back removes that file."""
    page, = struct.unpack('>H', database[16:18])
    head = JOURNAL_MAGIC + struct.pack('>5I', 0, 0, len(database) // page, SECTOR, page)
    name = os.fsencode(obeys)
    locked = 0x40000000 // page + 1  # the page that is never written
    return (head.ljust(SECTOR, b'\0') + struct.pack('>I', locked) + name +
            struct.pack('>2I', len(name), sum(name)) + JOURNAL_MAGIC)


class Crafted(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-root-', ignore_cleanup_errors=True)
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.scratch.chmod(0o755)
        self.server = Server(BUILD, self.scratch, '--pool', '0', '--network', 'none')
        self.server.environment = ENVIRONMENT
        self.data, self.state = self.server.data, self.server.data / 'state'
        self.addCleanup(self.server.stop)
        self.server.start()
        self.server.stop()
        self.victim = self.scratch / 'victim'
        self.victim.write_bytes(b'x' * 32)
        self.victim.chmod(0o600)

    def put(self, name, content):
        """As the server's user would have: over what was there."""
        path = self.state / name
        path.unlink(missing_ok=True)
        if content == 'pipe':
            os.mkfifo(path, 0o600)
        elif isinstance(content, pathlib.Path):
            path.symlink_to(content)
        else:
            path.write_bytes(content)
            path.chmod(0o600)
        os.lchown(path, SERVER, SERVER)

    def db(self, *words):
        return subprocess.run([ATOLL, 'db', *words, '--data', self.data], env=ENVIRONMENT, text=True,
                              capture_output=True, check=False, timeout=60)

    def refused(self):
        """What a start says that must fail and must not hang."""
        with self.assertRaises(Failed) as why:
            self.server.start(timeout=30)
        self.assertIn('the server ended with 1', str(why.exception))
        return str(why.exception)


class Database(Crafted):
    def test_a_journal_removes_no_file_of_roots(self):
        journal = hot_journal((self.state / 'atoll.db').read_bytes(), self.victim)
        for words in (('check',), ('migrate',), ('export', self.scratch / 'rows'),
                      ('import', '--force', self.scratch / 'rows')):
            with self.subTest(words[0]):
                self.put('atoll.db-journal', journal)
                self.db(*words)
                self.assertTrue(self.victim.exists())

    def test_such_a_journal_would_work(self):
        """On a database of its own, so that the test above means something."""
        database, file = self.scratch / 'own.db', self.scratch / 'removed'
        with contextlib.closing(sqlite3.connect(database)) as db:
            db.execute('CREATE TABLE t (x)')
            db.commit()
        file.write_text('x')
        pathlib.Path(f'{database}-journal').write_bytes(hot_journal(database.read_bytes(), file))
        with contextlib.closing(sqlite3.connect(database)) as db:
            db.execute('SELECT * FROM t').fetchall()
        self.assertFalse(file.exists())

    def test_links_and_pipes_beside_a_database_are_refused(self):
        for name in ('atoll.db-journal', 'atoll.db-wal', 'atoll.db-shm', 'atoll.db'):
            for content in (self.victim, 'pipe'):
                with self.subTest(name, content=content):
                    kept = (self.state / name).read_bytes() if name == 'atoll.db' else None
                    self.put(name, content)
                    for words in (('check',), ('migrate',)):
                        run = self.db(*words)
                        self.assertNotEqual(run.returncode, 0, run.stdout)
                        self.assertIn('not a plain file', run.stderr)
                    self.assertEqual(self.victim.read_bytes(), b'x' * 32)
                    (self.state / name).unlink()
                    if kept:
                        self.put(name, kept)

    def test_a_start_does_not_wait_for_a_pipe(self):
        self.put('atoll.db-wal', 'pipe')
        self.assertIn('not a plain file', self.refused())

    def test_what_it_makes_is_the_servers(self):
        rows = self.scratch / 'rows'
        self.assertEqual(self.db('export', rows).returncode, 0)
        self.assertEqual((rows.stat().st_uid, stat.S_IMODE(rows.stat().st_mode)), (0, 0o600))
        (self.state / 'atoll.db').unlink()
        run = self.db('import', rows)
        self.assertEqual(run.returncode, 0, run.stderr)
        for path in self.state.glob('atoll.db*'):
            self.assertEqual((path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)), (SERVER, 0o600), path)
        self.server.start()

    def test_a_database_elsewhere_is_opened_by_who_owns_its_directory(self):
        for owner, mode, made_by in ((SERVER, 0o700, SERVER), (65534, 0o755, 65534), (0, 0o755, 0),
                                     (0, 0o777, SERVER)):
            with self.subTest(owner=owner, mode=oct(mode)):
                place = self.scratch / f'of-{owner}-{mode}'
                place.mkdir()
                place.chmod(mode)
                os.chown(place, owner, owner)
                where = ('--database', f'sqlite:{place}/rows.db')
                run = self.db('copy', '--to', where[1].replace('rows.db', 'link.db/../rows.db'))
                self.assertNotEqual(run.returncode, 0)  # a directory that is not there
                run = self.db('copy', '--to', where[1])
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertEqual((place / 'rows.db').stat().st_uid, made_by)
                run = self.db('check', '--json', *where)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertEqual(json.loads(run.stdout)['problems'], [])


class Opened:
    """Who opens what in a directory: each open waits until its opener was looked at."""

    CONTENT, ADD, OPEN_PERM, ON_CHILD, ON_DIR, ALLOW = 4, 1, 0x10000, 0x08000000, 0x40000000, 1

    def __init__(self, *directories):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.fanotify_init(self.CONTENT, os.O_RDONLY)
        mask = ctypes.c_uint64(self.OPEN_PERM | self.ON_CHILD | self.ON_DIR)
        for path in directories:
            if self.fd < 0 or self.libc.fanotify_mark(self.fd, self.ADD, mask, -100, os.fsencode(path)) < 0:
                raise unittest.SkipTest(f'fanotify: {os.strerror(ctypes.get_errno())}')
        self.directories = [str(path) for path in directories]
        self.by = set()  # (uid, name)
        self.stop, self.end = os.pipe()
        self.thread = threading.Thread(target=self.look)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        os.close(self.end)
        self.thread.join()
        os.close(self.fd)
        os.close(self.stop)

    def look(self):
        while self.fd in select.select([self.fd, self.stop], [], [])[0]:
            data = os.read(self.fd, 4096)
            for at in range(0, len(data), 24):
                _, _, _, _, _, fd, pid = struct.unpack_from('=IBBHQii', data, at)
                self.note(os.readlink(f'/proc/self/fd/{fd}'), pid)
                os.write(self.fd, struct.pack('=iI', fd, self.ALLOW))
                os.close(fd)

    def note(self, path, pid):
        if pid == os.getpid() or path in self.directories:
            return
        with contextlib.suppress(FileNotFoundError):  # one that is killed while it waits
            uid = re.search(r'^Uid:\s+(\d+)', pathlib.Path(f'/proc/{pid}/status').read_text(), re.MULTILINE)[1]
            self.by.add((int(uid), os.path.basename(path)))


class Watched(Crafted):
    def test_nothing_in_the_servers_directories_is_opened_by_root(self):
        rows = self.scratch / 'rows'
        with Opened(self.state, self.data / 'volumes') as opened:
            self.server.start()
            with Sandbox(env=self.server.env()) as box:
                box.run('true')
            self.server.kill()
            self.server.start()
            self.server.stop()
            for words in (('check',), ('migrate',), ('export', rows), ('import', '--force', rows),
                          ('copy', '--to', f'sqlite:{self.scratch}/copy.db')):
                run = self.db(*words)
                self.assertEqual(run.returncode, 0, run.stderr)
        self.assertTrue({(SERVER, 'atoll.db'), (SERVER, 'atoll.db-wal'), (SERVER, 'egress-ca.pem')} <= opened.by)
        # Root's own directory, at start: it follows no link, and uses nothing there that is not root's alone
        # (tests/warden/test-volume.c).
        self.assertEqual({name for uid, name in opened.by if uid != SERVER} - {'.images'}, set())


class Seed(Crafted):
    def to_version_1(self):
        """As an older program has left it."""
        seed = (self.data / 'seed').read_bytes()
        (self.data / 'seed').unlink()
        (self.state / 'seed').write_bytes(seed)
        (self.state / 'seed').chmod(0o600)
        (self.data / 'version').write_text('1\n')
        return seed

    def test_an_older_directory_is_brought_up_to_date(self):
        seed = self.to_version_1()
        self.server.start()
        self.assertEqual((self.data / 'seed').read_bytes(), seed)
        self.assertFalse((self.state / 'seed').exists())
        self.assertEqual((self.data / 'version').read_text(), '2\n')  # which an older program refuses

    def test_a_move_that_was_cut_short_is_finished(self):
        seed = self.to_version_1()
        (self.data / 'seed').write_bytes(seed)
        (self.data / 'seed').chmod(0o600)
        self.server.start()
        self.assertEqual((self.data / 'seed').read_bytes(), seed)
        self.assertFalse((self.state / 'seed').exists())
        self.assertNotIn('seed.ignored', self.server.tail())

    def test_what_is_not_ours_is_left_alone_and_told(self):
        seed = (self.data / 'seed').read_bytes()
        for content in (b'y' * 32, self.victim, 'pipe'):
            with self.subTest(content=content):
                self.put('seed', content)
                self.server.start(timeout=30)
                self.server.stop()
                self.assertEqual((self.data / 'seed').read_bytes(), seed)
                self.assertTrue(os.path.lexists(self.state / 'seed'))
                self.assertIn('seed.ignored', self.server.tail())

    def test_an_older_seed_is_no_link_no_pipe_and_nobody_elses(self):
        self.to_version_1()
        other = self.scratch / 'other'
        other.write_bytes(b'z' * 32)
        for content in (self.victim, 'pipe', b'short', 'hard link'):
            with self.subTest(content=content):
                if content == 'hard link':  # as where the kernel does not protect them
                    (self.state / 'seed').unlink()
                    os.link(other, self.state / 'seed')
                else:
                    self.put('seed', content)
                self.assertRegex(self.refused(), r'state/seed: .*(plain file|damaged).*: restore it')
                self.assertFalse((self.data / 'seed').exists())

    def test_a_directory_that_others_may_write_to_is_closed(self):
        os.chown(self.data, SERVER, SERVER)
        self.data.chmod(0o777)
        self.server.start()
        self.assertEqual((self.data.stat().st_uid, stat.S_IMODE(self.data.stat().st_mode)), (0, 0o775))
        self.server.stop()
        self.data.chmod(0o1777)
        self.assertIn('use a directory of its own', self.refused())


if __name__ == '__main__':
    unittest.main()
