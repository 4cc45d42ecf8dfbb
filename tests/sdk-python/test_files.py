"""Files: in and out in every form, and what is told about them."""
import hashlib
import io
import json
import os
import time

from e2b import FileNotFoundException, FileType, InvalidArgumentException, SandboxException
from support import Boxed, ask


class Contents(Boxed):
    def test_text_bytes_and_streams_both_ways(self):
        self.assertEqual(self.box.files.write('t/ü.txt', 'grüße').path, '/home/user/t/ü.txt')
        self.assertEqual(self.box.files.read('t/ü.txt'), 'grüße')
        data = os.urandom(3 << 20)
        for name, given in (('bytes', data), ('file', io.BytesIO(data)),
                            ('chunks', (data[i:i + 65536] for i in range(0, len(data), 65536)))):
            with self.subTest(name):
                self.box.files.write(name, given)
                self.assertEqual(self.box.files.read(name, format='bytes'), data)
        self.assertEqual(b''.join(self.box.files.read('file', format='stream')), data)

    def test_empty_in_every_form(self):
        self.box.files.write('empty', '')
        self.assertEqual(self.box.files.read('empty'), '')
        self.assertEqual(self.box.files.read('empty', format='bytes'), b'')
        self.assertEqual(b''.join(self.box.files.read('empty', format='stream')), b'')

    def test_gzip_on_the_way(self):
        text = 'again and again ' * 50000
        self.box.files.write('packed', text, gzip=True)
        self.assertEqual(self.box.commands.run('wc -c < packed').stdout.strip(), str(len(text)))
        self.assertEqual(self.box.files.read('packed', gzip=True), text)

    def test_both_kinds_of_upload(self):
        for octets in (False, True):
            with self.subTest(octets=octets):
                self.box.files.write('either', 'some', use_octet_stream=octets)
                self.assertEqual(self.box.files.read('either'), 'some')

    def test_several_at_once_in_order(self):
        wanted = [f'/home/user/many/{i}' for i in range(20)]
        made = self.box.files.write_files([{'path': p, 'data': p} for p in wanted])
        self.assertEqual([entry.path for entry in made], wanted)
        self.assertEqual(self.box.files.read(wanted[7]), wanted[7])
        self.assertEqual(self.box.files.write_files([]), [])

    def test_files_without_a_size_are_read_to_their_end(self):
        self.assertRegex(self.box.files.read('/proc/sys/kernel/random/boot_id'), r'^[0-9a-f-]{36}\n$')

    def test_what_is_missing_is_named(self):
        for form in ('text', 'bytes', 'stream'):
            with self.subTest(form), self.assertRaisesRegex(FileNotFoundException, 'no-such'):
                self.box.files.read('no-such', format=form)
        with self.assertRaises(FileNotFoundException):
            self.box.files.rename('no-such', 'other')
        with self.assertRaises(FileNotFoundException):
            self.box.files.list('no-such')
        with self.assertRaises(FileNotFoundException):
            self.box.files.get_info('no-such')
        self.box.files.remove('no-such')  # is forgiven

    def test_metadata_is_kept_and_cleared(self):
        made = self.box.files.write('marked', 'x', metadata={'Purpose': 'test', 'who': 'us'})
        self.assertEqual(made.metadata, {'purpose': 'test', 'who': 'us'})
        self.box.files.rename('marked', 'moved')
        self.assertEqual(self.box.files.get_info('moved').metadata, made.metadata)
        self.box.files.write('moved', 'y')
        self.assertFalse(self.box.files.get_info('moved').metadata)
        with self.assertRaises(InvalidArgumentException):
            self.box.files.write('refused', 'x', metadata={'not a name': 'x'})
        self.assertFalse(self.box.files.exists('refused'))


class Entries(Boxed):
    def test_an_ordinary_file_and_directory(self):
        self.box.files.write('plain/file', '12345')
        info = self.box.files.get_info('plain/file')
        self.assertEqual((info.name, info.path, info.type, info.size),
                         ('file', '/home/user/plain/file', FileType.FILE, 5))
        self.assertEqual((info.owner, info.group, info.mode & 0o777, info.permissions),
                         ('user', 'user', 0o644, '-rw-r--r--'))
        self.assertLess(abs(info.modified_time.timestamp() - time.time()), 60)
        info = self.box.files.get_info('plain')
        self.assertEqual((info.type, info.permissions, info.owner),
                         (FileType.DIR, 'drwxr-xr-x', 'user'))

    def test_symlinks_tell_where_they_lead(self):
        self.box.files.write('target', 'x')
        self.box.commands.run('ln -sf target link; ln -sf /no/where dangling')
        self.assertEqual(self.box.files.get_info('link').symlink_target, '/home/user/target')
        self.assertEqual(self.box.files.read('link'), 'x')

    def test_listing_by_depth(self):
        self.box.files.write_files([{'path': f'tree/{p}', 'data': ''} for p in ('b', 'a/c/d', 'a/e')])
        names = lambda depth: [e.path.removeprefix('/home/user/tree/')
                               for e in self.box.files.list('tree', depth=depth)]
        self.assertEqual(names(1), ['a', 'b'])
        self.assertEqual(names(2), ['a', 'a/c', 'a/e', 'b'])
        self.assertEqual(names(3), ['a', 'a/c', 'a/c/d', 'a/e', 'b'])
        with self.assertRaises(InvalidArgumentException):
            self.box.files.list('tree', depth=0)
        with self.assertRaises(SandboxException):
            self.box.files.list('tree/b')

    def test_directories_are_made_once_moved_and_removed(self):
        self.assertTrue(self.box.files.make_dir('d/e/f'))
        self.assertFalse(self.box.files.make_dir('d/e/f'))
        self.assertEqual(self.box.files.rename('d/e', 'moved-e').path, '/home/user/moved-e')
        self.assertTrue(self.box.files.exists('moved-e/f'))
        self.box.files.remove('moved-e')
        self.assertFalse(self.box.files.exists('moved-e'))

    def test_users_have_their_own_home(self):
        self.assertEqual(self.box.files.write('mine', 'x', user='root').path, '/root/mine')
        self.assertEqual(self.box.files.get_info('/root/mine', user='root').owner, 'root')
        self.box.files.write('/rooted/file', 'x')
        self.assertEqual(self.box.files.get_info('/rooted/file').owner, 'user')


class Signed(Boxed):
    def test_download_and_upload_without_any_header(self):
        self.box.files.write('signed', 'content')
        self.assertEqual(ask(self.box.download_url('signed')), (200, b'content'))
        status, body = ask(self.box.upload_url('up', use_signature_expiration=60), method='POST',
                           body='sent', headers={'Content-Type': 'application/octet-stream'})
        self.assertEqual((status, json.loads(body)[0]['path']), (200, '/home/user/up'))
        self.assertEqual(self.box.files.read('up'), 'sent')

    def test_expired_and_forged(self):
        self.box.files.write('signed', 'content')
        url = self.box.download_url('signed', use_signature_expiration=-5)
        self.assertEqual(ask(url)[0], 401)
        self.assertIn(b'already expired', ask(url)[1])
        forged = self.box.download_url('signed').replace('signed', 'other', 1)
        self.assertIn(ask(forged)[0], (401, 502))

    def test_a_big_file_is_the_same_inside(self):
        data = os.urandom(8 << 20)
        self.box.files.write('big', data)
        self.assertEqual(self.box.commands.run('sha256sum < big').stdout.split()[0],
                         hashlib.sha256(data).hexdigest())
