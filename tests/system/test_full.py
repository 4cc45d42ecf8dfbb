"""A host whose disk fills up: what needs room is refused by name, what has lost writes stays refused, and
everything else goes on once there is room again."""
import os
import pathlib
import subprocess
import tempfile
import unittest

from harness.sandbox import Sandbox
from harness.server import Server
from test_plane import BUILD, Api

ROOM_MIB = 150  # a little more than the reserve below which nothing is made


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

    def test_lost_writes_are_not_saved_as_if_nothing_were(self):
        box, other = Sandbox(env=self.env), Sandbox(env=self.env)
        self.fill(leave_mib=ROOM_MIB)
        box.run(f'head -c {(ROOM_MIB + 150) << 20} /dev/urandom > big')
        status, message = self.snapshot(box)  # makes it be written out, for which there is no room
        self.assertEqual(status, 507, message)
        self.empty()
        for _ in range(3):
            status, message = self.snapshot(box)
            self.assertEqual(status, 507, message)
            self.assertIn('writes of this sandbox were lost', message)
        self.assertEqual(self.snapshot(other), (201, ''))
        with Sandbox(env=self.env) as new:
            self.assertEqual(new.run('echo new').text(), 'new\n')
            self.assertEqual(self.snapshot(new), (201, ''))


if __name__ == '__main__':
    unittest.main()
