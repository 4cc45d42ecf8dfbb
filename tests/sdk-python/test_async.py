"""The package's asynchronous half: the same ground, and what only it can do."""
import asyncio
import io
import os
import unittest

from e2b import (AsyncSandbox, CommandExitException, FileNotFoundException, FilesystemEventType,
                 PtySize, SandboxNotFoundException, SandboxQuery, SandboxState, TimeoutException)
from support import unique


async def eventually(check, what, seconds=60):
    deadline = asyncio.get_running_loop().time() + seconds
    while not (value := check()):
        assert asyncio.get_running_loop().time() < deadline, f'{what}: not within {seconds} s'
        await asyncio.sleep(0.03)
    return value


class Async(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.metadata = {'test': unique('async')}
        self.box = await AsyncSandbox.create('base', timeout=120, metadata=self.metadata)

    async def asyncTearDown(self):
        await self.box.kill()

    async def test_commands(self):
        seen = []
        result = await self.box.commands.run('echo out; echo err >&2', on_stdout=seen.append)
        self.assertEqual((result.stdout, result.stderr, ''.join(seen)), ('out\n', 'err\n', 'out\n'))
        with self.assertRaises(CommandExitException) as caught:
            await self.box.commands.run('exit 3')
        self.assertEqual(caught.exception.exit_code, 3)
        with self.assertRaises(TimeoutException):
            await self.box.commands.run('sleep 20', timeout=1)

    async def test_fifty_at_once(self):
        results = await asyncio.gather(*(self.box.commands.run(f'echo {i}') for i in range(50)))
        self.assertEqual([r.stdout for r in results], [f'{i}\n' for i in range(50)])

    async def test_input_and_a_second_listener(self):
        command = await self.box.commands.run('cat', background=True, stdin=True)
        heard = []
        other = await self.box.commands.connect(command.pid, on_stdout=heard.append)
        await self.box.commands.send_stdin(command.pid, 'both\n')
        await eventually(lambda: heard, 'what the second hears')
        await self.box.commands.close_stdin(command.pid)
        for handle in (command, other):
            self.assertEqual((await handle.wait()).exit_code, 0)
        self.assertEqual((command.stdout, ''.join(heard)), ('both\n', 'both\n'))

    async def test_a_killed_sandbox_says_so_to_its_commands(self):
        command = await self.box.commands.run('sleep 60', background=True)
        await self.box.kill()
        with self.assertRaisesRegex(TimeoutException, 'killed or reached its end of life'):
            await command.wait()

    async def test_files(self):
        data = os.urandom(1 << 20)
        await self.box.files.write('a/data', io.BytesIO(data), metadata={'k': 'v'})
        self.assertEqual(await self.box.files.read('a/data', format='bytes'), data)
        stream = await self.box.files.read('a/data', format='stream', gzip=True)
        self.assertEqual(b''.join([chunk async for chunk in stream]), data)
        self.assertEqual((await self.box.files.get_info('a/data')).metadata, {'k': 'v'})
        await self.box.files.rename('a/data', 'b')
        self.assertEqual([e.name for e in await self.box.files.list('a')], [])
        with self.assertRaises(FileNotFoundException):
            await self.box.files.read('a/data')

    async def test_watching_streams_events_as_they_happen(self):
        await self.box.files.make_dir('w/sub')
        events = []
        handle = await self.box.files.watch_dir('w', on_event=events.append, recursive=True,
                                                include_entry=True)
        await self.box.files.write('w/sub/f', 'x')
        created = await eventually(lambda: [e for e in events if e.name == 'sub/f'], 'the event')
        self.assertEqual((created[0].type, created[0].entry.path),
                         (FilesystemEventType.CREATE, '/home/user/w/sub/f'))
        await handle.stop()
        count = len(events)
        await self.box.files.write('w/other', 'x')
        await asyncio.sleep(0.3)
        self.assertEqual(len(events), count)

    async def test_terminal(self):
        screen = bytearray()
        pty = await self.box.pty.create(PtySize(rows=30, cols=90), on_data=screen.extend)
        await self.box.pty.resize(pty.pid, PtySize(rows=31, cols=91))
        await self.box.pty.send_stdin(pty.pid, b'stty size; echo $((6*7)); exit\n')
        self.assertEqual((await pty.wait()).exit_code, 0)
        self.assertIn(b'31 91\r\n42\r\n', screen)

    async def test_pause_connect_and_list(self):
        await self.box.files.write('kept', 'x')
        await self.box.pause()
        self.assertFalse(await self.box.is_running())
        pages = AsyncSandbox.list(query=SandboxQuery(metadata=self.metadata))
        self.assertEqual([(b.sandbox_id, b.state) for b in await pages.next_items()],
                         [(self.box.sandbox_id, SandboxState.PAUSED)])
        again = await AsyncSandbox.connect(self.box.sandbox_id, timeout=60)
        self.assertEqual(await again.files.read('kept'), 'x')

    async def test_snapshot_and_fork(self):
        await self.box.files.write('then', 'x')
        snapshot, forks = await asyncio.gather(self.box.create_snapshot(), self.box.fork(count=2))
        copies = [await AsyncSandbox.create(snapshot.snapshot_id, timeout=60), *forks]
        try:
            self.assertEqual(await asyncio.gather(*(c.files.read('then') for c in copies)), ['x'] * 3)
        finally:
            await asyncio.gather(*(c.kill() for c in copies))
            self.assertTrue(await AsyncSandbox.delete_snapshot(snapshot.snapshot_id))

    async def test_end(self):
        await self.box.set_timeout(60)
        self.assertTrue(await self.box.kill())
        self.assertFalse(await self.box.kill())
        with self.assertRaises(SandboxNotFoundException):
            await self.box.get_info()
