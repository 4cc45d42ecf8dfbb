"""A PostgreSQL of our own, from Debian's packages: on a Unix socket in a directory of its own, run by
an unprivileged user, gone with the tests."""
import atexit
import functools
import glob
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.parse

AVAILABLE = 'ATOLL_TEST_POSTGRES'  # the URL of a server where tests may make databases
CHOSEN = 'ATOLL_TEST_DATABASE'  # the same: and what is not about one database uses that one
USER = 'tests'
# Tests end processes, never the machine: what the kernel has is safe, and no flush is waited for.
SETTINGS = {'listen_addresses': '', 'fsync': 'off', 'max_connections': '100',
            'shared_buffers': '32MB', 'max_wal_senders': '0', 'wal_level': 'minimal',
            'autovacuum_naptime': '10min', 'log_min_messages': 'warning', 'jit': 'off'}


def programs():
    """Where initdb and postgres are; None: nowhere."""
    found = sorted(glob.glob('/usr/lib/postgresql/*/bin/postgres'),
                   key=lambda path: int(path.split('/')[4]))
    found = [path for path in found if int(path.split('/')[4]) >= 15]
    return pathlib.Path(found[-1]).parent if found else None


def reason_missing():
    """Why there is no PostgreSQL to test with; '' when there is."""
    if os.environ.get(AVAILABLE) or programs():
        return ''
    return 'PostgreSQL 15 is not here: apt-get install postgresql-15'


def owner():
    """Who runs it: initdb refuses root."""
    if os.geteuid() != 0:
        return {}
    for name in ('postgres', 'nobody'):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {'user': entry.pw_uid, 'group': entry.pw_gid, 'extra_groups': []}
    raise RuntimeError('neither postgres nor nobody is a user here')


@functools.lru_cache(1)
def new_cluster():
    """What initdb makes. It takes seconds, so one is made and then copied."""
    top = pathlib.Path(tempfile.mkdtemp(prefix='atoll-initdb-'))
    atexit.register(shutil.rmtree, top, ignore_errors=True)
    as_owner = owner()
    if as_owner:
        os.chown(top, as_owner['user'], as_owner['group'])
    subprocess.run([programs() / 'initdb', '-D', top / 'data', '-U', USER, '--auth=trust', '--no-sync',
                    '--encoding=UTF8', '--locale=C.UTF-8'], check=True, capture_output=True, cwd='/', **as_owner)
    return top / 'data'


ONCE = threading.RLock()  # tests may run at the same time


class Postgres:
    """Use as a context manager, or start() and stop(). `port` is of the socket's name, and of TCP where the
    settings have it listen."""

    def __init__(self, port=5432, **settings):
        self.top = pathlib.Path(tempfile.mkdtemp(prefix='atoll-pg-', dir='/tmp'))  # sockets need short paths
        self.top.chmod(0o755)
        self.sockets, self.data = self.top / 's', self.top / 'data'
        self.port = port
        self.settings = {**SETTINGS, 'port': str(port), **settings}
        self.process = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.remove()

    def make(self):
        as_owner = owner()
        self.sockets.mkdir()
        if as_owner:
            os.chown(self.sockets, as_owner['user'], as_owner['group'])
            os.chown(self.top, as_owner['user'], as_owner['group'])
        with ONCE:
            cluster = new_cluster()
        subprocess.run(['cp', '-a', '--reflink=auto', cluster, self.data], check=True)

    def start(self, timeout=60):
        if not self.data.exists():
            self.make()
        options = [word for name, value in self.settings.items() for word in ('-c', f'{name}={value}')]
        with open(self.top / 'log', 'ab') as log:
            self.process = subprocess.Popen(
                [programs() / 'postgres', '-D', self.data, '-k', self.sockets, *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd='/', **owner())
        deadline = time.monotonic() + timeout
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError('PostgreSQL did not start\n' + (self.top / 'log').read_text()[-2000:])
            time.sleep(0.05)
        return self

    def answers(self):
        run = subprocess.run([programs() / 'pg_isready', '-q', '-h', self.sockets, '-p', str(self.port)], check=False)
        return run.returncode == 0

    def stop(self, how=signal.SIGINT):
        """SIGINT cuts connections and stops; SIGQUIT is a crash."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(30)

    def remove(self):
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.top, ignore_errors=True)

    def url(self, name='postgres'):
        port = f'&port={self.port}' if self.port != 5432 else ''
        return f'postgresql://{USER}@/{name}?host={urllib.parse.quote(str(self.sockets), safe="")}{port}'

    def ask(self, sql, name='postgres'):
        return ask(self.url(name), sql)

    def database(self):
        """The URL of a new, empty database."""
        return new_database(self.url())


@functools.lru_cache(1)
def own_server():
    server = Postgres().start()
    atexit.register(server.remove)
    return server


def shared():
    """The URL of one server for all who do not stop it: that of the whole run, or our own."""
    with ONCE:
        return os.environ.get(AVAILABLE) or own_server().url()


def ask(url, sql):
    """What psql says, unaligned, without titles."""
    run = subprocess.run([programs() / 'psql', '-X', '-w', '-A', '-t', '-q', '-v', 'ON_ERROR_STOP=1', '-c', sql, url],
                         check=False, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(run.stderr)
    return run.stdout.strip()


def own_database():
    """What a server of the tests is told: with ATOLL_TEST_DATABASE, a database there for it alone."""
    url = os.environ.get(CHOSEN)
    return {'ATOLL_DATABASE': new_database(url)} if url else {}


def new_database(url):
    """A new, empty database on the server of this URL."""
    name = 'd' + os.urandom(6).hex()
    ask(url, f'CREATE DATABASE {name}')
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(path='/' + name))
