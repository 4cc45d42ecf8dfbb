"""A host whose disk fills up: what needs room is refused by name, what has lost writes stays refused, and
everything else goes on once there is room again."""
import contextlib
import http.client
import os
import pathlib
import subprocess
import tempfile
import threading
import time
import unittest

from harness.faults import until
from harness.sandbox import Sandbox
from harness.server import Server
from test_plane import BUILD, Api


# Each of some processes writes as much as one call can: nothing, mapped, takes no memory.
ONE_CALL = b"""
import mmap, os
for i in range(8):
    if os.fork() == 0:
        size = (1 << 31) - 4096
        nothing = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
        os.write(os.open(f'big{i}', os.O_CREAT | os.O_WRONLY, 0o600), nothing)
        os._exit(0)
while True:
    os.wait()
"""


class Full(unittest.TestCase):
    """A server whose data directory is a small file system of its own."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-full-')
        self.addCleanup(scratch.cleanup)
        self.top = pathlib.Path(scratch.name)
        self.top.chmod(0o755)
        disk, self.place = self.top / 'disk', self.top / 'place'
        self.place.mkdir()
        with open(disk, 'wb') as file:
            file.truncate(1200 << 20)
        subprocess.run(['mkfs.ext4', '-q', '-F', disk], check=True)
        subprocess.run(['mount', '-o', 'loop', disk, self.place], check=True)
        self.addCleanup(subprocess.run, ['umount', '-l', self.place], check=True)
        self.place.chmod(0o755)
        self.server = Server(BUILD, self.place, '--pool', '1', '--stop-sandboxes')
        self.addCleanup(self.server.stop)
        self.server.start()
        self.env = self.server.env()
        self.api = Api(self.env, **{'X-API-Key': self.env['E2B_API_KEY']})

    def free_mib(self):
        st = os.statvfs(self.place)
        return st.f_bavail * st.f_frsize >> 20

    def fill(self, leave_mib):
        subprocess.run(['fallocate', '-l', f'{self.free_mib() - leave_mib}M', self.place / 'filler'], check=True)

    def empty(self):
        (self.place / 'filler').unlink()

    def snapshot(self, box):
        status, _, answer = self.api('POST', f'/sandboxes/{box.id}/snapshots', {})
        if status == 201:
            self.api.ok('DELETE', '/templates/' + answer['snapshotID'].replace(':', '%3A'))
        return status, answer.get('message', '')

    def test_without_room_nothing_is_made_and_with_room_all_is(self):
        box = Sandbox(env=self.env)
        self.fill(leave_mib=100)
        for _ in range(3):  # what was made ready before there was no room is still given away
            if self.api.status('POST', '/v2/sandboxes', {'templateID': 'base'}) == 507:
                break
        for path, body in (('/v2/sandboxes', {'templateID': 'base'}), (f'/sandboxes/{box.id}/snapshots', {}),
                           (f'/sandboxes/{box.id}/fork', {}), (f'/sandboxes/{box.id}/pause', {'memory': False})):
            status, _, answer = self.api('POST', path, body)
            self.assertEqual(status, 507, (path, answer))
            self.assertIn('MiB left', answer['message'])
        self.assertEqual(box.run('echo alive > f; cat f').text(), 'alive\n')
        self.empty()
        self.assertEqual(self.snapshot(box), (201, ''))
        self.assertEqual(self.api.status('POST', f'/sandboxes/{box.id}/pause', {'memory': False}), 204)
        self.assertEqual(self.api.status('POST', f'/v2/sandboxes/{box.id}/connect', {}), 201)
        self.assertEqual(box.run('cat f').text(), 'alive\n')

    def log_has(self, *words):
        return any(all(word in line for word in words) for line in self.server.log.read_text().splitlines())

    def healthy(self, box):
        """Its file system takes writes, has lost none, and can be kept."""
        self.assertEqual(box.run('echo well > w && sync -f w && cat w').text(), 'well\n')
        self.assertEqual(self.snapshot(box), (201, ''))

    def try_create(self):
        try:
            return Sandbox(env=self.env)
        except RuntimeError as refused:
            self.assertIn('507', str(refused))
            return None

    def test_a_sandbox_that_fills_the_hosts_disk_harms_nobody(self):
        neighbour, writer = Sandbox(env=self.env), Sandbox(env=self.env)
        self.assertEqual(neighbour.run('echo kept > f; cat f').text(), 'kept\n')
        # Far less than its own limit, far more than the host has.
        threading.Thread(target=self.endless, args=(writer,), daemon=True).start()
        self.assertTrue(until(lambda: self.log_has('sandbox.held', writer.id), 120), self.server.tail())
        self.assertGreater(self.free_mib(), 64)  # the reserve was not touched
        status, _, answer = self.api('POST', '/v2/sandboxes', {'templateID': 'base'})
        self.assertEqual(status, 507, answer)
        self.assertIn('nearly full', answer['message'])
        self.assertTrue(until(lambda: self.api('GET', '/api/v1/ready')[2]['disk']['state'] == 'short', 60))
        # The others are served, and the one that is held can be looked at and ended.
        self.assertEqual(neighbour.run('echo more >> f; cat f').text(), 'kept\nmore\n')
        self.assertEqual(self.api.status('GET', f'/sandboxes/{writer.id}'), 200)
        self.assertEqual(self.api.status('DELETE', f'/sandboxes/{writer.id}'), 204)
        made = [until(self.try_create, 120) for _ in range(4)]
        self.assertNotIn(None, made)
        for box in (neighbour, *made):
            self.healthy(box)

    @staticmethod
    def endless(box, command='head -c 4000000000 /dev/zero > big'):
        with contextlib.suppress(OSError, http.client.HTTPException, RuntimeError, ValueError):
            box.run(command)

    def test_one_call_that_writes_gigabytes_is_not_waited_for(self):
        """What is held stops when it leaves the kernel, which can be two gigabytes later."""
        neighbour, writer = Sandbox(env=self.env), Sandbox(env=self.env)
        writer.write('/home/user/one.py', ONE_CALL)
        threading.Thread(target=self.endless, args=(writer, 'python3 one.py'), daemon=True).start()
        least, end = self.free_mib(), time.monotonic() + 120
        while not self.log_has('sandbox.ended_for_room', writer.id) and time.monotonic() < end:
            least = min(least, self.free_mib())
            time.sleep(0.02)
        self.assertTrue(self.log_has('sandbox.ended_for_room', writer.id), self.server.tail())
        self.assertGreater(least, 64)  # the reserve was not touched
        self.assertTrue(until(lambda: self.api.status('GET', f'/sandboxes/{writer.id}') == 404, 60))
        made = until(self.try_create, 120)
        for box in (neighbour, made):
            self.healthy(box)

    def file_events(self):
        return [row['data'].get('path') for row in
                self.api.ok('GET', '/api/v1/events?format=json&limit=1000&kind=file.deleted')['items']]

    def test_what_happens_on_a_full_disk_is_in_the_event_log_when_there_is_room(self):
        box = Sandbox(env=self.env)
        names = [f'/tmp/{i}-{"x" * 200}' for i in range(300)]
        box.run('cd /tmp; for i in $(seq 0 299); do touch $i-' + 'x' * 200 + '; done')
        self.fill(leave_mib=0)
        with open(self.place / 'rest', 'wb') as rest, contextlib.suppress(OSError):
            os.posix_fallocate(rest.fileno(), 0, self.free_mib() + 1 << 20)
        for name in names:
            self.assertIn(self.api.status('DELETE', f'/api/v1/sandboxes/{box.id}/files?path={name}'), (200, 204))
        # From then on they wait in memory; how many are left there when room is made is up to the server.
        self.assertTrue(until(lambda: self.log_has('events.kept'), 60), self.server.tail())
        self.empty()
        self.assertTrue(until(lambda: len(self.file_events()) >= 300, 60), self.server.tail())
        self.assertEqual(self.file_events(), names)
        self.assertFalse(self.log_has('events.lost'))

    def test_the_worst_writer_ends_when_there_is_no_room_for_long(self):
        self.server.stop()
        self.server.options += ('--disk-hold', '1')
        self.server.start()
        writer = Sandbox(env=self.env)
        self.endless(writer)
        self.assertTrue(until(lambda: self.log_has('sandbox.ended_for_room', writer.id), 120), self.server.tail())
        self.assertTrue(until(lambda: self.api.status('GET', f'/sandboxes/{writer.id}') == 404, 60))
        box = until(self.try_create, 120)
        self.healthy(box)

    def test_a_sandbox_with_a_volume_takes_no_room_at_once(self):
        """What is written can be seen coming; what one call takes is gone before anybody looks."""
        self.api.ok('POST', '/volumes', {'name': 'v'})
        neighbour, taker = Sandbox(env=self.env), Sandbox(env=self.env, volumeMounts=[{'name': 'v', 'path': '/data'}])
        before = self.free_mib()
        result = taker.run(f'fallocate -l {before - 1}M /data/all')
        self.assertIn('not supported', result.stderr.decode())
        self.assertGreater(self.free_mib(), before - 64)
        # Room is given back as ever, and those without a volume take theirs as ever.
        self.assertEqual(taker.run('head -c 1000000 /dev/zero > /data/f && fallocate -p -o 0 -l 900000 /data/f').exit_code, 0)
        self.assertEqual(neighbour.run('fallocate -l 10M f').exit_code, 0)

    def test_a_volume_outlives_a_full_disk(self):
        """Its file system is larger than what is left below it: who writes is held before that shows."""
        made = self.api.ok('POST', '/volumes', {'name': 'w'})
        content = Api(self.env, Authorization='Bearer ' + made['token'])
        at = f"/volumecontent/{made['volumeID']}/file?path="
        writer = Sandbox(env=self.env, volumeMounts=[{'name': 'w', 'path': '/data'}])
        kept = writer.run('head -c 5000000 /dev/urandom > /data/kept; sync -f /data; base64 -w0 /data/kept').text()
        self.fill(leave_mib=700)
        threading.Thread(target=self.endless, args=(writer, 'while :; do head -c 1000000 /dev/urandom >> /data/big; done'),
                         daemon=True).start()
        self.assertTrue(until(lambda: self.log_has('sandbox.held', writer.id), 120), self.server.tail())
        self.assertEqual(content.status('PUT', at + '/more', raw=b'x'), 507)
        # Who has the volume's token makes room, and all goes on.
        self.assertEqual(content.status('DELETE', at.replace('/file?', '/path?') + '/big'), 204)
        self.empty()
        self.assertTrue(until(lambda: content.status('PUT', at + '/more', raw=b'x') == 201, 60), self.server.tail())
        self.api.ok('DELETE', f'/sandboxes/{writer.id}')
        with Sandbox(env=self.env, volumeMounts=[{'name': 'w', 'path': '/data'}]) as box:
            self.assertEqual(box.run('base64 -w0 /data/kept').text(), kept)
            self.assertEqual(box.run('echo x > /data/new && cat /data/new').text(), 'x\n')

    def lose_writes(self, after_s):
        """A sandbox that has lost some, or None: the kernel writes when it likes."""
        box = Sandbox(env=self.env)
        writer = threading.Thread(target=self.endless, args=(box, 'head -c 300000000 /dev/urandom > big'), daemon=True)
        writer.start()
        time.sleep(after_s)
        self.fill(leave_mib=4)
        os.sync()  # for which there is no room
        time.sleep(0.5)
        self.empty()  # what was lost is lost, whatever there is now
        writer.join()
        try:
            lost = box.run('sync -f /').exit_code != 0
        except (OSError, http.client.HTTPException, RuntimeError, ValueError):
            lost = True  # it has ended already
        if lost:
            return box
        self.api.ok('DELETE', f'/sandboxes/{box.id}')
        until(lambda: self.free_mib() > 500, 60)
        return None

    def test_one_whose_disk_has_failed_says_so_and_ends(self):
        """What fills the disk is nobody's sandbox: then nothing can be held."""
        box = next(filter(None, (self.lose_writes(tries * 0.05) for tries in range(1, 20))))
        gone = lambda: self.log_has('sandbox.ended', box.id, 'its disk has failed')
        self.assertTrue(until(gone, 120), self.server.tail())
        made = [until(self.try_create, 120) for _ in range(3)]
        for new in made:  # what was prepared when there was no room is given to nobody
            self.healthy(new)


if __name__ == '__main__':
    unittest.main()
