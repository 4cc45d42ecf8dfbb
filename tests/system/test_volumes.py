"""Volumes in sandboxes: shared, kept, removed, and of no use to an attacker."""
import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest
import urllib.parse
import uuid

from harness import kernel, volumes
from harness.sandbox import Sandbox
from harness.server import Server
from test_plane import Api

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
UID_BLOCK = 0x70000000  # the server's: what 0 on a volume is on disk


class Volume:
    """One of the server's, and its content."""

    def __init__(self, env=None):
        env = env or os.environ
        self.api = Api(env, **{'X-API-Key': env['E2B_API_KEY']})
        made = self.api.ok('POST', '/volumes', {'name': f'v{uuid.uuid4().hex}'})
        self.id, self.name = made['volumeID'], made['name']
        self.content = Api(env, Authorization='Bearer ' + made['token'])

    def at(self, kind, path, **more):
        return f'/volumecontent/{self.id}/{kind}?' + urllib.parse.urlencode({'path': path, **more})

    def read(self, path):
        status, _, text = self.content('GET', self.at('file', path))
        return (status, text if isinstance(text, dict) else text.decode())

    def used(self):
        return self.api.ok('GET', f'/volumes/{self.id}').get('usedBytes', -1)

    def remove(self):
        return self.api.status('DELETE', f'/volumes/{self.id}')

    def mount(self, path='/data'):
        return {'name': self.name, 'path': path}


def out(box, command, user=None):
    result = box.run(command, user)
    return (result.stdout + result.stderr).decode().strip()


def attached():
    """The volumes that the kernel holds for somebody."""
    text = ''
    for path in pathlib.Path('/sys/block').glob('loop*/loop/backing_file'):
        with contextlib.suppress(OSError):
            text += path.read_text()
    return text


class Case(unittest.TestCase):
    def volume(self, env=None):
        volume = Volume(env)
        self.addCleanup(volume.remove)
        return volume

    def box(self, *mounts, env=None, **more):
        box = Sandbox(env=env, volumeMounts=list(mounts), **more)
        self.addCleanup(self.end, box)
        return box

    @staticmethod
    def end(box):
        try:
            box.kill()
        except (RuntimeError, OSError):
            pass  # it is gone, or its server is

    def refused(self, says, *mounts, **more):
        api = Api(os.environ, **{'X-API-Key': os.environ['E2B_API_KEY']})
        status, _, answer = api('POST', '/v2/sandboxes', {'templateID': 'base', 'volumeMounts': list(mounts), **more})
        self.assertEqual(status, 400, answer)
        self.assertIn(says, answer['message'])


class Sharing(Case):
    def test_users_of_sandboxes_and_the_content_api_work_on_the_same_files(self):
        volume = self.volume()
        one, two = self.box(volume.mount()), self.box(volume.mount('/home/user/deep/mnt'))
        self.assertEqual(out(one, 'echo hello > /data/f; chmod 600 /data/f; id -u'), '1000')
        self.assertEqual(out(two, 'cat ~/deep/mnt/f; stat -c "%U %a" ~/deep/mnt/f'), 'hello\nuser 600')
        self.assertEqual(volume.read('/f'), (200, 'hello\n'))
        entry = volume.content.ok('GET', volume.at('path', '/f'))
        self.assertEqual((entry['uid'], entry['gid'], entry['mode']), (1000, 1000, 0o600))
        volume.content.ok('PUT', volume.at('file', '/from-api'), raw='api')
        self.assertEqual(out(two, 'cat ~/deep/mnt/from-api; echo more >> ~/deep/mnt/from-api'), 'api')
        self.assertEqual(volume.read('/from-api'), (200, 'apimore\n'))
        volume.content.ok('PATCH', volume.at('path', '/from-api'), {'uid': 0, 'gid': 0, 'mode': 0o640})
        self.assertIn('Permission denied', out(one, 'cat /data/from-api'))
        self.assertEqual(out(one, 'cat /data/from-api', 'root'), 'apimore')
        self.assertEqual(one.write('/data/upload', b'x')[0], 200)
        self.assertEqual({e['uid'] for e in volume.content.ok('GET', volume.at('dir', '/'))}, {0, 1000})

    def test_mounts_are_shown_where_sandboxes_are(self):
        volume = self.volume()
        mounts = [volume.mount('/z'), volume.mount('/a')]
        box = self.box(*mounts)
        self.assertEqual(box.api('GET', f'/sandboxes/{box.id}')['volumeMounts'], mounts)
        listed = {row['sandboxID']: row for row in box.api('GET', '/v2/sandboxes')}
        self.assertEqual(listed[box.id]['volumeMounts'], mounts)
        self.assertEqual(out(box, 'echo 1 > /z/f; cat /a/f'), '1')

    def test_a_volume_lies_in_another(self):
        outer, inner = self.volume(), self.volume()
        box = self.box(inner.mount('/a/b'), outer.mount('/a'))
        self.assertEqual(out(box, 'echo in > /a/b/f && echo out > /a/f && cat /a/b/f /a/f'), 'in\nout')
        self.assertEqual((inner.read('/f'), outer.read('/f')), ((200, 'in\n'), (200, 'out\n')))
        self.assertEqual(outer.read('/b/f')[0], 404)


class Lives(Case):
    def test_pause_resume_and_fork_keep_it_a_snapshot_does_not(self):
        volume = self.volume()
        box = self.box(volume.mount())
        path = f'/sandboxes/{box.id}'
        for memory in (True, False):
            box.api('POST', path + '/pause', {'memory': memory})
            self.assertEqual(box.api('GET', path)['volumeMounts'], [volume.mount()])
            volume.content.ok('PUT', volume.at('file', '/meanwhile', force='true'), raw=f'{memory}')
            box.api('POST', path + '/connect', {'timeout': 300})
            self.assertEqual(out(box, 'cat /data/meanwhile; echo x >> /data/log; wc -l < /data/log'),
                             f'{memory}{1 if memory else 2}')
        fork = Sandbox.__new__(Sandbox)
        fork.env, fork.made = box.env, box.api('POST', path + '/fork', {'count': 1})[0]['sandbox']
        fork.id = fork.made['sandboxID']
        self.addCleanup(self.end, fork)
        self.assertEqual(out(fork, 'wc -l < /data/log'), '2')
        snapshot = box.api('POST', path + '/snapshots', {})['snapshotID']
        self.addCleanup(box.api, 'DELETE', '/templates/' + urllib.parse.quote(snapshot, safe=''))
        bare = self.box(template=snapshot)
        self.assertEqual(out(bare, 'ls -A /data | wc -l'), '0')
        again = self.box(volume.mount(), template=snapshot)
        self.assertEqual(out(again, 'wc -l < /data/log'), '2')

    def test_a_volume_in_use_can_be_removed_and_its_sandbox_lives(self):
        volume = self.volume()
        box = self.box(volume.mount())
        on_disk = pathlib.Path(os.environ['ATOLL_TEST_DATA']) / 'volumes' / '.images' / volume.id
        out(box, 'mkdir -p /data/a/b; echo text > /data/a/b/c; sync -f /data')
        self.assertTrue(on_disk.exists())
        self.assertEqual(volume.remove(), 204)
        deadline = time.monotonic() + 60
        while on_disk.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertFalse(on_disk.exists())
        self.assertEqual(out(box, 'for i in $(seq 600); do touch /data/y 2>/dev/null || break; sleep 0.1; done; '
                                  'cat /data/a/b/c 2>&1 >/dev/null | grep -c "Input/output error"; '
                                  'touch /data/x 2>/dev/null || echo gone; echo own > ~/f; cat ~/f', 'root'),
                         '1\ngone\nown')
        box.api('POST', f'/sandboxes/{box.id}/pause', {'memory': False})
        with self.assertRaisesRegex(RuntimeError, '400 .*volume for /data does not exist any more'):
            box.api('POST', f'/sandboxes/{box.id}/connect', {'timeout': 300})
        self.assertEqual(box.api('GET', f'/sandboxes/{box.id}')['state'], 'paused')
        self.refused("volume mount #0: volume '" + volume.name + "' not found", volume.mount())

    def test_it_outlives_a_killed_server(self):
        with tempfile.TemporaryDirectory(prefix='atoll-volume-') as scratch:
            pathlib.Path(scratch).chmod(0o755)
            with Server(BUILD, scratch, '--pool', '1', '--stop-sandboxes') as server:
                volume = Volume(server.env())
                box = Sandbox(env=server.env(), volumeMounts=[volume.mount()])
                self.assertEqual(out(box, 'umask 077; echo 1 > /data/f; mkdir /data/d'), '')
                server.kill()
                server.start()
                self.assertEqual(out(box, 'echo 2 >> /data/f; cat /data/f'), '1\n2')
                self.assertEqual(volume.read('/f'), (200, '1\n2\n'))
                self.assertEqual(volume.content.status('DELETE', volume.at('path', '/d')), 204)
                box.api('POST', f'/sandboxes/{box.id}/pause', {'memory': False})
                server.kill()
                server.start()
                box.api('POST', f'/sandboxes/{box.id}/connect', {'timeout': 300})
                self.assertEqual(out(box, 'cat /data/f'), '1\n2')


class Prepared(Case):
    """What is prepared for sandboxes with volumes gets its root when the volumes are known."""

    @staticmethod
    def ending(server):
        run = subprocess.run([server.program, 'status', '--json'], env={**os.environ, **server.env()},
                             capture_output=True, check=True)
        return json.loads(run.stdout)['warden']['ending']

    def make_and_end(self, server, count, *mounts):
        for _ in range(count):
            Sandbox(env=server.env(), volumeMounts=list(mounts)).kill()

    def test_disks_of_those_that_nobody_took_are_let_go(self):
        with tempfile.TemporaryDirectory(prefix='atoll-prepared-') as scratch:
            pathlib.Path(scratch).chmod(0o755)
            with Server(BUILD, scratch, '--stop-sandboxes') as server:
                mount = Volume(server.env()).mount()
                for _ in range(3):
                    self.make_and_end(server, 15, mount)
                    self.make_and_end(server, 15)
                deadline = time.monotonic() + 100
                while self.ending(server) and time.monotonic() < deadline:
                    time.sleep(0.2)
                self.assertEqual(self.ending(server), 0)
                server.stop()
                self.assertEqual(kernel.sandbox_files(server.data), [])


class Refused(Case):
    def test_what_is_no_mount(self):
        volume = self.volume()
        for path, says in (('', 'path cannot be empty'), ('data', 'path must be absolute'),
                           ('/a/../b', "must not contain any '.' or '..'"), ('/a/', "must not contain any"),
                           ('//a', 'must not contain any'), ('/', 'needed by the sandbox itself'),
                           ('/proc', 'needed by'), ('/proc/sys', 'needed by'), ('/sys/x', 'needed by'),
                           ('/dev', 'needed by'), ('/dev/shm', 'needed by'), ('/run', 'needed by'),
                           ('/run/e2b/x', 'needed by'), ('/' + 'p' * 255, 'longer than 255')):
            self.refused(f'invalid mounts:\n\t- volume mount #0: path', volume.mount(path))
            self.refused(says, volume.mount(path))
        self.refused("#1: path '/data' is already used", volume.mount(), volume.mount())
        self.refused("#1: volume 'nope' not found", volume.mount(), {'name': 'nope', 'path': '/x'})
        self.refused('16 at most', *[volume.mount(f'/m{i}') for i in range(17)])
        for wrong in ({'name': volume.name}, {'path': '/x'}, {'name': 1, 'path': '/x'}, 'x'):
            self.refused('', wrong)
        box = self.box(*[volume.mount(f'/m{i}') for i in range(16)])
        self.assertEqual(out(box, 'touch /m0/f; ls -d /m*/f | wc -l'), '16')

    def test_a_place_that_is_a_link_or_a_file(self):
        volume = self.volume()
        for path in ('/bin/x', '/etc/passwd', '/etc/passwd/x', '/var/run'):
            self.refused('a file or a link is in the way', volume.mount(path))
        box = self.box()
        out(box, 'ln -s /proc/1/root /way; ln -s / /root-link', 'root')
        snapshot = box.api('POST', f'/sandboxes/{box.id}/snapshots', {})['snapshotID']
        self.addCleanup(box.api, 'DELETE', '/templates/' + urllib.parse.quote(snapshot, safe=''))
        for path in ('/way', '/way/x', '/root-link/data'):
            self.refused('a file or a link is in the way', volume.mount(path), templateID=snapshot)


class Hostile(Case):
    def test_setuid_and_capabilities_on_a_volume_give_no_power(self):
        volume = self.volume()
        box = self.box(volume.mount())
        out(box, 'cp /usr/bin/id /data/id; chmod 6755 /data/id; cp /usr/bin/id /tmp/id; chmod 6755 /tmp/id', 'root')
        self.assertEqual(out(box, '/tmp/id -u'), '0')  # inside its own disk it is as on any machine
        self.assertEqual(out(box, '/data/id -u'), '1000')
        self.assertNotIn('worked', out(box, 'for c in "mknod /data/null c 1 3" "mount -o remount,suid /data" '
                                            '"mount --bind /data /mnt" "umount /data"; do $c && echo worked; done',
                                       'root'))
        self.assertEqual(out(box, '/data/id -u'), '1000')

    def test_whatever_is_left_in_a_volume_can_be_read_and_removed(self):
        volume = self.volume()
        box = self.box(volume.mount())
        self.assertEqual(out(box, '''
            cd /data; umask 777
            echo secret > closed; mkdir -p locked/in
            python3 - <<'END'
import os
os.umask(0)
os.chown('closed', 12345, 54321)
for i in range(2500):
    os.mkdir('d')
    os.chdir('d')
END
            ln -s /proc/self/root/etc/passwd link; mkfifo fifo; chown 33:33 locked; chattr +i closed 2>/dev/null
            true''', 'root'), '')
        self.assertEqual(volume.read('/closed'), (200, 'secret\n'))
        self.assertEqual(volume.read('/link')[0], 404)
        self.assertEqual(volume.read('/fifo')[0], 400)
        entry = volume.content.ok('GET', volume.at('path', '/closed'))
        self.assertEqual((entry['uid'], entry['gid'], entry['mode']), (12345, 54321, 0))
        self.assertEqual(volume.content.status('DELETE', volume.at('path', '/locked')), 204)
        self.assertEqual(volume.content.status('DELETE', volume.at('path', '/d')), 204)
        self.assertEqual(out(box, 'ls -A /data | sort | tr "\\n" " "'), 'closed fifo link')
        deadline = time.monotonic() + 90
        while (used := volume.used()) > 1 << 20 and time.monotonic() < deadline:  # gone for all, then bit by bit
            time.sleep(0.5)
        self.assertLess(used, 1 << 20)  # 2,500 directories were ten times that

    def test_one_that_is_removed_under_writers_is_gone_soon_after_them(self):
        volume = self.volume()
        box = self.box(volume.mount())
        out(box, 'for i in 1 2 3; do setsid bash -c "cd /data; while :; do mkdir -p a/b; > a/b/\\$RANDOM; done" '
                 '>/dev/null 2>&1 </dev/null & done')
        time.sleep(0.3)
        self.assertIn(volume.id, attached())
        self.assertEqual(volume.remove(), 204)
        time.sleep(0.5)
        box.kill()
        deadline = time.monotonic() + 90
        while volume.id in attached() and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertNotIn(volume.id, attached())


FILL = """
import errno, mmap, os, sys
def attempt(write):
    try:
        for _ in range(64):
            write()
    except OSError as e:
        return errno.errorcode[e.errno]
    return 'no end'
block = os.urandom(1 << 20)
def fill(kind):
    path = '/data/' + kind
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    place = [0]
    def write():
        at, place[0] = place[0], place[0] + (3 << 20)
        if kind == 'append':
            os.write(fd, block)
        elif kind == 'direct':
            page = mmap.mmap(-1, 1 << 20)
            page.write(block)
            direct = os.open(path, os.O_WRONLY | os.O_DIRECT)
            try:
                os.pwrite(direct, page, at)
            finally:
                os.close(direct)
        elif kind == 'sparse':
            os.truncate(fd, at + (2 << 20))
            os.pwrite(fd, block, at)
        elif kind == 'copied':
            os.copy_file_range(source, fd, 1 << 20, 0, at)
        elif kind == 'synced':
            os.pwrite(fd, block, at)
            os.fsync(fd)
    kept = attempt(write)
    os.close(fd)
    used = os.statvfs('/data')
    os.unlink(path)
    return kind, kept, (used.f_blocks - used.f_bfree) * used.f_frsize >> 20
source = os.open('/data/source', os.O_RDWR | os.O_CREAT)
os.write(source, block)
for kind in sys.argv[1:]:
    print(*fill(kind))
"""


class Quota(unittest.TestCase):
    """The kernel ends every write at the size that a volume was made with."""

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-quota-')
        cls.addClassCleanup(scratch.cleanup)
        pathlib.Path(scratch.name).chmod(0o755)
        cls.server = Server(BUILD, scratch.name, '--pool', '1', '--stop-sandboxes', '--ceilings', 'volumeSizeMB=16')
        cls.server.start()
        cls.addClassCleanup(cls.server.stop)
        cls.env = cls.server.env()

    def box(self, *mounts):
        box = Sandbox(env=self.env, timeout=600, volumeMounts=list(mounts))
        self.addCleanup(Case.end, box)
        return box

    def image(self, volume):
        return self.server.data / 'volumes' / '.images' / volume.id

    def look(self, volume):
        return volume.api.ok('GET', f'/volumes/{volume.id}')

    def test_every_way_of_writing_ends_there(self):
        volume = Volume(self.env)
        self.assertEqual((self.look(volume)['hardLimit'], self.look(volume)['sizeLimitMB']), (True, 16))
        box = self.box(volume.mount())
        kinds = ['append', 'direct', 'sparse', 'copied', 'synced']
        box.write('/tmp/fill.py', FILL.encode())
        lines = out(box, 'python3 /tmp/fill.py ' + ' '.join(kinds), 'root').splitlines()
        self.assertEqual([line.split()[:2] for line in lines], [[kind, 'ENOSPC'] for kind in kinds], lines)
        for line in lines:
            self.assertIn(int(line.split()[2]), range(13, 17), lines)
        # What was removed goes back to the host, whatever was written before.
        deadline = time.monotonic() + 60
        while self.image(volume).stat().st_blocks * 512 > 8 << 20 and time.monotonic() < deadline:
            out(box, 'sync -f /data', 'root')
            time.sleep(0.2)
        self.assertLess(self.image(volume).stat().st_blocks * 512, 8 << 20)

    def test_uploads_end_there_and_a_full_volume_can_be_cleared(self):
        volume, box = Volume(self.env), None
        status, _, answer = volume.content('PUT', volume.at('file', '/large'), raw=b'x' * (20 << 20))
        self.assertEqual(status, 507, answer)
        self.assertEqual(volume.read('/large')[0], 404)
        self.assertEqual(volume.content.status('PUT', volume.at('file', '/f'), raw=b'x' * (10 << 20)), 201)
        box = self.box(volume.mount())
        self.assertIn('No space left', out(box, 'head -c 20000000 /dev/zero > /data/g'))
        status, _, answer = volume.content('PUT', volume.at('file', '/h'), raw=b'x' * (4 << 20))
        self.assertEqual(status, 507, answer)
        # Who is to make room must get it mounted.
        second = self.box(volume.mount('/mnt/v'))
        self.assertEqual(out(second, 'rm -f /mnt/v/g; echo x > /mnt/v/i; cat /mnt/v/i', 'root'), 'x')

    def test_files_end_as_well(self):
        volume = Volume(self.env)
        box = self.box(volume.mount())
        made = out(box, 'cd /data; python3 -c "\nimport errno\nn = 0\ntry:\n while True:\n'
                        '  open(str(n), \'x\').close(); n += 1\nexcept OSError as e:\n print(errno.errorcode[e.errno], n)"')
        self.assertEqual(made.split()[0], 'ENOSPC', made)
        self.assertIn(int(made.split()[1]), range(900, 1100))
        self.assertEqual(volume.content.status('PUT', volume.at('file', '/more'), raw=b'x'), 507)

    def test_nothing_of_it_stays_when_nobody_uses_it(self):
        volume = Volume(self.env)
        box = self.box(volume.mount())
        out(box, 'echo kept > /data/f')
        self.assertIn(volume.id, attached())
        box.kill()
        self.assertEqual(volume.read('/f'), (200, 'kept\n'))
        deadline = time.monotonic() + 90
        while volume.id in attached() and time.monotonic() < deadline:
            time.sleep(0.2)
        self.assertNotIn(volume.id, attached())
        self.assertEqual(volume.read('/f'), (200, 'kept\n'))

    def test_two_servers_killed_under_writers_lose_nothing_that_was_synced(self):
        volume = Volume(self.env)
        box = self.box(volume.mount())
        out(box, 'setsid bash -c "n=0; while :; do n=\\$((n+1)); echo \\$n >> /data/log; sync /data/log; done" '
                 '>/dev/null 2>&1 </dev/null & while [ ! -s /data/log ]; do sleep 0.02; done')
        for _ in range(2):
            before = int(out(box, 'wc -l < /data/log'))
            self.server.kill()
            self.server.start()
            self.assertGreaterEqual(int(out(box, 'sleep 0.2; wc -l < /data/log')), before)
            status, text = volume.read('/log')
            lines = text.splitlines()
            self.assertEqual((status, lines), (200, [str(i + 1) for i in range(len(lines))]))
            other = self.box(volume.mount())
            self.assertGreater(int(out(other, 'wc -l < /data/log')), before)
            other.kill()


class Kinds(unittest.TestCase):
    def test_a_plain_one_of_an_older_server_stays_what_it_is(self):
        with tempfile.TemporaryDirectory(prefix='atoll-kinds-') as scratch:
            pathlib.Path(scratch).chmod(0o755)
            with Server(BUILD, scratch, '--pool', '1', '--stop-sandboxes') as server:
                volume = Volume(server.env())
                plain = volumes.make_plain(server, volume.id)
                self.assertFalse(volume.api.ok('GET', f'/volumes/{volume.id}')['hardLimit'])
                box = Sandbox(env=server.env(), volumeMounts=[volume.mount()])
                self.assertEqual(out(box, 'umask 077; echo 1 > /data/f; stat -c "%U %a" /data/f'), 'user 600')
                volume.content.ok('PUT', volume.at('file', '/g'), raw='api')
                self.assertEqual(volume.read('/f'), (200, '1\n'))
                self.assertEqual({p.stat().st_uid - UID_BLOCK for p in plain.iterdir()}, {0, 1000})
                self.assertEqual(volume.content.status('DELETE', volume.at('path', '/f')), 204)
                other = Volume(server.env())
                self.assertTrue(other.api.ok('GET', f'/volumes/{other.id}')['hardLimit'])
                kinds = subprocess.run([server.program, 'volume', 'ls', '--json'], check=True, capture_output=True,
                                       env={**os.environ, **server.env()})
                self.assertEqual({v['id']: v['hard_limit'] for v in json.loads(kinds.stdout)},
                                 {volume.id: False, other.id: True})
                box.kill()
                self.assertEqual((volume.remove(), other.remove()), (204, 204))
