"""Pausing, resuming, snapshots and forks."""
from e2b import Sandbox, SandboxException, SandboxNotFoundException, SandboxState
from support import Unboxed, ask, eventually, everything, unique

BOOT_ID = '/proc/sys/kernel/random/boot_id'


class Pausing(Unboxed):
    def test_memory_processes_and_files_are_kept(self):
        box = self.make(envs={'KEPT': 'yes'})
        command = box.commands.run('X=kept; while read line; do echo "$line $X"; done',
                                   background=True, stdin=True)
        box.files.write('kept', 'content')
        boot = box.files.read(BOOT_ID)
        self.assertTrue(box.pause())
        self.assertFalse(box.pause())
        self.assertFalse(box.is_running())
        self.assertEqual(box.get_info().state, SandboxState.PAUSED)
        again = Sandbox.connect(box.sandbox_id)
        self.assertTrue(box.is_running())
        self.assertEqual((again.files.read('kept'), again.files.read(BOOT_ID)), ('content', boot))
        self.assertEqual(again.commands.run('echo $KEPT').stdout, 'yes\n')
        process = again.commands.connect(command.pid)
        again.commands.send_stdin(command.pid, 'still\n')
        again.commands.close_stdin(command.pid)
        self.assertEqual(process.wait().stdout, 'still kept\n')

    def test_only_the_disk_is_kept_on_request(self):
        box = self.make()
        box.files.write('kept', 'content')
        command = box.commands.run('sleep 99', background=True)
        boot = box.files.read(BOOT_ID)
        box.pause(mode='filesystem')
        box.connect()
        self.assertEqual(box.files.read('kept'), 'content')
        self.assertNotEqual(box.files.read(BOOT_ID), boot)
        self.assertNotIn(command.pid, [p.pid for p in box.commands.list()])

    def test_its_time_pauses_and_traffic_wakes_it(self):
        box = self.make(lifecycle={'on_timeout': 'pause', 'auto_resume': True})
        self.assertTrue(box.get_info().lifecycle['auto_resume'])
        box.commands.run('python3 -m http.server 8000', background=True, timeout=0)
        url = f'http://{box.get_host(8000)}/'
        eventually(lambda: ask(url)[0] == 200, 'the server inside')
        box.set_timeout(0)
        eventually(lambda: box.get_info().state == SandboxState.PAUSED, 'the pause')
        self.assertEqual(ask(url)[0], 200)
        self.assertEqual(box.get_info().state, SandboxState.RUNNING)

    def test_a_paused_one_can_be_killed(self):
        box = self.make()
        box.pause()
        self.assertTrue(box.kill())
        with self.assertRaises(SandboxNotFoundException):
            Sandbox.connect(box.sandbox_id)


class Copies(Unboxed):
    def test_a_snapshot_is_a_disk_to_start_from(self):
        box = self.make()
        box.files.write('then', '1')
        snapshot = box.create_snapshot()
        self.addCleanup(Sandbox.delete_snapshot, snapshot.snapshot_id)
        box.files.write('later', '2')
        self.assertIn(snapshot.snapshot_id,
                      [s.snapshot_id for s in everything(box.list_snapshots())])
        copy = self.make(snapshot.snapshot_id)
        self.assertEqual(copy.files.read('then'), '1')
        self.assertFalse(copy.files.exists('later'))
        self.assertTrue(box.is_running())

    def test_a_named_snapshot_is_found_and_deleted_once(self):
        box, name = self.make(), unique('snap')
        snapshot = box.create_snapshot(name=name)
        self.assertTrue(any(name in given for given in snapshot.names))
        found = everything(Sandbox.list_snapshots(name=name))
        self.assertEqual([s.snapshot_id for s in found], [snapshot.snapshot_id])
        self.assertEqual(everything(Sandbox.list_snapshots(name=unique('none'))), [])
        self.assertTrue(Sandbox.delete_snapshot(snapshot.snapshot_id))
        self.assertFalse(Sandbox.delete_snapshot(snapshot.snapshot_id))
        with self.assertRaises(SandboxException):
            Sandbox.create(snapshot.snapshot_id)

    def test_forks_go_their_own_ways(self):
        box = self.make()
        box.files.write('shared', 'same')
        forks = box.fork(count=3)
        for fork in forks:
            self.addCleanup(fork.kill)
        self.assertEqual(len({box.sandbox_id, *(f.sandbox_id for f in forks)}), 4)
        for number, fork in enumerate(forks):
            self.assertEqual(fork.files.read('shared'), 'same')
            fork.files.write('shared', str(number))
        self.assertEqual([f.files.read('shared') for f in forks], ['0', '1', '2'])
        self.assertEqual(box.files.read('shared'), 'same')
        box.kill()
        with self.assertRaises(SandboxNotFoundException):
            box.fork()
