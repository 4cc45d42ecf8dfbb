"""One real guest in development mode, and a client of its API that can also misbehave."""
import base64
import contextlib
import http.client
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import unittest

GUEST = pathlib.Path(os.environ['ATOLL_TEST_BIN']).resolve().parent / 'atoll-guest'
ME = pwd.getpwuid(os.geteuid())
STREAM, UNARY = 'application/connect+json', 'application/json'
PROCESS = {'List', 'Connect', 'Update', 'SendInput', 'SendSignal', 'CloseStdin', 'Forget', 'StreamInput'}


def frame(message, flags=0):
    payload = json.dumps(message).encode() if not isinstance(message, bytes) else message
    return struct.pack('>BI', flags, len(payload)) + payload


class Guest:
    """One guest on a Unix socket of its own."""

    def __init__(self, **settings):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix='atoll-guest-'))
        self.home.chmod(0o755)
        self.socket = str(self.home / 'socket')
        command = [GUEST, '--listen', f'unix:{self.socket}']
        if settings:
            (self.home / 'settings.json').write_text(json.dumps(settings))
            command += ['--settings', self.home / 'settings.json']
        self.log = open(self.home / 'log', 'w+b')
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log)
        for _ in range(6000):  # the path is there a moment before it listens
            with contextlib.suppress(OSError):
                self.dial().close()
                break
            if self.process.poll() is not None:
                break
            time.sleep(0.01)

    def stop(self):
        """Its exit status, and what it wrote: the sanitizers speak there."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        self.log.seek(0)
        text = self.log.read().decode(errors='replace')
        self.log.close()
        shutil.rmtree(self.home)
        return status, text

    def dial(self, timeout=60):
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(timeout)
        link.connect(self.socket)
        return link

    def connection(self, timeout=60):
        c = http.client.HTTPConnection('localhost', timeout=timeout)
        c.sock = self.dial(timeout)
        return c

    def http(self, method, target, body=None, **headers):
        c = self.connection()
        with contextlib.closing(c):
            with contextlib.suppress(BrokenPipeError):  # refused in the middle: the answer is there
                c.request(method, target, body,
                          {k.replace('_', '-'): v for k, v in headers.items()})
            answer = c.getresponse()
            return answer.status, answer.read(), answer.headers

    def call(self, method, message=None, **headers):
        service = 'process.Process' if method in PROCESS else 'filesystem.Filesystem'
        status, body, _ = self.http('POST', f'/{service}/{method}', json.dumps(message or {}),
                                    Content_Type=UNARY, **headers)
        return status, json.loads(body)

    def open(self, method, message, service='process.Process', **headers):
        return Stream(self, f'/{service}/{method}', message, headers)

    def start(self, cmd, *args, message=None, headers=None, **process):
        stdin = process.pop('stdin', False)
        return self.open('Start', {'process': {'cmd': cmd, 'args': args, **process}, 'stdin': stdin,
                                   **(message or {})}, **(headers or {}))

    def run(self, cmd, *args, **more):
        with self.start(cmd, *args, **more) as stream:
            return stream.finish()

    def sh(self, script, **more):
        return self.run('/bin/sh', '-c', script, **more)


class Stream:
    """A server stream, event by event."""

    def __init__(self, guest, target, message, headers):
        self.connection = guest.connection()
        self.connection.request('POST', target, frame(message),
                                {'Content-Type': STREAM,
                                 **{k.replace('_', '-'): v for k, v in headers.items()}})
        self.answer = self.connection.getresponse()
        self.status = self.answer.status
        self.type = self.answer.headers['Content-Type']
        self.end = None
        self.pid = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.connection.close()
        self.answer.close()

    def next(self):
        """The next event, or None behind the end frame."""
        head = self.answer.read(5)
        if len(head) < 5:
            raise EOFError('the stream ended without an end frame')
        flags, size = struct.unpack('>BI', head)
        message = json.loads(self.answer.read(size))
        if flags == 2:
            self.end = message
            assert self.answer.read(1) == b''
            return None
        event = message.get('event', message)
        if 'start' in event and 'pid' in event['start']:
            self.pid = event['start']['pid']
        return event

    def started(self):
        assert 'start' in self.next()
        return self

    def until(self, text, stream='stdout'):
        """Reads until the output contains text."""
        seen = b''
        while text not in seen:
            event = self.next()
            assert event, f'ended before {text!r}: {seen!r}'
            seen += base64.b64decode(event.get('data', {}).get(stream, ''))
        return seen

    def finish(self):
        result = {'stdout': b'', 'stderr': b'', 'pty': b'', 'keepalives': 0}
        while (event := self.next()) is not None:
            for name in event.get('data', {}).keys() - {'seq'}:
                result[name] += base64.b64decode(event['data'][name])
            result['keepalives'] += 'keepalive' in event
            if 'end' in event:
                result['end'] = event['end']
        result['pid'] = self.pid
        result['error'] = self.end.get('error')
        return result


class GuestTest(unittest.TestCase):
    SETTINGS = {}

    @classmethod
    def setUpClass(cls):
        cls.guest = Guest(**cls.SETTINGS)

    @classmethod
    def tearDownClass(cls):
        status, text = cls.guest.stop()
        if status or 'Sanitizer' in text or 'runtime error' in text:
            raise AssertionError(f'the guest ended with {status}\n{text}')

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix='atoll-guest-test-'))
        self.dir.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
