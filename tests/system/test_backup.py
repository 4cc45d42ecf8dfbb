"""`atoll backup` beside a server that is used, and `atoll restore` into an empty directory: what comes back is what was
there, and what is sealed is not in it."""
import contextlib
import hashlib
import json
import os
import pathlib
import subprocess
import signal
import tempfile
import threading
import time
import unittest

from harness import postgres, volumes
from harness.sandbox import Sandbox
from harness.server import Server
from harness.v1 import Api

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
SECRET = 'swordfish-8d1f0c55'
# Of everything in a tree: kind, mode, owner, times of change, size, what it points to, attributes, bytes.
TREE = '''cd /data && find . -mindepth 1 -printf '%P %y %m %U %G %s %l %TY%Tm%Td%TH%TM\\n' | sort &&
          find . -type f -exec sha256sum {} + | sort && getfattr -d -m user -R . 2>/dev/null | sort'''
FILL = '''set -e; cd /data; mkdir -p deep/er 'with blank'; echo text > deep/er/file; chmod 640 deep/er/file; ln -s /etc/passwd link
          ln deep/er/file hard; truncate -s 200M sparse; printf end >> sparse; head -c 300000 /dev/urandom > 'with blank/random'
          mkfifo pipe; chmod 1777 'with blank'; touch -d 2001-02-03 deep; chown 1000:0 sparse; touch empty'''


def written(path):
    """What is in a file, a piece at a time, without its holes."""
    with open(path, 'rb') as f:
        at = 0
        while True:
            try:
                at = os.lseek(f.fileno(), at, os.SEEK_DATA)
            except OSError:
                return
            end = os.lseek(f.fileno(), at, os.SEEK_HOLE)
            while at < end:
                piece = os.pread(f.fileno(), min(1 << 20, end - at), at)
                at += len(piece)
                yield piece


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-backup-')
        self.addCleanup(scratch.cleanup)
        self.top = pathlib.Path(scratch.name)
        self.top.chmod(0o755)
        self.server = Server(BUILD, self.top, '--pool', '1', '--stop-sandboxes')
        self.addCleanup(self.server.stop)
        self.server.start()
        self.api = Api(self.server)

    def atoll(self, *words, status=0, env=None):
        run = subprocess.run([BUILD / 'atoll', *map(str, words), '--json'], capture_output=True, text=True, check=False,
                             timeout=300, env=env or self.server.environment)
        if status is None:
            self.assertNotEqual(run.returncode, 0, (words, run.stdout, run.stderr))
        else:
            self.assertEqual(run.returncode, status, (words, run.stdout, run.stderr))
        return json.loads(run.stdout)

    def box_with_volume(self):
        made = self.api.raw('POST', '/volumes', '{"name": "v"}', {'Content-Type': 'application/json'}).json()
        self.volume_dir = volumes.make_plain(self.server, made['volumeID'])
        return Sandbox(env=self.server.env(), volumeMounts=[{'name': 'v', 'path': '/data'}])

    def slow_tar(self, name, words, before='', after=''):
        """An environment in which tar does more when its words are like these; what was called is in a file."""
        place = self.top / name
        place.mkdir()
        self.calls = self.top / f'{name}.calls'
        self.calls.touch()
        (place / 'tar').write_text(f'#!/bin/sh\necho "$@" >>{self.calls}\ncase "$*" in {words}) {before}\n;; esac\n'
                                   f'/bin/tar "$@"; status=$?\ncase "$*" in {words}) {after}\n;; esac\nexit $status\n')
        (place / 'tar').chmod(0o755)
        return {**self.server.environment, 'PATH': f"{place}:{os.environ['PATH']}"}

    def wait(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def start(self, *words, **more):
        process = subprocess.Popen([BUILD / 'atoll', *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   **{'env': self.server.environment, **more})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def seed(self):
        path = self.top / 'seed'
        path.write_bytes((self.server.data / 'seed').read_bytes())
        return path


class Backup(Case):
    def fill(self):
        """One of everything that is kept; what it holds, to compare."""
        env = self.server.env()
        self.api.ask('PUT', '/secrets/kept', {'value': SECRET})
        made = json.loads(self.api.raw('POST', '/volumes', '{"name": "v"}', {'Content-Type': 'application/json'}).body)
        box = Sandbox(env=env, volumeMounts=[{'name': 'v', 'path': '/data'}])
        self.assertEqual(box.run(FILL, 'root').exit_code, 0)
        self.tree = box.run(TREE, 'root').text()
        self.assertIn('hard', self.tree)
        box.run('head -c 100000 /dev/urandom > random; truncate -s 50M sparse; echo snapped > file')
        self.sum = box.run('sha256sum random').text()
        self.snapshot = box.api('POST', f'/sandboxes/{box.id}/snapshots', {'name': 'kept'})['snapshotID']
        paused = self.api.ask('POST', '/sandboxes', {'on_timeout': 'pause_to_disk'})
        self.api.ask('POST', f"/sandboxes/{paused['id']}/execute", {'shell': 'echo asleep > ~/file; sync'})
        self.api.ask('POST', f"/sandboxes/{paused['id']}/pause", {'memory': False})
        self.paused = paused['id']
        ran = self.api.ask('POST', '/run', {'shell': 'head -c 50000 /dev/urandom > ~/a.bin', 'cwd': '/home/user',
                                            'artifacts': ['a.bin']})
        self.artifact = ran['artifacts'][0]
        self.key, self.volume = env['E2B_API_KEY'], made['volumeID']
        return box

    def use(self, box, until):
        """Somebody goes on working meanwhile."""
        while not until.is_set():
            box.run('echo more >> ~/file; date > /data/changing')
            self.api.ask('POST', f'/sandboxes/{box.id}/execute', {'shell': 'true'})

    def back_up(self, box, path):
        until = threading.Event()
        user = threading.Thread(target=self.use, args=(box, until))
        user.start()
        try:
            return self.atoll('backup', '--data', self.server.data, path)
        finally:
            until.set()
            user.join()

    def nothing_is_told(self, path):
        words = SECRET.encode(), (self.server.data / 'seed').read_bytes(), self.key[4:].encode()
        for file in [path] if path.is_file() else [file for file in path.rglob('*') if file.is_file()]:
            before = b''
            for piece in written(file):
                for word in words:
                    self.assertNotIn(word, before + piece, file)
                before = piece[-64:]

    def everything_is_there(self, data, env):
        self.server.data, self.server.environment = data, env
        self.server.start()
        api = Api(self.server, key=self.key)
        env = {**self.server.env(), 'E2B_API_KEY': self.key}
        with Sandbox(self.snapshot, env=env) as box:
            self.assertEqual(box.run('sha256sum random').text(), self.sum)
            self.assertEqual(box.run('cat file; stat -c %s sparse').text(), 'snapped\n52428800\n')
        with Sandbox(env=env, volumeMounts=[{'name': 'v', 'path': '/data'}]) as box:
            box.run('rm -f /data/changing', 'root')
            before, now = self.tree.splitlines(), box.run(TREE, 'root').text().splitlines()
            self.assertEqual(now, before)
            self.assertLess(int(box.run('stat -c %b /data/sparse').text()), 1000)
        api.ask('POST', f'/sandboxes/{self.paused}/resume', {})
        self.assertEqual(api.ask('POST', f'/sandboxes/{self.paused}/execute', {'shell': 'cat ~/file'})['stdout'], 'asleep\n')
        got = api.call('GET', f"/artifacts/{self.artifact['id']}").body
        self.assertEqual(hashlib.sha256(got).hexdigest(), self.artifact['sha256'])
        made = api.ask('POST', '/sandboxes', {'secrets': {'S': 'kept'}})
        told = api.ask('POST', f"/sandboxes/{made['id']}/execute", {'shell': 'printf "$S" | sha256sum'})['stdout']
        self.assertEqual(told.split()[0], hashlib.sha256(SECRET.encode()).hexdigest())

    def rows(self, data, env):
        path = self.top / f'rows-{data.name}'
        self.atoll('db', 'export', '--data', data, path, env=env)
        return path.read_bytes()

    def round_trip(self, path):
        box = self.fill()
        done = self.back_up(box, path)
        self.nothing_is_told(path)
        self.server.stop()
        seed = self.top / 'seed'
        seed.write_bytes((self.server.data / 'seed').read_bytes())
        new, env = self.top / 'new', {**os.environ, **postgres.own_database()}
        self.assertEqual(self.atoll('restore', '--data', new, '--seed', seed, path, env=env)['rows'], done['rows'])
        if path.is_dir():
            self.assertEqual(self.rows(new, env), (path / 'rows.jsonl').read_bytes())
        else:
            kept = subprocess.run(['tar', '-xOf', path, 'rows.jsonl'], capture_output=True, check=True).stdout
            self.assertEqual(self.rows(new, env), kept)
        self.everything_is_there(new, env)
        return done

    def test_a_file(self):
        path = self.top / 'backup.tar'
        done = self.round_trip(path)
        self.assertEqual(done['bytes'], path.stat().st_size)
        self.assertLess(path.stat().st_size, 100 << 20)  # of which the sparse ones alone would be more
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        self.assertEqual([p.name for p in self.top.glob('backup.tar*')], ['backup.tar'])

    def test_a_directory(self):
        path = self.top / 'backup'
        path.mkdir()
        self.round_trip(path)
        taken = sum(file.lstat().st_blocks for file in path.rglob('*')) * 512
        self.assertLess(taken, 100 << 20)

    def test_what_is_refused(self):
        data, path, seed = self.server.data, self.top / 'b.tar', self.top / 'seed'
        self.atoll('backup', '--data', data, path)
        seed.write_bytes((data / 'seed').read_bytes())
        new = self.top / 'new'
        self.assertIn('exists', self.atoll('backup', '--data', data, path, status=None)['message'])
        self.assertIn('no server has ever run', self.atoll('backup', '--data', self.top, self.top / 'c', status=None)['message'])
        self.assertIn('not empty', self.atoll('backup', '--data', data, f'{data}/', status=None)['message'])
        self.assertIn('not empty', self.atoll('restore', '--data', data, '--seed', seed, path, status=None)['message'])
        self.assertIn('--seed FILE', self.atoll('restore', '--data', new, path, status=None)['message'])
        (self.top / 'other').write_bytes(os.urandom(32))
        told = self.atoll('restore', '--data', new, '--seed', self.top / 'other', path, status=None)['message']
        self.assertIn('the seed of another server', told)
        for size in (path.read_bytes().rindex(b'rows.jsonl') + 600, path.read_bytes().rindex(b'rows.jsonl'), 0):
            os.truncate(path, size)
            self.atoll('restore', '--data', new, '--seed', seed, path, status=None)
            self.assertEqual(list(new.iterdir()), [])  # all or nothing
        self.assertFalse(list(self.top.glob('*.part*')))


class Held(Case):
    """A volume that is an image stands still while it is read, and no longer, however whoever held it has ended."""

    def setUp(self):
        super().setUp()
        made = self.api.raw('POST', '/volumes', '{"name": "v"}', {'Content-Type': 'application/json'}).json()
        self.volume = made['volumeID']
        self.box = Sandbox(env=self.server.env(), volumeMounts=[{'name': 'v', 'path': '/data'}])

    def hold(self):
        holder = subprocess.Popen([BUILD / 'atoll-warden', '--data', self.server.data, '--hold-volume', self.volume],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for end in (holder.stdin, holder.stdout, holder.stderr):
            self.addCleanup(end.close)
        self.addCleanup(holder.wait)
        self.addCleanup(holder.kill)
        return holder

    def write(self):
        """A thread that ends when a file was written."""
        thread = threading.Thread(target=self.box.run, args=('echo late > /data/late; sync -f /data',))
        thread.start()
        self.addCleanup(thread.join)
        return thread

    def test_one_that_was_killed_leaves_nobody_waiting(self):
        holder = self.hold()
        self.assertEqual(holder.stdout.read(5), b'held\n')
        writer = self.write()
        time.sleep(0.5)
        self.assertTrue(writer.is_alive())
        self.assertEqual(self.atoll('backup', '--data', self.server.data, self.top / 'a.tar', status=None)['code'], 'failed')
        holder.kill()
        holder.wait()
        self.atoll('backup', '--data', self.server.data, self.top / 'b.tar')
        writer.join(60)
        self.assertFalse(writer.is_alive())

    def test_the_server_thaws_what_is_left_frozen_as_well(self):
        holder = self.hold()
        self.assertEqual(holder.stdout.read(5), b'held\n')
        holder.kill()
        holder.wait()
        with Sandbox(env=self.server.env(), volumeMounts=[{'name': 'v', 'path': '/data'}]) as other:
            self.assertEqual(other.run('echo 1 > /data/f; cat /data/f').text(), '1\n')

    def test_what_is_not_roots_is_not_read(self):
        images = self.server.data / 'volumes/.images'
        self.box.kill()
        self.server.stop()
        images.rename(self.top / 'real')
        for replace in (lambda: images.symlink_to(self.top / 'real'), lambda: self.make_others(images)):
            replace()
            told = self.atoll('backup', '--data', self.server.data, self.top / 'c.tar', status=None)['message']
            self.assertRegex(told, "must belong to root alone|Too many levels|Not a directory")
            images.unlink() if images.is_symlink() else images.rmdir()

    @staticmethod
    def make_others(images):
        owner = images.parent.stat()
        images.mkdir()
        os.chown(images, owner.st_uid, owner.st_gid)


class Hostile(Case):
    """What a sandbox does in its volume keeps nobody from having a backup."""

    def restored(self, path):
        new = self.top / f'new-{path.name}'
        done = self.atoll('restore', '--data', new, '--seed', self.seed(), path,
                          env={**os.environ, **postgres.own_database()})
        return new / 'volumes' / self.volume_dir.name, done

    def test_names_that_change_their_kind(self):
        box = self.box_with_volume()
        script = """cd /data; echo kept > kept; for i in $(seq 50); do mkdir d$i; touch d$i/f; done; (while :; do
                    for i in $(seq 50); do rm -rf d$i; ln -s x d$i; done; echo > /data/turned
                    for i in $(seq 50); do rm -f d$i; mkdir d$i; touch d$i/f; done; done) >/dev/null 2>&1 & sleep 1"""
        self.api.ask('POST', f'/sandboxes/{box.id}/execute', {'shell': script})
        for name in ('one.tar', 'two.tar', 'dir/'):
            (self.volume_dir / 'turned').unlink(missing_ok=True)
            self.wait((self.volume_dir / 'turned').exists)  # it is at work
            self.atoll('backup', '--data', self.server.data, f'{self.top}/{name}')
            volume, done = self.restored(self.top / name.rstrip('/'))
            self.assertEqual((volume / 'kept').read_text(), 'kept\n')
            self.assertEqual(done['lost'], 0)

    def test_an_archive_that_has_a_name_as_two_kinds(self):
        """As older programs made them: the one file is told, and all others are there."""
        box = self.box_with_volume()
        self.assertEqual(box.run('cd /data; echo kept > kept; mkdir d; touch d/f', 'root').exit_code, 0)
        path, again = self.top / 'b.tar', self.top / f'volumes/{self.volume_dir.name}'
        self.atoll('backup', '--data', self.server.data, path)
        again.mkdir(parents=True)
        (again / 'd').symlink_to('x')
        (again / 'later').write_text('later\n')
        subprocess.run(['tar', '--append', f'--file={path}', f'--directory={self.top}', *(
            str((again / name).relative_to(self.top)) for name in ('d', 'later'))], check=True)
        volume, done = self.restored(path)
        self.assertEqual((volume / 'kept').read_text() + (volume / 'later').read_text(), 'kept\nlater\n')
        self.assertTrue((volume / 'd/f').exists())
        self.assertEqual(done['lost'], 1)
        self.assertIn(f'volumes/{self.volume_dir.name}/d: Cannot create symlink', done['first_lost'])

    def test_paths_that_are_too_long(self):
        """The one cannot be made by its path; at the other, tar would end its own stack."""
        box = self.box_with_volume()
        self.addCleanup(lambda: subprocess.run(['rm', '-rf', *self.top.iterdir()], check=True))
        self.addCleanup(self.server.stop)
        self.assertEqual(box.run('echo kept > /data/kept', 'root').exit_code, 0)
        for part, depth in (('x' * 100, 60), ('aaaa', 12000)):
            at = os.open(self.volume_dir, os.O_RDONLY)
            for _ in range(depth):
                os.mkdir(part, dir_fd=at)
                below = os.open(part, os.O_RDONLY, dir_fd=at)
                os.close(at)
                at = below
            os.close(at)
        for name in ('deep.tar', 'deep/'):
            made = self.atoll('backup', '--data', self.server.data, f'{self.top}/{name}')
            self.assertGreater(made['lost'], 0)
            self.assertIn('volumes/', made['first_lost'])
            volume, done = self.restored(self.top / name.rstrip('/'))
            self.assertEqual((volume / 'kept').read_text(), 'kept\n')
            self.assertTrue((volume / ('x' * 100) / ('x' * 100)).is_dir())
            self.assertEqual(done['lost'] > 0, name == 'deep.tar')  # a directory has no more than there is
        warned = subprocess.run([BUILD / 'atoll', 'backup', '--data', self.server.data, self.top / 'again.tar'], check=True,
                                capture_output=True, text=True, env=self.server.environment, timeout=300)
        self.assertIn('cannot be restored', warned.stderr)

    def test_volumes_that_are_made_meanwhile(self):
        """The rows know them: they are there, and once."""
        env = self.slow_tar('bin', '*--create*', f'touch {self.top}/began; while [ ! -e {self.top}/made ]; do sleep 0.1; done')
        self.box_with_volume()
        until = threading.Thread(target=self.atoll, args=('backup', '--data', self.server.data, self.top / 'b.tar'),
                                 kwargs={'env': env})
        until.start()
        self.wait((self.top / 'began').exists)
        made = json.loads(self.api.raw('POST', '/volumes', '{"name": "w"}', {'Content-Type': 'application/json'}).body)
        (self.top / 'made').touch()
        until.join()
        names = subprocess.run(['tar', '-tf', self.top / 'b.tar'], capture_output=True, text=True, check=True).stdout.split()
        for name in (self.volume_dir.name, made['volumeID']):
            self.assertEqual(names.count(f'volumes/{name}/') + names.count(f'volumes/.images/{name}'), 1, names)


class Broken(Case):
    """A disk that cannot be read."""

    @contextlib.contextmanager
    def mounted(self, image, on):
        subprocess.run(['mount', '-o', 'loop', image, on], check=True)
        try:
            yield on
        finally:
            subprocess.run(['umount', on], check=True)

    def test_what_cannot_be_read_is_a_failure(self):
        """Its beginning is there, its middle is not: no zeros take its place in an image; in a volume that is told."""
        self.box_with_volume()
        image = self.top / 'image'
        os.truncate(os.open(image, os.O_CREAT | os.O_RDWR), 64 << 20)
        subprocess.run(['mkfs.ext4', '-q', '-F', '-O', '^has_journal', image], check=True)
        inside = self.top / 'inside'
        inside.mkdir()
        with self.mounted(image, inside):
            (inside / 'file').write_bytes(os.urandom(40 << 20))
        for number, place in enumerate((self.server.data / 'images/saved', self.volume_dir)):
            place.mkdir(exist_ok=True)
            os.truncate(image, 64 << 20)
            with self.mounted(image, place):
                os.truncate(image, 36 << 20)
                with self.assertRaises(OSError):
                    (place / 'file').read_bytes()
                for name in (f'{number}.tar', f'{number}/'):
                    done = self.atoll('backup', '--data', self.server.data, f'{self.top}/{name}', status=0 if number else None)
                    # tar does not tell it from a file that was made shorter, which is a volume's right.
                    self.assertIn('padding with zeros', done['first_lost'] if number else done['message'])
        self.assertFalse((self.top / '0.tar').exists())
        self.assertEqual(list((self.top / '0').iterdir()), [])


class CutShort(Case):
    """Half of a backup is none, and half of what is restored is not served."""

    def serve(self, data, *more):
        run = subprocess.run([BUILD / 'atoll', 'serve', '--no-restart', '--data', data, '--listen', '127.0.0.1:0', *more],
                             capture_output=True, text=True, check=False, timeout=120, env=self.server.environment)
        self.assertNotEqual(run.returncode, 0)
        return run.stdout + run.stderr

    def begin_restore(self, name):
        new, pipe = self.top / name, self.top / f'{name}.pipe'
        os.mkfifo(pipe)
        process = self.start('restore', '--data', new, '--new-seed', pipe)
        self.wait(lambda: (new / 'run').exists())  # it waits for what is to be unpacked
        return new, pipe, process

    def test_a_server_that_starts_meanwhile(self):
        new, pipe, process = self.begin_restore('new')
        self.assertIn('just restored into it', self.serve(new))
        self.assertIn('just restored', self.atoll('restore', '--data', new, '--new-seed', pipe, status=None)['message'])
        pipe.write_bytes(b'garbage' * 1000)
        self.assertEqual(process.wait(60), 1)
        self.assertEqual(list(new.iterdir()), [])

    def test_a_restore_that_is_killed(self):
        new, _, process = self.begin_restore('new')
        process.kill()
        process.wait(60)
        env = {name: value for name, value in os.environ.items() if name != 'ATOLL_DATABASE'}  # the one in there
        for told in (self.serve(new), self.serve(new, '--check'),
                     *(self.atoll(*words, status=None, env=env)['message'] for words in (
                         ('restore', '--data', new, '--new-seed', self.top / 'none'), ('db', 'check', '--data', new),
                         ('backup', '--data', new, self.top / 'of-half.tar')))):
            self.assertIn('restore again', told)

    def test_signals(self):
        data = self.server.data
        target = self.top / 'dir'
        target.mkdir()
        for number, (words, sent) in enumerate((('*--create*', signal.SIGTERM), ('*--newer*', signal.SIGINT))):
            began = self.top / f'began{number}'
            env = self.slow_tar(f'bin{number}', words, f'touch {began}; exec sleep 60')
            for path in (self.top / 'b.tar', target):
                began.unlink(missing_ok=True)
                process = self.start('backup', '--data', data, path, env=env)
                self.wait(began.exists)
                process.send_signal(sent)
                self.assertEqual(process.wait(60), -sent)
                self.assertEqual(list(self.top.glob('b.tar*')), [])
                self.assertEqual(list(target.iterdir()), [])
        self.atoll('backup', '--data', data, target)
        new, _, process = self.begin_restore('new')
        process.terminate()
        self.assertEqual(process.wait(60), -signal.SIGTERM)
        self.assertEqual(list(new.iterdir()), [])

    def test_a_directory_says_last_that_it_is_a_backup(self):
        target, began = self.top / 'dir', self.top / 'began'
        process = self.start('backup', '--data', self.server.data, f'{target}/',
                             env=self.slow_tar('bin', '*--newer*', f'touch {began}; exec sleep 60'))
        self.wait(began.exists)
        process.kill()
        process.wait(60)
        self.assertTrue((target / 'rows.jsonl').exists())
        told = self.atoll('restore', '--data', self.top / 'new', '--seed', self.seed(), target, status=None)['message']
        self.assertIn('is this a backup', told)

    def test_what_is_refused_is_refused_before_anything_is_unpacked(self):
        path, other = self.top / 'b.tar', self.top / 'other'
        self.atoll('backup', '--data', self.server.data, path)
        other.write_bytes(os.urandom(32))
        env = self.slow_tar('bin', 'never')
        told = self.atoll('restore', '--data', self.top / 'new', '--seed', other, path, status=None, env=env)['message']
        self.assertIn('the seed of another server', told)
        self.assertEqual([line for line in self.calls.read_text().splitlines() if '--occurrence=1' not in line], [])

    def test_what_fails_after_the_rows_takes_nothing_away(self):
        """In PostgreSQL, --force has then removed what was there."""
        path, new = self.top / 'b.tar', self.top / 'new'
        made = self.atoll('backup', '--data', self.server.data, path)
        rows = new / '.restore/rows.jsonl'
        self.addCleanup(lambda: subprocess.run(['chattr', '-i', rows], check=False, capture_output=True))
        env = {**self.slow_tar('bin', '*--extract*', after=f'chattr +i {rows}'), **postgres.own_database()}
        probe = self.top / 'probe'
        probe.touch()
        if subprocess.run(['chattr', '+i', probe], check=False, capture_output=True).returncode:
            self.skipTest('no file here can be made immutable')
        subprocess.run(['chattr', '-i', probe], check=True)
        told = self.atoll('restore', '--data', new, '--seed', self.seed(), path, status=None, env=env)['message']
        self.assertIn('all is restored', told)
        subprocess.run(['chattr', '-i', rows], check=True)
        subprocess.run(['rm', '-r', new / '.restore'], check=True)
        self.assertEqual(self.atoll('db', 'check', '--data', new, env=env)['version'], made['version'])
        self.assertTrue((new / 'volumes').is_dir() and (new / 'seed').exists())

    def test_names_and_places(self):
        """A name with a colon is no host's, and a fresh file system is empty."""
        for word in ('x:1.tar', 'fresh'):
            (self.top / 'fresh/lost+found').mkdir(parents=True, exist_ok=True)
            new = self.top / f'new-{word}'
            (new / 'lost+found').mkdir(parents=True)
            other = {**os.environ, **postgres.own_database()}
            for env, *words in ((self.server.environment, 'backup', '--data', self.server.data),
                                (other, 'restore', '--data', new, '--seed', self.seed())):
                run = subprocess.run([BUILD / 'atoll', *words, word], capture_output=True, text=True, check=False, cwd=self.top,
                                     env=env, timeout=300)
                self.assertEqual(run.returncode, 0, run.stderr)
            self.assertTrue((new / 'version').exists())


if __name__ == '__main__':
    unittest.main()
