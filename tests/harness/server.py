"""One real `atoll serve`, with a data directory and a port of its own."""
import http.client
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import time

from harness import kernel, postgres

ROOT = pathlib.Path(__file__).resolve().parents[2]
SANITIZER = re.compile(r'ERROR: \w+Sanitizer|runtime error:')


def template_cache():
    """The base template takes a minute to make: every run shares one."""
    return pathlib.Path(os.environ.get('ATOLL_TEMPLATE_CACHE', ROOT / 'build/template-cache'))


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def read_env(path):
    """The shell assignments of DIR/env as a dictionary."""
    words = shlex.split(pathlib.Path(path).read_text(), comments=True)
    return dict(word.split('=', 1) for word in words if '=' in word)


class Failed(Exception):
    """The server did not do what was asked; the text ends with its log."""


class Server:
    """Use as a context manager, or start() and stop()."""

    def __init__(self, build, scratch, *options, host='127.0.0.1', kept=False):
        self.program = pathlib.Path(build).resolve() / 'atoll'
        self.scratch = pathlib.Path(scratch)
        self.data = self.scratch / 'data'
        self.log = self.scratch / 'server.log'
        self.options = options if kept else ('--no-restart', *options)
        self.host = host
        self.port = free_port()
        self.before = []  # words in front of the command
        self.pass_fds = ()  # what it inherits
        self.environment = {**os.environ, **postgres.own_database()}
        self.process = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def spawn(self, *more):
        command = [*self.before, self.program, 'serve', '--data', self.data, '--listen',
                   f'{self.host}:{self.port}', '--template-cache', template_cache(),
                   *self.options, *more]
        kernel.note_instance(self.data)
        with open(self.log, 'ab') as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, start_new_session=True,
                                            pass_fds=self.pass_fds, env=self.environment)
        return self

    def start(self, timeout=120):
        self.spawn()
        deadline = time.monotonic() + timeout
        while not self.healthy():
            if self.process.poll() is not None:
                raise Failed(f'the server ended with {self.process.returncode}\n{self.tail()}')
            if time.monotonic() > deadline:
                self.kill()
                raise Failed(f'the server was not healthy after {timeout} s\n{self.tail()}')
            time.sleep(0.02)
        return self

    def healthy(self, timeout=5):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request('GET', '/health')
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def stop(self, timeout=60):
        """SIGTERM; its exit status. A server that does not stop is killed, and that is a failure."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed(f'the server did not stop within {timeout} s\n{self.tail()}') from None

    def kill(self):
        """As a crash would: SIGKILL, and nothing tidied up."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def env(self):
        return read_env(self.data / 'env')

    def tail(self, lines=40):
        text = self.log.read_text(errors='replace') if self.log.exists() else ''
        return '\n'.join(text.splitlines()[-lines:])

    def sanitizer_findings(self):
        text = self.log.read_text(errors='replace') if self.log.exists() else ''
        found = SANITIZER.search(text)
        return text[found.start():found.start() + 4000] if found else ''
