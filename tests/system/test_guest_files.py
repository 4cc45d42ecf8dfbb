"""The guest by itself: the file system's calls, up- and downloads, watching."""
import base64
import contextlib
import gzip
import json
import os
import pathlib
import tempfile
import time
import unittest
import urllib.parse

from harness.guest import ME, GuestTest


class Filesystem(GuestTest):
    def test_stat(self):
        file = self.dir / 'a.txt'
        file.write_text('12345')
        file.chmod(0o640)
        status, body = self.guest.call('Stat', {'path': str(file)})
        entry = body['entry']
        self.assertEqual(status, 200)
        self.assertEqual((entry['name'], entry['type'], entry['path'], entry['size'], entry['mode'],
                          entry['permissions'], entry['owner']),
                         ('a.txt', 'FILE_TYPE_FILE', str(file), '5', 0o640, '-rw-r-----', ME.pw_name))
        self.assertNotIn('metadata', entry)
        self.assertEqual(self.guest.call('Stat', {'path': str(self.dir)})[1]['entry']['type'],
                         'FILE_TYPE_DIRECTORY')
        status, body = self.guest.call('Stat', {'path': str(self.dir / 'none')})
        self.assertEqual((status, body['code']), (404, 'not_found'))
        status, body = self.guest.call('Stat', {'path': str(file / 'below')})
        self.assertEqual((status, body['code']), (404, 'not_found'))
        status, body = self.guest.call('Stat', {'path': '~other'})
        self.assertEqual((status, body['code']), (400, 'invalid_argument'))
        self.assertEqual(self.guest.call('Stat', {})[1]['entry']['path'], ME.pw_dir)

    def test_links(self):
        (self.dir / 'real').mkdir()
        (self.dir / 'link').symlink_to('real')
        (self.dir / 'lost').symlink_to('nowhere')
        entry = self.guest.call('Stat', {'path': str(self.dir / 'link')})[1]['entry']
        self.assertEqual((entry['type'], entry['symlinkTarget'], entry['permissions']),
                         ('FILE_TYPE_DIRECTORY', str(self.dir / 'real'), 'Lrwxrwxrwx'))
        entry = self.guest.call('Stat', {'path': str(self.dir / 'lost')})[1]['entry']
        self.assertEqual((entry['type'], entry['mode'], entry['symlinkTarget']),
                         ('FILE_TYPE_UNSPECIFIED', 0, str(self.dir / 'lost')))

    def test_make_dir(self):
        path = self.dir / 'a' / 'b'
        status, body = self.guest.call('MakeDir', {'path': str(path)})
        self.assertEqual((status, body['entry']['permissions']), (200, 'drwxr-xr-x'))
        status, body = self.guest.call('MakeDir', {'path': str(path)})
        self.assertEqual((status, body['code']), (409, 'already_exists'))
        (self.dir / 'file').touch()
        status, body = self.guest.call('MakeDir', {'path': str(self.dir / 'file')})
        self.assertEqual((status, body['code']), (400, 'invalid_argument'))

    @unittest.skipUnless(os.geteuid() == 0, 'only root can give files away')
    def test_parents_belong_to_the_user(self):
        auth = {'Authorization': 'Basic ' + base64.b64encode(b'nobody:').decode()}
        self.guest.call('MakeDir', {'path': str(self.dir / 'x' / 'y')}, **auth)
        self.assertEqual((self.dir / 'x').owner(), 'nobody')
        self.guest.http('POST', f'/files?path={self.dir}/z/f&username=nobody', b'1',
                        Content_Type='application/octet-stream')
        self.assertEqual((self.dir / 'z').owner(), 'nobody')
        self.assertEqual((self.dir / 'z' / 'f').owner(), 'nobody')

    def test_move(self):
        (self.dir / 'a').write_text('1')
        status, body = self.guest.call('Move', {'source': str(self.dir / 'a'),
                                                'destination': str(self.dir / 'new' / 'b')})
        self.assertEqual((status, body['entry']['name']), (200, 'b'))
        self.assertEqual((self.dir / 'new' / 'b').read_text(), '1')
        status, body = self.guest.call('Move', {'source': str(self.dir / 'a'),
                                                'destination': str(self.dir / 'c')})
        self.assertEqual((status, body['code']), (404, 'not_found'))

    def test_remove(self):
        deep = self.dir / 'tree'
        for i in range(20):
            (deep / f'd{i}' / 'e').mkdir(parents=True)
            (deep / f'd{i}' / 'e' / 'f').touch()
        (self.dir / 'keep').touch()
        (deep / 'link').symlink_to(self.dir / 'keep')
        self.assertEqual(self.guest.call('Remove', {'path': str(deep)}), (200, {}))
        self.assertFalse(deep.exists())
        self.assertTrue((self.dir / 'keep').exists())
        self.assertEqual(self.guest.call('Remove', {'path': str(deep)}), (200, {}))
        self.assertEqual(self.guest.call('Remove', {'path': str(self.dir / 'keep')}), (200, {}))

    def test_remove_of_a_tree_deeper_than_a_path_can_say(self):
        self.guest.sh(f'cd {self.dir} && mkdir deep && cd deep && for i in $(seq 60); do '
                      f'n=$(printf %0200d 0); mkdir $n && cd $n && touch f; done')
        self.assertEqual(self.guest.call('Remove', {'path': str(self.dir / 'deep')}), (200, {}))
        self.assertFalse((self.dir / 'deep').exists())

    def names(self, path, **more):
        status, body = self.guest.call('ListDir', {'path': str(path), **more})
        self.assertEqual(status, 200, body)
        return [entry['path'][len(str(path)):] for entry in body['entries']]

    def test_list(self):
        for name in ('b/c/d/e', 'a', 'b0', 'B'):
            (self.dir / name).mkdir(parents=True)
        (self.dir / 'b' / 'f').touch()
        (self.dir / 'link').symlink_to('b')
        self.assertEqual(self.names(self.dir), ['/B', '/a', '/b', '/b0', '/link'])
        self.assertEqual(self.names(self.dir, depth=0), self.names(self.dir, depth=1))
        self.assertEqual(self.names(self.dir, depth=2),
                         ['/B', '/a', '/b', '/b/c', '/b/f', '/b0', '/link'])
        self.assertEqual(self.names(self.dir / 'link'), ['/c', '/f'])
        self.assertEqual(self.names(self.dir / 'a'), [])

    def test_list_of_what_is_no_directory(self):
        (self.dir / 'file').touch()
        (self.dir / 'round').symlink_to('round')
        for name, status, code in (('none', 404, 'not_found'), ('file', 400, 'invalid_argument'),
                                   ('round', 400, 'failed_precondition')):
            got, body = self.guest.call('ListDir', {'path': str(self.dir / name)})
            self.assertEqual((got, body['code']), (status, code))

    def test_list_of_many(self):
        for i in range(5000):
            (self.dir / f'{i:05}').touch()
        names = self.names(self.dir)
        self.assertEqual(len(names), 5000)
        self.assertEqual(names, sorted(names))


class Files(GuestTest):
    def get(self, path, **headers):
        return self.guest.http('GET', '/files?path=' + urllib.parse.quote(str(path)), **headers)

    def put(self, path, data, **headers):
        return self.guest.http('POST', '/files?path=' + urllib.parse.quote(str(path)), data,
                               Content_Type='application/octet-stream', **headers)

    def multipart(self, parts, query=''):
        body = b''
        for name, filename, data in parts:
            name_text = f'; filename="{filename}"' if filename is not None else ''
            body += (f'--BOUND\r\nContent-Disposition: form-data; name="{name}"{name_text}\r\n'
                     f'Content-Type: application/octet-stream\r\n\r\n').encode() + data + b'\r\n'
        return self.guest.http('POST', '/files' + query, body + b'--BOUND--\r\n',
                               Content_Type='multipart/form-data; boundary=BOUND')

    def test_raw_upload_and_download(self):
        for data in (b'', b'x', os.urandom(3_000_000)):
            path = self.dir / 'sub dir' / 'f.bin'
            status, body, _ = self.put(path, data)
            self.assertEqual((status, json.loads(body)),
                             (200, [{'path': str(path), 'name': 'f.bin', 'type': 'file'}]))
            self.assertEqual(path.read_bytes(), data)
            self.assertEqual(path.stat().st_mode & 0o777, 0o644)
            status, got, headers = self.get(path)
            self.assertEqual((status, got), (200, data))
            self.assertEqual(headers['Content-Disposition'], 'inline; filename=f.bin')
            self.assertEqual(headers['Vary'], 'Accept-Encoding')

    def test_chunked_upload(self):
        with contextlib.closing(self.guest.connection()) as c:
            c.request('POST', f'/files?path={self.dir}/chunked', iter([b'a' * 70000, b'b', b'c' * 10]),
                      {'Content-Type': 'application/octet-stream'}, encode_chunked=True)
            self.assertEqual(c.getresponse().status, 200)
        self.assertEqual((self.dir / 'chunked').read_bytes(), b'a' * 70000 + b'b' + b'c' * 10)

    def test_multipart(self):
        data = os.urandom(1_000_000) + b'\r\n--BOUN'
        status, body, _ = self.multipart([('file', f'{self.dir}/a/1', b'one'), ('other', 'x', b'skipped'),
                                          ('file', f'{self.dir}/2', data)])
        self.assertEqual([entry['path'] for entry in json.loads(body)],
                         [f'{self.dir}/a/1', f'{self.dir}/2'])
        self.assertEqual((self.dir / '2').read_bytes(), data)
        status, body, _ = self.multipart([('file', 'ignored', b'q')], f'?path={self.dir}/q')
        self.assertEqual((status, (self.dir / 'q').read_bytes()), (200, b'q'))

    def test_multipart_mistakes(self):
        same = [('file', f'{self.dir}/s', b'1'), ('file', f'{self.dir}/s', b'2')]
        self.assertEqual(self.multipart(same)[0], 400)
        self.assertEqual((self.dir / 's').read_bytes(), b'1')
        self.assertEqual(self.multipart([('file', None, b'1')])[0], 400)
        status, body, _ = self.guest.http('POST', '/files', b'--B\r\n\r\ncut',
                                          Content_Type='multipart/form-data; boundary=B')
        self.assertEqual((status, json.loads(body)['code']), (400, 400))
        self.assertEqual(self.guest.http('POST', '/files', b'', Content_Type='multipart/form-data')[0], 400)

    def test_refused_uploads(self):
        self.assertEqual(self.put(self.dir, b'x')[0], 400)
        self.assertEqual(self.guest.http('POST', '/files', b'x',
                                         Content_Type='application/octet-stream')[0], 400)
        self.assertEqual(self.guest.http('POST', f'/files?path={self.dir}/t', b'x',
                                         Content_Type='text/plain')[0], 400)
        self.assertEqual(self.put(self.dir / 't', b'x', Content_Encoding='br')[0], 400)
        self.assertEqual(self.guest.http('POST', f'/files?path={self.dir}/t&username=no-such-user', b'x',
                                         Content_Type='application/octet-stream')[0], 401)
        self.assertFalse((self.dir / 't').exists())
        self.assertEqual(self.guest.http('POST', '/files?path=%00', b'x',
                                         Content_Type='application/octet-stream')[0], 400)

    def test_gzip_upload(self):
        data = b'squeeze me ' * 200_000
        half = len(data) // 2
        packed = gzip.compress(data[:half]) + gzip.compress(data[half:])  # two members are one file
        self.assertEqual(self.put(self.dir / 'z', packed, Content_Encoding='gzip')[0], 200)
        self.assertEqual((self.dir / 'z').read_bytes(), data)
        for bad in (b'not gzip', packed[:-20], b''):
            status, body, _ = self.put(self.dir / 'bad', bad, Content_Encoding='gzip')
            self.assertEqual(status, 400, body)

    def test_full_disk(self):
        status, body, _ = self.put('/dev/full', b'x' * 100_000)
        self.assertEqual((status, json.loads(body)['code']), (507, 507))

    def test_missing_directory_and_device(self):
        status, body, headers = self.get(self.dir / 'none')
        self.assertEqual((status, json.loads(body)),
                         (404, {'code': 404, 'message': f"path '{self.dir}/none' does not exist"}))
        self.assertEqual(headers['Content-Type'], 'application/json; charset=utf-8')
        status, body, _ = self.get(self.dir)
        self.assertEqual(json.loads(body), {'code': 400, 'message': f"path '{self.dir}' is a directory"})
        self.assertEqual(self.get('/dev/zero')[0], 400)
        os.mkfifo(self.dir / 'pipe')
        self.assertEqual(self.get(self.dir / 'pipe')[0], 400)
        self.assertEqual(self.get('~other')[0], 400)

    def test_files_without_a_size_are_read_to_their_end(self):
        status, body, _ = self.get('/proc/self/status')
        self.assertEqual(status, 200)
        self.assertIn(b'Name:', body)
        big = pathlib.Path('/proc/kallsyms')
        if big.exists() and len(big.read_bytes()) > 200_000:
            self.assertEqual(len(self.get(big)[1]), len(big.read_bytes()))

    def test_a_file_of_sysfs_is_shorter_than_it_says(self):
        path = pathlib.Path('/sys/kernel/mm/transparent_hugepage/enabled')
        if not path.exists():
            self.skipTest('this kernel has no such attribute')
        status, body, _ = self.get(str(path))
        self.assertEqual((status, body), (200, path.read_bytes()))

    def test_ranges_and_conditions(self):
        (self.dir / 'r').write_bytes(b'0123456789')
        for header, status, data, part in (('bytes=2-4', 206, b'234', 'bytes 2-4/10'),
                                           ('bytes=-2', 206, b'89', 'bytes 8-9/10'),
                                           ('bytes=8-', 206, b'89', 'bytes 8-9/10'),
                                           ('bytes=0-1,4-5', 200, b'0123456789', None)):
            got = self.get(self.dir / 'r', Range=header)
            self.assertEqual((got[0], got[1], got[2]['Content-Range']), (status, data, part))
        status, _, headers = self.get(self.dir / 'r', Range='bytes=10-')
        self.assertEqual((status, headers['Content-Range']), (416, 'bytes */10'))
        date = self.get(self.dir / 'r')[2]['Last-Modified']
        self.assertEqual(self.get(self.dir / 'r', If_Modified_Since=date)[0], 304)
        self.assertEqual(self.get(self.dir / 'r', Accept_Encoding='identity;q=0')[0], 406)

    def test_metadata(self):
        path = self.dir / 'm'
        status, body, _ = self.put(path, b'1', X_Metadata_Author='me & you', X_Metadata_N='2')
        entry = json.loads(body)[0]
        if 'metadata' not in entry:
            self.skipTest('this file system keeps no user attributes')
        self.assertEqual(entry['metadata'], {'author': 'me & you', 'n': '2'})
        self.assertEqual(self.guest.call('Stat', {'path': str(path)})[1]['entry']['metadata'],
                         {'author': 'me & you', 'n': '2'})
        moved = self.guest.call('Move', {'source': str(path), 'destination': str(self.dir / 'm2')})[1]
        self.assertEqual(moved['entry']['metadata']['n'], '2')
        status, body, _ = self.put(self.dir / 'm2', b'2')
        self.assertNotIn('metadata', json.loads(body)[0])
        self.assertEqual(self.put(self.dir / 'bad', b'1', X_Metadata_K='x' * 5000)[0], 400)
        self.assertFalse((self.dir / 'bad').exists())

    def test_compose(self):
        for name in 'abc':
            (self.dir / name).write_text(name * 3)
        sources = [str(self.dir / name) for name in 'abc']
        status, body, _ = self.guest.http('POST', '/files/compose', json.dumps(
            {'source_paths': sources, 'destination': str(self.dir / 'new' / 'all')}),
            Content_Type='application/json')
        self.assertEqual((status, json.loads(body)),
                         (200, {'path': f'{self.dir}/new/all', 'name': 'all', 'type': 'file'}))
        self.assertEqual((self.dir / 'new' / 'all').read_text(), 'aaabbbccc')
        self.assertEqual(os.listdir(self.dir), ['new'])
        for message, status in (({}, 400), ({'source_paths': sources}, 400),
                                ({'source_paths': sources, 'destination': sources[0]}, 400),
                                ({'source_paths': sources, 'destination': '/tmp/x'}, 404),
                                ({'source_paths': ['/'], 'destination': '/tmp/x'}, 400)):
            self.assertEqual(self.guest.http('POST', '/files/compose', json.dumps(message))[0], status)

    def test_compose_from_other_file_systems(self):
        with tempfile.NamedTemporaryFile(dir='/dev/shm', delete=False) as other:
            other.write(b'other ')
        (self.dir / 'mine').write_text('mine ')
        status, body, _ = self.guest.http('POST', '/files/compose', json.dumps(
            {'source_paths': [other.name, str(self.dir / 'mine'), '/proc/version'],
             'destination': str(self.dir / 'all')}), Content_Type='application/json')
        self.assertEqual(status, 200, body)
        version = pathlib.Path('/proc/version').read_text()
        self.assertEqual((self.dir / 'all').read_text(), 'other mine ' + version)
        self.assertFalse(os.path.exists(other.name))

    def test_an_upload_that_breaks_off(self):
        with self.guest.dial() as link:
            link.sendall(f'POST /files?path={self.dir}/half HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n'
                         'Content-Type: application/octet-stream\r\n\r\nhalf'.encode())
            time.sleep(0.1)
        self.assertEqual(self.guest.http('GET', '/health')[0], 204)

    def test_a_large_file_does_not_grow_the_guest(self):
        def peak():
            text = pathlib.Path(f'/proc/{self.guest.process.pid}/status').read_text()
            return int(text.split('VmHWM:')[1].split()[0])
        size, piece = 200 << 20, b'x' * (1 << 20)
        self.put(self.dir / 'warm', piece)
        before = peak()
        with contextlib.closing(self.guest.connection()) as c:
            c.request('POST', f'/files?path={self.dir}/large', (piece for _ in range(size >> 20)),
                      {'Content-Type': 'application/octet-stream', 'Content-Length': str(size)})
            self.assertEqual(c.getresponse().status, 200)
        self.assertEqual((self.dir / 'large').stat().st_size, size)
        with contextlib.closing(self.guest.connection()) as c:
            c.request('GET', f'/files?path={self.dir}/large')
            answer, total = c.getresponse(), 0
            while data := answer.read(1 << 20):
                total += len(data)
        self.assertEqual(total, size)
        self.assertLess(peak() - before, 20_000)


class Watching(GuestTest):
    def watch(self, path, **more):
        headers = {key: more.pop(key) for key in list(more) if '_' in key}
        return self.guest.open('WatchDir', {'path': str(path), **more}, 'filesystem.Filesystem',
                               **headers)

    def events(self, stream, count):
        got = []
        while len(got) < count:
            event = stream.next()['filesystem']
            got.append((event['name'], event['type'].removeprefix('EVENT_TYPE_')))
        return got

    def put(self, path, data=b'x'):
        status, _, _ = self.guest.http('POST', f'/files?path={path}', data,
                                       Content_Type='application/octet-stream')
        self.assertEqual(status, 200)

    def test_an_upload_is_three_events(self):
        with self.watch(self.dir) as s:
            self.assertEqual(s.next(), {'start': {}})
            self.put(f'{self.dir}/new')
            self.assertEqual(self.events(s, 3), [('new', 'CREATE'), ('new', 'CHMOD'), ('new', 'WRITE')])
            os.rename(self.dir / 'new', self.dir / 'other')
            os.unlink(self.dir / 'other')
            self.assertEqual(self.events(s, 3),
                             [('new', 'RENAME'), ('other', 'CREATE'), ('other', 'REMOVE')])

    def test_recursive_sees_what_comes_back_to_back(self):
        (self.dir / 'old' / 'deep').mkdir(parents=True)
        with self.watch(self.dir, recursive=True) as s:
            s.next()
            self.put(f'{self.dir}/old/deep/f')
            self.assertEqual(self.events(s, 3)[0], ('old/deep/f', 'CREATE'))
            self.guest.call('MakeDir', {'path': f'{self.dir}/n1/n2'})
            self.put(f'{self.dir}/n1/n2/f')
            seen = set()
            while ('n1/n2/f', 'WRITE') not in seen:
                seen.update(self.events(s, 1))
            self.assertIn(('n1', 'CREATE'), seen)
            self.assertIn(('n1/n2', 'CREATE'), seen)

    def test_a_large_directory_that_is_moved_in_is_told_whole(self):
        watched, large = self.dir / 'watched', self.dir / 'large'
        watched.mkdir()
        large.mkdir()
        names = {f'large/file-{n:06}' for n in range(15_000)}
        for name in names:
            (self.dir / name).touch()
        with self.watch(watched, recursive=True, includeEntry=True) as s:
            s.next()
            large.rename(watched / 'large')
            seen = [s.next()['filesystem'] for _ in range(len(names) + 1)]
        self.assertEqual({e['name'] for e in seen}, {'large', *names})
        self.assertEqual({e['type'] for e in seen}, {'EVENT_TYPE_CREATE'})

    def test_not_recursive_stays_on_its_level(self):
        (self.dir / 'sub').mkdir()
        with self.watch(self.dir) as s:
            s.next()
            (self.dir / 'sub' / 'f').touch()
            (self.dir / 'here').touch()
            self.assertEqual(self.events(s, 1), [('here', 'CREATE')])

    def test_a_directory_removed_or_moved_out_is_told_once(self):
        (self.dir / 'w' / 'a').mkdir(parents=True)
        (self.dir / 'w' / 'b').mkdir()
        with self.watch(self.dir / 'w', recursive=True) as s:
            s.next()
            (self.dir / 'w' / 'a').rmdir()
            os.rename(self.dir / 'w' / 'b', self.dir / 'gone')
            (self.dir / 'gone' / 'silent').touch()
            (self.dir / 'w' / 'last').touch()
            self.assertEqual(self.events(s, 3), [('a', 'REMOVE'), ('b', 'RENAME'), ('last', 'CREATE')])

    def test_entry(self):
        with self.watch(self.dir, includeEntry=True) as s:
            s.next()
            (self.dir / 'f').touch()
            event = s.next()['filesystem']
            self.assertEqual((event['type'], event['entry']['path']),
                             ('EVENT_TYPE_CREATE', f'{self.dir}/f'))

    def test_refused(self):
        (self.dir / 'file').touch()
        for name, code in (('none', 'not_found'), ('file', 'invalid_argument')):
            with self.watch(self.dir / name) as s:
                self.assertEqual(s.finish()['error']['code'], code)
            status, body = self.guest.call('CreateWatcher', {'path': str(self.dir / name)})
            self.assertEqual(body['code'], code)

    def test_deadline_and_keepalive(self):
        with self.watch(self.dir, Connect_Timeout_Ms='1500', Keepalive_Ping_Interval='1') as s:
            r = s.finish()
            self.assertEqual((r['keepalives'], r['error']['code']), (1, 'deadline_exceeded'))

    def test_polling(self):
        status, body = self.guest.call('CreateWatcher', {'path': str(self.dir), 'recursive': True})
        watcher = {'watcherId': body['watcherId']}
        self.assertRegex(watcher['watcherId'], r'^w[a-z0-9]{20}$')
        self.assertEqual(self.guest.call('GetWatcherEvents', watcher), (200, {'events': []}))
        self.put(f'{self.dir}/p')
        events = self.guest.call('GetWatcherEvents', watcher)[1]['events']
        self.assertEqual([event['type'] for event in events],
                         ['EVENT_TYPE_CREATE', 'EVENT_TYPE_CHMOD', 'EVENT_TYPE_WRITE'])
        self.assertEqual(self.guest.call('GetWatcherEvents', watcher), (200, {'events': []}))
        self.assertEqual(self.guest.call('RemoveWatcher', watcher), (200, {}))
        for method in ('GetWatcherEvents', 'RemoveWatcher'):
            status, body = self.guest.call(method, watcher)
            self.assertEqual((status, body['code']), (404, 'not_found'))

    def test_a_client_that_leaves_takes_its_watch_along(self):
        fds = f'/proc/{self.guest.process.pid}/fd'

        def watches():
            count = 0
            for fd in os.listdir(fds):
                with contextlib.suppress(FileNotFoundError):
                    count += 'inotify' in os.readlink(f'{fds}/{fd}')
            return count
        before = watches()
        s = self.watch(self.dir)
        s.next()
        self.assertEqual(watches(), before + 1)
        s.close()
        for _ in range(1500):
            if watches() == before:
                break
            time.sleep(0.02)
        self.assertEqual(watches(), before)
