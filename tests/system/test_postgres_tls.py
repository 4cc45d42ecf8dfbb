"""PostgreSQL on another machine: over TCP, with TLS and a password; and one that answers what it should not."""
import atexit
import contextlib
import functools
import os
import pathlib
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time
import unittest

from harness import postgres
from harness.certificates import Authority
from harness.server import Server, free_port
from harness.together import arrange
from test_plane import BUILD, Api

ATOLL = BUILD / 'atoll'
PASSWORD = 'rumpelstilz-78'
SERVER_UID = 1879048192  # see docs/database.md


class Remote:
    """A PostgreSQL that lets nobody in over TCP without TLS and a password."""

    def __init__(self, top):
        self.top = top
        for name in ('own', 'foreign'):
            (top / name).mkdir()
        self.authority, self.foreign = Authority(top / 'own'), Authority(top / 'foreign')
        for path in (self.authority.path, self.foreign.path):
            path.chmod(0o644)
        self.certificate, self.key = top / 'server.pem', top / 'server-key.pem'
        self.authority.issue(self.certificate, self.key, 'localhost')  # and not 127.0.0.1
        if owner := postgres.owner():
            for path in (self.certificate, self.key):
                os.chown(path, owner['user'], owner['group'])
        self.port = free_port()
        self.database = postgres.Postgres(port=self.port, listen_addresses='127.0.0.1', ssl='on',
                                          ssl_cert_file=str(self.certificate), ssl_key_file=str(self.key))

    def start(self):
        self.database.make()
        (self.database.data / 'pg_hba.conf').write_text(
            'local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n')
        self.database.start()
        self.database.ask(f"CREATE ROLE p LOGIN PASSWORD '{PASSWORD}'")
        return self

    def new_database(self):
        name = 'd' + os.urandom(6).hex()
        self.database.ask(f'CREATE DATABASE {name} OWNER p')
        return name

    def url(self, name, sslmode='verify-full', host='localhost', authority=None, more='', user='p'):
        root = (authority or self.authority).path
        return f'postgresql://{user}@{host}:{self.port}/{name}?sslmode={sslmode}&sslrootcert={root}{more}'


@functools.lru_cache(1)
def one_remote():
    """For all tests, which run at the same time."""
    top = pathlib.Path(tempfile.mkdtemp(prefix='atoll-tcp-'))
    top.chmod(0o755)
    remote = Remote(top)
    atexit.register(shutil.rmtree, top, ignore_errors=True)
    atexit.register(remote.database.remove)
    return remote.start()


@unittest.skipIf(postgres.programs() is None, 'PostgreSQL 15 is not here: apt-get install postgresql-15')
class Encrypted(unittest.TestCase):
    def setUp(self):
        with postgres.ONCE:
            self.remote = one_remote()
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix='one-', dir=self.remote.top))
        self.scratch.chmod(0o755)
        self.name = self.remote.new_database()
        self.secret = self.scratch / 'password'
        self.secret.write_text(PASSWORD + '\n')
        self.secret.chmod(0o600)

    def db(self, *words, url, fails=False, password=True, timeout=60, **environment):
        """`atoll db`; the URL may have a password in it, since it is no word of the command line."""
        words = [*words, '--data', self.scratch / 'none']
        if password:
            words += ['--database-password-file', self.secret]
        run = subprocess.run([ATOLL, 'db', *words], capture_output=True, text=True, check=False, timeout=timeout,
                             env={**os.environ, 'ATOLL_DATABASE': url, **environment})
        self.assertEqual(run.returncode != 0, fails, run.stdout + run.stderr)
        self.assertNotIn('rumpelstilz', run.stdout + run.stderr)
        return run.stderr if fails else run.stdout

    def server(self, url, *options, **environment):
        server = Server(BUILD, self.scratch, '--pool', '0', '--log-level', 'debug', *options)
        server.environment = {**os.environ, 'ATOLL_DATABASE': url, **environment}
        self.addCleanup(server.stop)
        return server

    def is_seen_nowhere(self, server):
        for home in pathlib.Path('/proc').glob('[0-9]*'):
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                self.assertNotIn(b'rumpelstilz', (home / 'cmdline').read_bytes(), home)
                if os.getsid(int(home.name)) == server.process.pid:  # other tests have it in theirs
                    self.assertNotIn(b'rumpelstilz', (home / 'environ').read_bytes(), home)
        shown = subprocess.run([ATOLL, 'config', 'show'], capture_output=True, check=True,
                               env={**server.environment, **server.env()}).stdout
        self.assertNotIn(b'rumpelstilz', shown)
        self.assertNotIn('rumpelstilz', postgres.ask(self.remote.database.url(self.name), 'SELECT * FROM events'))
        kept = [path for path in (server.data / 'state').rglob('*') if path.is_file() and path.name != '.pgpass']
        for path in (server.log, server.data / 'env', *kept):
            self.assertNotIn(b'rumpelstilz', path.read_bytes(), path)

    def test_a_server_lives_on_it_and_the_password_is_seen_nowhere(self):
        server = self.server(self.remote.url(self.name), '--database-password-file', self.secret)
        server.start()
        api = Api(server.env(), **{'X-API-Key': server.env()['E2B_API_KEY']})
        made = [api.ok('POST', '/api-keys', {'name': 'before'})['id']]
        sessions = self.remote.database.ask("SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
                                            f"WHERE datname = '{self.name}' AND application_name LIKE 'atoll%'")
        self.assertEqual(sessions, 't')
        self.remote.database.ask('SELECT pg_terminate_backend(pid) FROM pg_stat_activity '
                                 f"WHERE datname = '{self.name}'")
        made.append(api.ok('POST', '/api-keys', {'name': 'after'})['id'])
        self.assertLessEqual(set(made), {key['id'] for key in api.ok('GET', '/api-keys')})
        self.is_seen_nowhere(server)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(server.sanitizer_findings(), '')

    def test_the_password_may_be_in_the_url(self):
        url = self.remote.url(self.name, user='p:' + PASSWORD)
        with self.server(url) as server:
            self.is_seen_nowhere(server)
        self.db('check', url=url, password=False)

    def test_the_password_may_be_in_a_file_of_libpqs(self):
        """Which the server reads as its own user, and only if nobody else can."""
        passfile = self.scratch / 'pgpass'
        passfile.write_text(f'localhost:{self.remote.port}:*:p:{PASSWORD}\n')
        passfile.chmod(0o600)
        url = self.remote.url(self.name)
        self.db('check', url=url, password=False, PGPASSFILE=str(passfile))
        os.chown(passfile, SERVER_UID, SERVER_UID)
        with self.server(url, PGPASSFILE=str(passfile)) as server:
            self.is_seen_nowhere(server)

    def test_who_it_is_not_is_refused_with_the_reason(self):
        other = self.scratch / 'other'
        other.write_text('wrong-rumpelstilz\n')
        for says, url in (
                ('certificate verify failed', self.remote.url(self.name, authority=self.remote.foreign)),
                ('does not match host name', self.remote.url(self.name, host='127.0.0.1')),
                ('does not exist', self.remote.url(self.name).replace('ca.pem', 'none.pem')),
                ('no pg_hba.conf entry', self.remote.url(self.name, sslmode='disable')),
                ('does not exist', self.remote.url('nowhere'))):
            began = time.monotonic()
            self.assertIn(says, self.db('check', url=url, fails=True))
            self.assertLess(time.monotonic() - began, 25)  # it does not wait for what will not mend itself
        self.assertIn('password authentication failed', self.db(
            'check', '--database-password-file', other, url=self.remote.url(self.name), password=False, fails=True))
        self.assertIn('no password', self.db('check', url=self.remote.url(self.name), password=False, fails=True))

    def test_a_server_that_is_refused_says_so_and_ends(self):
        server = self.server(self.remote.url(self.name, authority=self.remote.foreign),
                             '--database-password-file', self.secret)
        server.spawn()
        self.assertNotEqual(server.process.wait(60), 0)
        self.assertIn('certificate verify failed', server.tail())
        self.assertNotIn('rumpelstilz', server.tail())

    def test_a_host_that_is_dead_does_not_keep_from_the_next(self):
        with socket.socket() as dead:
            dead.bind(('127.0.0.1', 0))
            dead.listen()  # takes connections, and says nothing
            url = self.remote.url(self.name).replace('localhost:', f'localhost:{dead.getsockname()[1]},localhost:')
            self.assertIn('sound', self.db('check', url=url))

    def test_records_larger_than_libpqs_room_are_read_to_their_end(self):
        """Newer servers send up to 16 KiB in one; of the rest that TLS holds back for an older libpq, no poll tells."""
        place = self.remote.url(self.name)
        self.db('migrate', url=place)
        postgres.ask(self.remote.database.url(self.name),
                     "INSERT INTO teams (id, name, created_us) SELECT 't' || i, repeat('x', 7900), 1 "
                     'FROM generate_series(1, 60) i')
        proxy = Records(self.remote)
        self.addCleanup(proxy.listener.close)
        self.assertIn('60 rows written', self.db('export', self.scratch / 'rows', timeout=90, url=place.replace(
            f':{self.remote.port}/', f':{proxy.port}/')))


class Records:
    """Ends TLS, and sends what came together in records as large as they may be, the last of them too."""

    SIZE = 16384

    def __init__(self, remote):
        self.target = str(remote.database.sockets / f'.s.PGSQL.{remote.port}')
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(remote.certificate, remote.key)
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with contextlib.suppress(OSError), client:
            client.recv(8)  # it asks for TLS
            client.sendall(b'S')
            with self.context.wrap_socket(client, server_side=True) as tls, socket.socket(socket.AF_UNIX) as server:
                server.connect(self.target)
                server.setblocking(False)
                tls.setblocking(False)
                while self.pass_on(tls, server):
                    time.sleep(0.02)  # for more to come

    def pass_on(self, tls, server):
        for source, target in ((tls, server), (server, tls)):
            data = b''
            with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
                while True:
                    more = source.recv(1 << 20)
                    if not more:
                        return False
                    data += more
            target.setblocking(True)
            first = len(data) % self.SIZE if target is tls else 0
            for part in (data[:first], data[first:]):
                if part:
                    target.sendall(part)
            target.setblocking(False)
        return True


def message(kind, body=b''):
    return kind + struct.pack('!I', len(body) + 4) + body


READY = message(b'Z', b'I')
HELLO = b''.join([message(b'R', struct.pack('!I', 0)),
                  *(message(b'S', name + b'\0' + value + b'\0') for name, value in (
                      (b'server_version', b'15.1'), (b'server_encoding', b'UTF8'), (b'client_encoding', b'UTF8'),
                      (b'in_hot_standby', b'off'), (b'default_transaction_read_only', b'off'))), READY])
DONE = message(b'C', b'SET\0') + READY


class Liar:
    """Speaks PostgreSQL until it is asked something for the nth time; then it says `what`, and hangs up or not."""

    def __init__(self, what, after=0, hangs_up=True, hello=HELLO):
        self.what, self.after, self.hangs_up, self.hello = what, after, hangs_up, hello
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.url = f'postgresql://u@127.0.0.1:{self.listener.getsockname()[1]}/d?sslmode=disable'
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with contextlib.suppress(OSError), client:
            client.recv(65536)
            client.sendall(self.hello)
            for _ in range(self.after):
                client.recv(65536)
                client.sendall(DONE)
            client.recv(65536)
            client.sendall(self.what)
            while not self.hangs_up and client.recv(65536):
                pass


class Lies(unittest.TestCase):
    """Whatever it answers, whoever asked is told something, in time."""

    def test_every_lie_ends(self):
        column = b'\0\1x\0' + struct.pack('!IHIhih', 0, 0, 25, -1, -1, 0)
        row = message(b'T', column) + message(b'D', b'\0\1' + struct.pack('!i', -1))
        lies = {
            'hangs up': Liar(b''),
            'hangs up in a number': Liar(message(b'D', b'')[:3]),
            'hangs up after the first': Liar(b'', after=1),
            'garbage': Liar(b'\xff' * 4096, hangs_up=False),
            'a length below zero': Liar(b'D\xff\xff\xff\xff', hangs_up=False),
            'a copy in': Liar(message(b'G', b'\0\0\0'), hangs_up=False),
            'a copy out': Liar(message(b'H', b'\0\0\0'), after=1, hangs_up=False),
            'rows that nobody asked for': Liar(row + DONE, hangs_up=False),
            'FATAL': Liar(message(b'E', b'SFATAL\0C25P03\0Midle\0\0'), after=1),
            'no hello': Liar(b'', hello=b''),
            'garbage as hello': Liar(b'', hello=b'\xff' * 64),
            'another program': Liar(b'', hello=b'HTTP/1.1 400 Bad Request\r\n\r\n'),
        }
        runs = {name: subprocess.Popen([ATOLL, 'db', 'check', '--data', '/nowhere'], text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       env={**os.environ, 'ATOLL_DATABASE': liar.url})
                for name, liar in lies.items()}
        for name, run in runs.items():
            with self.subTest(name):
                try:
                    text = ''.join(run.communicate(timeout=200))
                except subprocess.TimeoutExpired:
                    run.kill()
                    self.fail('it hangs\n' + ''.join(run.communicate()))
                self.assertGreater(run.returncode, 0, text)
                self.assertRegex(text, 'database')
                self.assertNotIn('Sanitizer', text)
            lies[name].listener.close()


def load_tests(_loader, standard, _pattern):
    return arrange(standard, lambda test: True, 4)


if __name__ == '__main__':
    unittest.main()
