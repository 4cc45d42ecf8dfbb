"""Volumes in sandboxes: shared, kept, removed, and of no use to an attacker."""
import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest
import urllib.parse
import uuid

from harness import kernel
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

    def remove(self):
        return self.api.status('DELETE', f'/volumes/{self.id}')

    def mount(self, path='/data'):
        return {'name': self.name, 'path': path}


def out(box, command, user=None):
    result = box.run(command, user)
    return (result.stdout + result.stderr).decode().strip()


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
        on_disk = pathlib.Path(os.environ['ATOLL_TEST_DATA']) / 'volumes' / volume.id
        self.assertEqual({(p.stat().st_uid - UID_BLOCK) for p in on_disk.iterdir()}, {0, 1000})

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
        on_disk = pathlib.Path(os.environ['ATOLL_TEST_DATA']) / 'volumes'
        out(box, 'mkdir -p /data/a/b; touch /data/a/b/c')
        self.assertEqual(volume.remove(), 204)
        deadline = time.monotonic() + 60
        while list((on_disk / '.incoming').iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(list((on_disk / '.incoming').iterdir()), [])
        self.assertFalse((on_disk / volume.id).exists())
        self.assertEqual(out(box, 'ls -A /data | wc -l; touch /data/x 2>/dev/null || echo gone', 'root'),
                         '0\ngone')
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
        incoming = pathlib.Path(os.environ['ATOLL_TEST_DATA']) / 'volumes' / '.incoming'
        deadline = time.monotonic() + 90
        while list(incoming.iterdir()) and time.monotonic() < deadline:  # gone for all, and then bit by bit
            time.sleep(0.05)
        self.assertEqual(list(incoming.iterdir()), [])

    def test_one_that_is_removed_under_writers_is_gone_soon_after_them(self):
        volume = self.volume()
        box = self.box(volume.mount())
        incoming = pathlib.Path(os.environ['ATOLL_TEST_DATA']) / 'volumes' / '.incoming'
        out(box, 'for i in 1 2 3; do setsid bash -c "cd /data; while :; do mkdir -p a/b; > a/b/\\$RANDOM; done" '
                 '>/dev/null 2>&1 </dev/null & done')
        time.sleep(0.3)
        self.assertEqual(volume.remove(), 204)
        time.sleep(0.5)
        box.kill()
        deadline = time.monotonic() + 90
        while list(incoming.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual(list(incoming.iterdir()), [])
