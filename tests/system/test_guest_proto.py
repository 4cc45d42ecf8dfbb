"""The guest by itself, spoken to in binary protobuf. The bytes are made and read by hand here, so that
the guest's own tables are not what they are compared with."""
import json
import os
import struct
import time
import unittest

from harness.guest import ME, GuestTest, frame

UNARY, STREAM = 'application/proto', 'application/connect+proto'
NOBODY_KNOWS = bytes([0xf8, 0x3e, 0x01])  # field 1007: unknown fields are passed over


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def field(number, value):
    """An int or bool as a varint, text or bytes by its length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(int(value))
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def read_varint(data, at):
    n = shift = 0
    while True:
        n |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return n, at


def read(data):
    """{number: [values]}."""
    found, at = {}, 0
    while at < len(data):
        tag, at = read_varint(data, at)
        value, at = read_varint(data, at)
        assert tag & 7 in (0, 2), tag
        if tag & 7 == 2:
            size, value = value, data[at:at + value]
            assert len(value) == size, 'cut'
            at += size
        found.setdefault(tag >> 3, []).append(value)
    return found


def one(message, *path):
    """The value at the end of a path of field numbers, each of which occurs once."""
    for number in path:
        (message,) = (read(message) if isinstance(message, bytes) else message)[number]
    return message


def zigzag(n):
    return n >> 1 ^ -(n & 1)


def command(cmd, *args, cwd=None, **envs):
    config = field(1, cmd) + b''.join(field(2, a) for a in args)
    config += b''.join(field(3, field(1, k) + field(2, v)) for k, v in envs.items())
    return field(1, config + (field(4, cwd) if cwd else b''))


START, DATA, END, KEEPALIVE = 1, 2, 3, 4
STDOUT, STDERR, PTY = 1, 2, 3


class Stream:
    def __init__(self, guest, method, message, service='process.Process', **headers):
        self.connection = guest.connection()
        self.connection.request('POST', f'/{service}/{method}', frame(message),
                                {'Content-Type': STREAM, **headers})
        self.answer = self.connection.getresponse()
        self.type = self.answer.headers['Content-Type']
        self.end = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()
        self.answer.close()

    def __iter__(self):
        """Each message's bytes; behind the last, `end` is the end frame."""
        while True:
            flags, size = struct.unpack('>BI', self.answer.read(5))
            payload = self.answer.read(size)
            if flags == 2:
                self.end = json.loads(payload)
                return
            yield payload

    def next(self):
        return next(iter(self))

    def output(self):
        """What came on each stream, and the end event."""
        text, end = {}, None
        for message in self:
            event = read(one(message, 1))
            if DATA in event:
                data = read(event[DATA][0])
                for kind in data.keys() & {STDOUT, STDERR, PTY}:
                    text[kind] = text.get(kind, b'') + data[kind][0]
            if END in event:
                end = read(event[END][0])
        return text, end


class ProtoTest(GuestTest):
    def post(self, method, message, type_=UNARY, **headers):
        service = 'process.Process' if method in {'List', 'SendInput', 'SendSignal', 'CloseStdin', 'Update',
                                                  'StreamInput'} else 'filesystem.Filesystem'
        return self.guest.http('POST', f'/{service}/{method}', message, Content_Type=type_, **headers)

    def call(self, method, message):
        status, body, headers = self.post(method, message)
        self.assertEqual((status, headers['Content-Type']), (200, UNARY), body)
        return body

    def stream(self, method, message, **more):
        return Stream(self.guest, method, message, **more)

    def start(self, message, **headers):
        return self.stream('Start', message, **headers)

    def pid_of(self, stream):
        return one(stream.next(), 1, START, 1)


class Processes(ProtoTest):
    def test_output_and_the_end_of_a_command(self):
        script = 'printf "%s|%s" "$A" "$PWD"; printf err >&2; exit 3'
        with self.start(command('/bin/sh', '-c', script, cwd=str(self.dir), A='é "x"') + NOBODY_KNOWS) as s:
            self.assertEqual(s.type, STREAM)
            self.assertGreater(self.pid_of(s), 0)
            text, end = s.output()
        self.assertEqual(text[STDOUT].decode(), f'é "x"|{self.dir}')
        self.assertEqual(text[STDERR], b'err')
        self.assertEqual(zigzag(end[1][0]), 3)
        self.assertEqual(end[2], [1])
        self.assertEqual(end[3], [b'exit status 3'])
        self.assertEqual(s.end, {})

    def test_a_killed_command_ends_with_a_negative_number(self):
        with self.start(command('/bin/sleep', '100')) as s:
            pid = self.pid_of(s)
            self.assertEqual(self.call('SendSignal', field(1, field(1, pid)) + field(2, 9)), b'')
            _, end = s.output()
        self.assertEqual(zigzag(end[1][0]), -1)
        self.assertIn(b'killed', end[3][0])

    def test_every_byte_of_much_output_arrives(self):
        size = 5 << 20
        script = f'i=0; while [ $i -lt {size >> 16} ]; do cat "{self.dir}/block"; i=$((i+1)); done'
        block = os.urandom(1 << 16)
        (self.dir / 'block').write_bytes(block)
        with self.start(command('/bin/sh', '-c', script)) as s:
            text, _ = s.output()
        self.assertEqual(len(text[STDOUT]), size)
        self.assertEqual(text[STDOUT], block * (size >> 16))

    def test_input_signals_and_listing(self):
        with self.start(command('/bin/cat') + field(3, 'my-tag') + field(4, True)) as s:
            pid = self.pid_of(s)
            (info,) = [i for i in read(self.call('List', b''))[1] if one(i, 2) == pid]
            self.assertEqual(one(info, 1, 1), b'/bin/cat')
            self.assertEqual(one(info, 3), b'my-tag')
            self.call('SendInput', field(1, field(2, 'my-tag')) + field(2, field(1, b'a\0\xffb')))
            self.assertEqual(one(s.next(), 1, DATA, STDOUT), b'a\0\xffb')
            self.assertEqual(self.call('CloseStdin', field(1, field(1, pid))), b'')
            _, end = s.output()
        self.assertEqual(zigzag(end[1][0]), 0)

    def test_a_stream_of_input(self):
        with self.start(command('/bin/cat') + field(4, True)) as s:
            pid = self.pid_of(s)
            chosen = field(1, field(1, field(1, pid)))
            data = [field(2, field(2, field(1, part))) for part in (b'one ', b'two')]
            status, body, headers = self.post(
                'StreamInput', b''.join(frame(m) for m in (chosen, data[0], field(3, b''), data[1])), STREAM)
            self.assertEqual((status, headers['Content-Type']), (200, STREAM))
            self.assertEqual(body, frame(b'') + frame(b'{}', 2))
            seen = b''
            while seen != b'one two':
                seen += one(s.next(), 1, DATA, STDOUT)
            self.call('CloseStdin', field(1, field(1, pid)))

    def test_a_terminal(self):
        size = field(1, 100) + field(2, 30)
        with self.start(command('/bin/sh', '-c', 'stty size') + field(2, field(1, size))) as s:
            self.pid_of(s)
            text, _ = s.output()
        self.assertEqual(text[PTY], b'30 100\r\n')

    def test_one_that_has_ended_is_told_again_to_both_kinds_of_clients(self):
        with self.start(command('/bin/echo', 'kept')) as s:
            pid = self.pid_of(s)
            data = one(s.next(), 1, DATA)
            self.assertEqual(one(data, 1000), 1)  # the event's number
            s.output()
        with self.stream('Connect', field(1, field(1, pid)) + field(1000, 1)) as s:
            self.assertEqual(self.pid_of(s), pid)
            self.assertEqual(s.output()[0][STDOUT], b'kept\n')
        with self.guest.open('Connect', {'process': {'pid': pid}, 'replayFrom': '1'}) as s:
            self.assertEqual(s.finish()['stdout'], b'kept\n')

    def test_clients_of_both_kinds_follow_one_process(self):
        go = self.dir / 'go'
        os.mkfifo(go)
        with self.guest.start('/bin/sh', '-c', f'read x < {go}; echo $x') as as_json:
            pid = as_json.started().pid
            with self.stream('Connect', field(1, field(1, pid))) as as_proto:
                self.assertEqual(self.pid_of(as_proto), pid)
                go.write_text('hello\n')
                self.assertEqual(as_proto.output()[0][STDOUT], b'hello\n')
            self.assertEqual(as_json.finish()['stdout'], b'hello\n')

    def test_silence_is_filled_with_keepalives(self):
        headers = {'Keepalive-Ping-Interval': '1', 'Connect-Timeout-Ms': '1500'}
        with self.start(command('/bin/sleep', '5'), **headers) as s:
            self.pid_of(s)
            self.assertEqual(read(one(s.next(), 1)), {KEEPALIVE: [b'']})
            list(s)
            self.assertEqual(s.end['error']['code'], 'deadline_exceeded')


class Files(ProtoTest):
    def entry(self, body):
        return read(one(body, 1))

    def test_what_a_file_is(self):
        path = self.dir / 'naïve.txt'
        path.write_bytes(b'x' * 300)
        path.chmod(0o640)
        os.utime(path, ns=(0, 1_700_000_000_123_456_789))
        entry = self.entry(self.call('Stat', field(1, str(path))))
        self.assertEqual(entry[1][0].decode(), 'naïve.txt')
        self.assertEqual(entry[2], [1])  # FILE_TYPE_FILE
        self.assertEqual(entry[3][0].decode(), str(path))
        self.assertEqual(entry[4], [300])
        self.assertEqual(entry[5], [0o640])
        self.assertEqual(entry[6], [b'-rw-r-----'])
        self.assertEqual(entry[7][0].decode(), ME.pw_name)
        self.assertEqual(read(entry[9][0]), {1: [1_700_000_000], 2: [123_456_789]})
        self.assertNotIn(10, entry)

    def test_a_year_that_no_timestamp_can_say_is_left_out(self):
        path = self.dir / 'far'
        path.write_bytes(b'')
        try:
            os.utime(path, (0, 300_000_000_000))
        except OSError:
            self.skipTest('this file system cannot say it either')
        entry = self.entry(self.call('Stat', field(1, str(path))))
        if os.stat(path).st_mtime > 253402300799:
            self.assertNotIn(9, entry)

    def test_making_moving_listing_removing(self):
        made = self.entry(self.call('MakeDir', field(1, str(self.dir / 'a/b'))))
        self.assertEqual(made[2], [2])  # FILE_TYPE_DIRECTORY
        (self.dir / 'a/link').symlink_to('b')
        self.call('Move', field(1, str(self.dir / 'a/b')) + field(2, str(self.dir / 'a/c')))
        listed = [read(e) for e in read(self.call('ListDir', field(1, str(self.dir)) + field(2, 2)))[1]]
        self.assertEqual([e[1][0] for e in listed], [b'a', b'c', b'link'])
        self.assertEqual(listed[2][10][0].decode(), str(self.dir / 'a/link'))
        self.assertEqual(self.call('Remove', field(1, str(self.dir / 'a'))), b'')
        self.assertEqual(self.call('ListDir', field(1, str(self.dir))), b'')

    def test_a_large_directory(self):
        for i in range(3000):
            (self.dir / f'file-{i:05}').touch()
        entries = read(self.call('ListDir', field(1, str(self.dir))))[1]
        self.assertEqual([one(e, 1).decode() for e in entries], [f'file-{i:05}' for i in range(3000)])

    def test_watching(self):
        with self.stream('WatchDir', field(1, str(self.dir)) + field(3, True),
                         service='filesystem.Filesystem') as s:
            self.assertEqual(read(s.next()), {1: [b'']})
            (self.dir / 'new').touch()
            event = read(one(s.next(), 2))
            self.assertEqual((event[1], event[2]), ([b'new'], [1]))  # EVENT_TYPE_CREATE
            self.assertEqual(one(event[3][0], 3).decode(), str(self.dir / 'new'))

    def test_watching_by_asking(self):
        watcher = one(self.call('CreateWatcher', field(1, str(self.dir))), 1)
        (self.dir / 'new').touch()
        time.sleep(0.05)
        events = read(self.call('GetWatcherEvents', field(1, watcher)))[1]
        self.assertEqual(one(events[0], 1), b'new')
        self.assertEqual(self.call('GetWatcherEvents', field(1, watcher)), b'')
        self.call('RemoveWatcher', field(1, watcher))


class Refusals(ProtoTest):
    def test_errors_are_json(self):
        status, body, headers = self.post('Stat', field(1, str(self.dir / 'none')))
        self.assertEqual((status, headers['Content-Type']), (404, 'application/json'))
        self.assertEqual(json.loads(body)['code'], 'not_found')
        with self.start(command('/bin/true', cwd='/no/such/place')) as s:
            self.assertEqual(s.type, STREAM)
            self.assertEqual(list(s), [])
        self.assertEqual(s.end['error']['code'], 'invalid_argument')

    def test_what_is_not_protobuf(self):
        for body in (b'\x0a\xff', b'{}', b'\x0b', field(1, b'\xff\xfe'), b'\x0a\x03a\0b', b'\0\0'):
            status, answer, _ = self.post('Stat', body)
            self.assertEqual((status, json.loads(answer)['code']), (400, 'invalid_argument'), body)
        with self.start(b'\x0a\xff') as s:
            self.assertEqual(list(s), [])
        self.assertEqual(s.end['error']['code'], 'invalid_argument')
        status, body, _ = self.post('StreamInput', frame(b'\xff'), STREAM)
        self.assertIn(b'invalid_argument', body)

    def test_both_codecs_are_offered_and_no_other_is_taken(self):
        for method, good in (('/filesystem.Filesystem/Stat', UNARY), ('/process.Process/Start', STREAM)):
            status, _, headers = self.guest.http('POST', method, b'', Content_Type='application/grpc')
            self.assertEqual(status, 415)
            self.assertIn(good, headers['Accept-Post'].split(', '))
        self.assertEqual(self.post('Stat', b'', STREAM)[0], 415)

    def test_a_key_given_twice_is_refused(self):
        env = field(3, field(1, 'A') + field(2, '1'))
        with self.start(field(1, field(1, '/bin/true') + env + env)) as s:
            self.assertEqual(list(s), [])
        self.assertEqual(s.end['error']['code'], 'invalid_argument')

    def test_a_message_that_grows_too_large_is_refused(self):
        status, body, _ = self.post('Stat', field(1, b'\x01' * (15 << 20)))
        self.assertEqual((status, json.loads(body)['code']), (429, 'resource_exhausted'))
        self.assertEqual(self.post('List', b'')[0], 200)


if __name__ == '__main__':
    unittest.main()
