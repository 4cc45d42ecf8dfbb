"""Sandboxes that may make namespaces and mounts inside: off unless asked for, kept over all that a sandbox goes
through, with the same covers over /proc, and no file system of theirs that keeps anybody waiting."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

from harness.sandbox import Sandbox
from harness.server import Server, read_env
from harness.v1 import Api

PROGRAM = pathlib.Path(os.environ['ATOLL_TEST_BIN'])
BWRAP = shutil.which('bwrap')
INSIDE = 'bwrap --ro-bind / / --dev /dev --proc /proc --unshare-all --die-with-parent'
# Takes requests and answers none, but the first; one of its own threads is the first to wait.
HANGING = r'''
import ctypes, os, struct, sys, threading
libc, where = ctypes.CDLL(None, use_errno=True), sys.argv[1]
os.makedirs(where, exist_ok=True)
fd = os.open('/dev/fuse', os.O_RDWR)
options = f'fd={fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other'
if libc.mount(b'hang', where.encode(), b'fuse', 0, options.encode()):
    sys.exit(f'mount: {os.strerror(ctypes.get_errno())}')
unique = struct.unpack_from('IIQ', os.read(fd, 1 << 17))[2]
body = struct.pack('IIIIHHIIHHI28x', 7, 31, 0, 0, 12, 9, 4096, 1, 1, 0, 0)
os.write(fd, struct.pack('IiQ', 16 + len(body), 0, unique) + body)
threading.Thread(target=os.stat, args=(where + '/x',), daemon=True).start()
while True:
    os.read(fd, 1 << 17)
    open('/tmp/hangs', 'w').close()
'''


def text(box, command, user=None):
    result = box.run(command, user)
    return (result.stdout + result.stderr).decode(errors='replace').strip()


def hang(box):
    """Until it does."""
    box.run(f"cat >/tmp/hang.py <<'END'\n{HANGING}\nEND\n")
    return text(box, 'setsid python3 /tmp/hang.py /tmp/m </dev/null >/tmp/said 2>&1 & '
                     'for i in $(seq 600); do [ -e /tmp/hangs ] && break; sleep 0.05; done; ls /tmp/hangs; cat /tmp/said',
                'root')


class Running:
    """The run's own server, as tests/harness/v1.py wants it."""

    def __init__(self):
        url = os.environ['E2B_API_URL'].removeprefix('http://')
        self.host, port = url.split(':')
        self.port = int(port)

    def env(self):
        return read_env(pathlib.Path(os.environ['ATOLL_TEST_DATA'], 'env'))


class Case(unittest.TestCase):
    def setUp(self):
        self.api = Api(Running())

    def box(self, **body):
        box = Sandbox(**body)
        self.addCleanup(self.end, box)
        return box

    @staticmethod
    def end(box):
        try:
            box.kill()
        except RuntimeError:
            pass  # the test has ended it

    def nested(self, **body):
        return self.box(nested=True, **body)

    def with_bwrap(self, **body):
        box = self.nested(**body)
        subprocess.run([PROGRAM, 'sandbox', 'cp', BWRAP, f'{box.id}:/tmp/bwrap'], check=True, capture_output=True)
        self.assertEqual(text(box, 'install -m 755 /tmp/bwrap /usr/local/bin/bwrap && echo ok', 'root'), 'ok')
        return box

    def seen(self, box):
        """Whether it is nested, as it is, and as both surfaces say."""
        works = text(box, 'unshare -Urm true && echo yes') == 'yes'
        self.assertEqual(self.api.ask('GET', f'/sandboxes/{box.id}')['nested'], works)
        self.assertEqual(box.api('GET', f'/sandboxes/{box.id}')['nested'], works)
        return works


class Asked(Case):
    def test_off_by_default(self):
        box = self.box()
        self.assertFalse(self.seen(box))
        self.assertIn('Operation not permitted', text(box, 'unshare -U true'))
        self.assertIn('Operation not permitted', text(box, 'unshare -m true', 'root'))
        self.assertNotIn('/dev/fuse', text(box, 'ls /dev/*'))

    def test_both_surfaces_take_it(self):
        self.assertTrue(self.seen(self.nested()))
        made = self.api.ask('POST', '/sandboxes', {'nested': True})
        self.addCleanup(self.api.call, 'DELETE', f"/sandboxes/{made['id']}")
        self.assertTrue(made['nested'])
        for path, body in (('/api/v1/sandboxes', '{"nested": 1}'), ('/api/v1/sandboxes', '{"Nested": true}'),
                           ('/v2/sandboxes', '{"templateID": "base", "nested": "yes"}')):
            answer = self.api.raw('POST', path, body, {'Content-Type': 'application/json'})
            self.assertEqual(answer.status, 400, (body, answer.body))

    def test_with_a_volume(self):
        made = json.loads(self.api.raw('POST', '/volumes', '{"name": "nested"}').body)
        self.addCleanup(self.api.raw, 'DELETE', f"/volumes/{made['volumeID']}")
        box = self.nested(volumeMounts=[{'name': 'nested', 'path': '/data'}])
        self.addCleanup(self.end, box)  # before the volume goes
        self.assertEqual(text(box, 'sudo sh -c "echo kept >/data/file"; unshare -Urm cat /data/file; ls /dev/fuse'),
                         'kept\n/dev/fuse')
        self.assertNotEqual(box.run('umount /data', 'root').exit_code, 0)

    def test_an_operator_may_forbid_it(self):
        with tempfile.TemporaryDirectory(prefix='atoll-nested-') as scratch:
            os.chmod(scratch, 0o755)
            with Server(PROGRAM.parent, scratch, '--no-nested', '--pool', '0', '--stop-sandboxes') as server:
                api = Api(server)
                answer = api.call('POST', '/sandboxes', {'nested': True})
                self.assertEqual(answer.status, 400, answer.body)
                self.assertIn('--no-nested', answer.json()['message'])
                self.assertFalse(api.ask('POST', '/sandboxes', {})['nested'])

    def test_runtimes_that_cannot_say_so(self):
        for runtime, program in (('runc', 'runc'), ('crun', 'crun'), ('gvisor', 'runsc')):
            if not shutil.which(program):
                continue
            answer = self.api.call('POST', '/sandboxes', {'nested': True, 'runtime': runtime})
            if runtime == 'gvisor' and answer.status == 201:
                self.addCleanup(self.api.call, 'DELETE', f"/sandboxes/{answer.json()['id']}")
                continue  # a runsc that has mount namespaces
            self.assertEqual((answer.status, answer.json()['code']), (400, 'not_supported'), answer.body)

    def test_it_is_kept(self):
        """By a pause to disk, a fork, and what starts from a snapshot, unless that is asked for otherwise."""
        box = self.nested()
        self.api.ask('POST', f'/sandboxes/{box.id}/pause', {'memory': False})
        self.api.ask('POST', f'/sandboxes/{box.id}/resume', {})
        self.assertTrue(self.seen(box))
        [fork] = self.api.ask('POST', f'/sandboxes/{box.id}/fork', {'count': 1})['items']
        self.addCleanup(self.api.call, 'DELETE', f"/sandboxes/{fork['id']}")
        self.assertTrue(self.api.ask('GET', f"/sandboxes/{fork['id']}")['nested'])
        snapshot = box.api('POST', f'/sandboxes/{box.id}/snapshots', {})['snapshotID']
        self.addCleanup(box.api, 'DELETE', f'/templates/{snapshot}')
        self.assertTrue(self.seen(self.box(template=snapshot)))
        self.assertFalse(self.seen(self.box(template=snapshot, nested=False)))


@unittest.skipUnless(BWRAP, 'bwrap is not installed')
class Inside(Case):
    def test_bwrap(self):
        box = self.with_bwrap()
        for user in ('user', 'root'):
            seen = text(box, f'{INSIDE} sh -c "ps ax; ls /dev; ip -o address show lo; hostname"', user)
            self.assertIn('127.0.0.1/8', seen)
            self.assertRegex(seen, r'(?m)^ +1 .*bwrap')
            self.assertNotIn('atoll-guest', seen)
        self.assertEqual(text(box, f'bwrap --bind / / --dev-bind /dev /dev --proc /proc --unshare-user --unshare-pid '
                                   f'{INSIDE} echo twice'), 'twice')

    def test_many_after_the_other(self):
        """Networks that are over do not count for long."""
        box = self.with_bwrap()
        self.assertEqual(text(box, f'n=0; for i in $(seq 100); do {INSIDE} true || n=$((n + 1)); done; echo $n'), '0')

    def test_a_proc_inside_is_covered_as_the_sandboxes_own(self):
        box = self.with_bwrap(limits={'memoryMB': 512})
        script = ('free -m | awk "/Mem/ {print \\$2}"; cat /proc/diskstats /proc/partitions /proc/keys; ls /proc/fs; '
                  'for p in diskstats meminfo sys; do umount -l /proc/$p 2>/dev/null && echo uncovered; done; '
                  'echo 1 >/proc/sys/net/ipv4/ipfrag_time')
        for how in (f"{INSIDE} --cap-add ALL sh -c '{script}'", f"unshare -Urnpf --mount-proc sh -c '{script}'"):
            lines = text(box, how).splitlines()
            self.assertEqual((len(lines), lines[0]), (2, '512'), lines)
            self.assertIn('Read-only file system', lines[1])

    def test_root_may_mount_and_uncovers_nothing(self):
        box = self.nested()
        self.assertEqual(text(box, 'sudo mount -t tmpfs none /mnt && stat -fc %T /mnt'), 'tmpfs')
        for path in ('/proc', '/proc/meminfo', '/proc/sys', '/sys'):
            self.assertNotEqual(box.run(f'umount {path}', 'root').exit_code, 0, path)
        self.assertNotEqual(box.run('mount -o remount,rw /proc/sys || mount -o remount,bind,rw /proc/sys',
                                    'root').exit_code, 0)
        self.assertNotEqual(box.run('mount -t proc proc /mnt', 'root').exit_code, 0)
        self.assertIn('not permitted', text(box, 'ip link add type veth', 'root'))

    def test_what_is_made_is_bounded(self):
        box = self.nested()
        script = ('import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nassert libc.unshare(0x10000000) == 0\n'
                  'keep = []\nwhile libc.unshare(0x40000000) == 0 and len(keep) < 500:\n'
                  '    keep.append(os.open("/proc/self/ns/net", 0))\nprint(len(keep), ctypes.get_errno())')
        most, error = map(int, text(box, f"python3 -c '{script}'").split())
        self.assertLessEqual(most, 64)
        self.assertEqual(error, 28)  # ENOSPC
        deadline = time.monotonic() + 60  # and they are given back
        while text(box, 'unshare -Urn true && echo yes') != 'yes':
            self.assertLess(time.monotonic(), deadline)


class Served(Case):
    """File systems that a program of the sandbox serves, and does not."""

    def hanging(self):
        box = self.nested()
        self.assertEqual(hang(box), '/tmp/hangs')
        return box

    def timed(self, what, most=20):
        began = time.monotonic()
        answer = what()
        self.assertLess(time.monotonic() - began, most)
        return answer

    def test_it_ends_all_the_same(self):
        box = self.hanging()
        self.timed(box.kill)
        # What the kernel had of it is gone too: nothing of it would answer now.
        self.assertEqual(self.api.ask('GET', f'/sandboxes/{box.id}')['state'], 'ended')

    def test_it_is_paused_and_goes_on(self):
        box = self.hanging()
        self.timed(lambda: self.api.ask('POST', f'/sandboxes/{box.id}/pause', {}))
        self.timed(lambda: self.api.ask('POST', f'/sandboxes/{box.id}/resume', {}))
        self.assertEqual(text(box, 'echo on'), 'on')

    def test_it_is_saved(self):
        box = self.hanging()
        snapshot = self.timed(lambda: box.api('POST', f'/sandboxes/{box.id}/snapshots', {}))['snapshotID']
        self.addCleanup(box.api, 'DELETE', f'/templates/{snapshot}')
        self.assertEqual(text(self.box(template=snapshot), 'ls /tmp/hang.py'), '/tmp/hang.py')
        self.timed(lambda: self.api.ask('POST', f'/sandboxes/{box.id}/pause', {'memory': False}))

    def test_a_guest_that_waits_is_no_obstacle(self):
        """Its own PID 1 asks for a file there, and is deaf. It still ends, and others never notice."""
        box, other = self.hanging(), self.box()
        link = box.connection(2)
        self.addCleanup(link.close)
        with self.assertRaises(OSError):
            link.request('GET', '/files?path=/tmp/m/x', headers=box.headers())
            link.getresponse()
        self.assertEqual(self.timed(lambda: text(other, 'echo well')), 'well')
        self.timed(box.kill)

    def test_the_default_user_has_the_device(self):
        box = self.nested()
        self.assertEqual(text(box, 'stat -c "%a %t:%T" /dev/fuse; exec 3<>/dev/fuse && echo open').splitlines(),
                         ['666 a:e5', 'open'])


if __name__ == '__main__':
    unittest.main()
