"""Watching directories: the package's synchronous half polls, the other streams (test_async.py)."""
from e2b import FileNotFoundException, FilesystemEventType, SandboxException
from support import Boxed, eventually, unique

CREATE, WRITE, REMOVE, RENAME, CHMOD = (getattr(FilesystemEventType, name) for name in (
    'CREATE', 'WRITE', 'REMOVE', 'RENAME', 'CHMOD'))


class Watching(Boxed):
    def watch(self, **options):
        self.dir = unique('watched')
        self.box.files.make_dir(f'{self.dir}/sub')
        handle = self.box.files.watch_dir(self.dir, **options)
        self.addCleanup(handle.stop)
        return handle

    def expect(self, handle, *wanted):
        """All of these (kind, name) come, in this order; others may come between."""
        seen, left = [], list(wanted)
        def step():
            for event in handle.get_new_events():
                seen.append((event.type, event.name))
                if left and left[0] == seen[-1]:
                    left.pop(0)
            return not left
        eventually(step, f'{wanted} among {seen}')

    def test_the_life_of_a_file(self):
        handle = self.watch()
        self.box.files.write(f'{self.dir}/f', 'x')
        self.expect(handle, (CREATE, 'f'), (WRITE, 'f'))
        self.box.files.write(f'{self.dir}/f', 'y')
        self.expect(handle, (WRITE, 'f'))
        self.box.commands.run(f'cd {self.dir}; chmod 600 f; mv f g; rm g')
        self.expect(handle, (CHMOD, 'f'), (RENAME, 'f'), (CREATE, 'g'), (REMOVE, 'g'))

    def test_events_wait_to_be_fetched_once(self):
        handle = self.watch()
        self.box.files.write(f'{self.dir}/f', 'x')
        self.assertEqual(handle.get_new_events()[0].type, CREATE)
        self.assertEqual(handle.get_new_events(), [])

    def test_only_recursive_looks_below(self):
        flat = self.watch()
        deep = self.box.files.watch_dir(self.dir, recursive=True)
        self.addCleanup(deep.stop)
        self.box.files.write(f'{self.dir}/sub/f', 'x')
        self.expect(deep, (CREATE, 'sub/f'))
        self.assertEqual(flat.get_new_events(), [])
        self.box.commands.run(f'mkdir -p {self.dir}/new/er; sleep 0.1; touch {self.dir}/new/er/f')
        self.expect(deep, (CREATE, 'new/er/f'))

    def test_entries_on_request(self):
        handle = self.watch(include_entry=True)
        self.box.files.write(f'{self.dir}/f', 'x')
        event = handle.get_new_events()[0]
        self.assertEqual((event.entry.name, event.entry.owner), ('f', 'user'))

    def test_what_cannot_be_watched(self):
        with self.assertRaises(FileNotFoundException):
            self.box.files.watch_dir('no-such-dir')
        self.box.files.write('a-file', '')
        with self.assertRaises(SandboxException):
            self.box.files.watch_dir('a-file')

    def test_stopped_is_stopped(self):
        handle = self.box.files.watch_dir('.')
        handle.stop()
        with self.assertRaises(SandboxException):
            handle.get_new_events()
