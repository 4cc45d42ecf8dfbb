"""A server whose rows are in PostgreSQL: that it works, that a database which goes away loses nothing that was
answered, and that `atoll db` moves the rows from one database to the other and back."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.parse

from harness import postgres
from harness.sandbox import Sandbox
from harness.server import Server, free_port, template_cache
from harness.together import arrange
from test_plane import BUILD, Api

ATOLL = BUILD / 'atoll'
ROOT = pathlib.Path(__file__).resolve().parents[2]


@unittest.skipIf(postgres.programs() is None, 'PostgreSQL 15 is not here: apt-get install postgresql-15')
class OnPostgres(unittest.TestCase):
    """A new database, and servers on it."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-onpg-')
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.scratch.chmod(0o755)
        self.url = self.new_database()

    def new_database(self):
        return postgres.new_database(postgres.shared())

    def server(self, *options, url=None, where='one', kept=False):
        home = self.scratch / where
        home.mkdir(exist_ok=True)
        server = Server(BUILD, home, '--pool', '1', '--stop-sandboxes', *options, kept=kept)
        server.environment = {**os.environ, 'ATOLL_DATABASE': url or self.url}
        self.addCleanup(server.stop)
        return server

    def api(self, server):
        env = server.env()
        return Api(env, **{'X-API-Key': env['E2B_API_KEY']})

    def ask(self, sql):
        return postgres.ask(self.url, sql)

    def events_are_in_order(self):
        """Numbers without a hole and without a repeat."""
        self.assertEqual(self.ask('SELECT COUNT(*) - MAX(seq) FROM events'), '0')


class OnOwnPostgres(OnPostgres):
    """The same on a PostgreSQL that the test may stop."""

    SETTINGS = {}

    def new_database(self):
        self.postgres = postgres.Postgres(**self.SETTINGS)
        self.addCleanup(self.postgres.remove)
        self.postgres.start()
        return self.postgres.database()


class Life(OnPostgres):
    def test_sandboxes_live_pause_and_are_found_again(self):
        server = self.server()
        server.start()
        api = self.api(server)
        box = Sandbox(env=server.env())
        self.assertEqual(box.run('echo one > f; cat f').text(), 'one\n')
        self.assertEqual(api.status('POST', f'/sandboxes/{box.id}/pause', {}), 204)
        self.assertEqual(self.ask(f"SELECT state FROM sandboxes WHERE id = '{box.id}'"), 'paused')
        self.assertEqual(api.status('POST', f'/v2/sandboxes/{box.id}/connect', {}), 201)
        snapshot = api.ok('POST', f'/sandboxes/{box.id}/snapshots', {})['snapshotID']
        copy = Sandbox(snapshot, env=server.env())
        self.assertEqual(copy.run('cat f').text(), 'one\n')
        server.kill()
        server.start()
        self.assertEqual(box.run('cat f').text(), 'one\n')
        self.assertEqual(copy.run('cat f').text(), 'one\n')
        box.kill()
        copy.kill()
        self.assertEqual(self.ask("SELECT COUNT(*) FROM sandboxes WHERE state <> 'ended'"), '0')
        self.assertEqual(api.status('DELETE', '/templates/' + snapshot.replace(':', '%3A')), 204)
        self.events_are_in_order()
        self.assertFalse((server.data / 'state/atoll.db').exists())
        self.assertEqual(server.stop(), 0)
        self.assertEqual(server.sanitizer_findings(), '')

    def test_two_servers_do_not_share_a_database(self):
        first, second = self.server(), self.server(where='two')
        first.spawn()  # both at once: one of them makes the tables
        second.spawn()
        deadline = time.monotonic() + 60
        while first.process.poll() is None and second.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        lost, other = (first, second) if first.process.poll() is not None else (second, first)
        self.assertNotEqual(lost.process.poll(), 0)
        self.assertIn('uses this database', lost.tail())
        while not other.healthy():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)
        self.assertEqual(self.api(other).status('GET', '/api-keys'), 200)
        self.assertEqual(self.ask('SELECT COUNT(*) - MAX(version) FROM migrations'), '0')

    def test_few_connections_are_enough(self):
        few = 'few' + os.urandom(4).hex()
        self.ask(f'CREATE ROLE {few} LOGIN CONNECTION LIMIT 2; GRANT ALL ON SCHEMA public TO {few}')
        server = self.server(url=self.url.replace(postgres.USER + '@', few + '@'))
        server.start()
        with Sandbox(env=server.env()) as box:
            answers = []

            def read():
                answers.append(self.api(server).status('GET', f'/v2/sandboxes/{box.id}/logs'))
            readers = [threading.Thread(target=read) for _ in range(16)]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join()
            self.assertEqual(answers, [200] * 16)


class Password(unittest.TestCase):
    """Where it may come from, and where it must not go."""

    @unittest.skipIf(postgres.programs() is None, 'PostgreSQL 15 is not here: apt-get install postgresql-15')
    def test_password_works_from_file_and_environment_and_is_seen_nowhere(self):
        with tempfile.TemporaryDirectory(prefix='atoll-password-') as name, postgres.Postgres() as database:
            top = pathlib.Path(name)
            top.chmod(0o755)
            postgres.ask(database.url(), "CREATE ROLE p LOGIN PASSWORD 'open-sesame-77'")
            postgres.ask(database.url(), 'CREATE DATABASE p OWNER p')
            (database.data / 'pg_hba.conf').write_text(
                'local all p scram-sha-256\nlocal all all trust\n')
            postgres.ask(database.url(), 'SELECT pg_reload_conf()')
            url = database.url('p').replace(postgres.USER + '@', 'p@')
            wait_for(lambda: not can_ask(url), 60)
            secret = top / 'password'
            secret.write_text('open-sesame-77\n')
            secret.chmod(0o600)
            for where, options, variable in (
                    ('file', ('--database', url, '--database-password-file', secret), None),
                    ('variable', (), url.replace('p@', 'p:open-sesame-77@'))):
                home = top / where
                home.mkdir()
                server = Server(BUILD, home, '--pool', '0', '--log-level', 'debug', *options)
                server.environment = {**os.environ, **({'ATOLL_DATABASE': variable} if variable else {})}
                with server:
                    lines = subprocess.run(['ps', '-eww', '-o', 'args'], capture_output=True, text=True,
                                           check=True).stdout
                    self.assertIn(str(home), lines)
                    self.assertNotIn('sesame', lines)
                    for path in pathlib.Path('/proc').glob('[0-9]*/environ'):
                        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                            self.assertNotIn(b'sesame', path.read_bytes(), path)
                kept = [path for path in (server.data / 'state').rglob('*') if path.is_file()]
                for path in [server.log, server.data / 'env', *kept]:
                    self.assertNotIn(b'sesame', path.read_bytes(), path)
            for url, says in ((url.replace('p@', 'p:open-sesame-77@'), 'every user of the host'),
                              (url, 'no password')):
                run = subprocess.run([ATOLL, 'serve', '--data', top / 'none', '--listen', f'127.0.0.1:{free_port()}',
                                      '--template-cache', template_cache(), '--no-restart', '--database', url],
                                     capture_output=True, text=True, check=False, timeout=60)
                self.assertNotEqual(run.returncode, 0)
                self.assertIn(says, run.stderr)
                self.assertNotIn('sesame', run.stderr)


def can_ask(url):
    try:
        return postgres.ask(url, 'SELECT 1') == '1'
    except RuntimeError:
        return False


def wait_for(condition, seconds, why=lambda: ''):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f'not within {seconds} s: {why()}')
        time.sleep(0.05)


class Load:
    """Clients that write and look for as long as the block lasts; what they were answered."""

    def __init__(self, test, server, clients=6):
        self.test, self.server = test, server
        self.answers, self.made, self.slowest_health = [], [], 0
        self.problems = []  # of a thread, which cannot fail a test itself
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self.write, args=(i,)) for i in range(clients)]
        self.threads.append(threading.Thread(target=self.look))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def write(self, number):
        api, n = self.test.api(self.server), 0
        try:
            while not self.stop.is_set():
                n += 1
                began = time.monotonic()
                status, headers, answer = api('POST', '/api-keys', {'name': f'k{number}-{n}'})
                self.answers.append((status, time.monotonic() - began, headers.get('Retry-After'), answer))
                if status == 201:
                    self.made.append(answer['id'])
        except (OSError, ValueError, http.client.HTTPException) as problem:
            self.problems.append(f'client {number}: {problem!r}')

    def look(self):
        while not self.stop.is_set():
            began = time.monotonic()
            if not self.server.healthy(timeout=25):
                self.problems.append(f'not healthy after {time.monotonic() - began:.1f} s')
            self.slowest_health = max(self.slowest_health, time.monotonic() - began)
            time.sleep(0.1)

    def wait_for_more(self, n, seconds):
        """That many keys more than now."""
        before = len(self.made)
        wait_for(lambda: len(self.made) - before >= n, seconds, lambda: str(self.answers[-3:]))


class Away(OnOwnPostgres):
    """The database goes; the server stays."""

    SETTINGS = {'wal_level': 'replica'}  # what a standby wants

    def nothing_is_lost(self, load):
        self.assertEqual(load.problems, [])
        statuses = {status for status, *_ in load.answers}
        self.assertLessEqual(statuses, {201, 503}, [a for a in load.answers if a[0] not in (201, 503)][:3])
        for status, took, retry, answer in load.answers:
            self.assertLess(took, 40)
            if status == 503:
                self.assertEqual(retry, '1')
                self.assertIn('database', answer['message'])
        kept = set(self.ask('SELECT id FROM api_keys').split())
        told = set(self.ask("SELECT subject FROM events WHERE kind = 'key.created'").split())
        self.assertEqual(set(load.made) - kept, set())
        self.assertEqual(set(load.made) - told, set())
        self.assertEqual(kept - told, set())
        self.assertEqual(len(load.made), len(set(load.made)))
        # What was not answered with success was not done: one answer, one key.
        refused = sum(status == 503 for status, *_ in load.answers)
        self.assertLessEqual(len(kept) - len(load.made) - 1, 0, f'{refused} were refused')
        self.assertLess(load.slowest_health, 9)  # a call of the database waits for ten
        self.events_are_in_order()

    def test_stopped_for_twenty_seconds_under_load(self):
        server = self.server()
        server.start()
        box = Sandbox(env=server.env())
        with Load(self, server) as load:
            load.wait_for_more(20, 90)
            self.postgres.stop()
            time.sleep(5)
            self.assertEqual(box.run('echo still').text(), 'still\n')
            time.sleep(15)
            self.postgres.start()
            load.wait_for_more(20, 90)
        self.assertIn(503, {status for status, *_ in load.answers})
        self.nothing_is_lost(load)
        box.kill()
        log = server.log.read_text()
        self.assertEqual((log.count('database.away'), log.count('database.back')), (1, 1))
        self.assertEqual(server.stop(), 0)
        self.assertEqual(server.sanitizer_findings(), '')

    def test_crashes_again_and_again_under_load(self):
        server = self.server()
        server.start()
        with Load(self, server) as load:
            for _ in range(5):
                load.wait_for_more(5, 90)
                self.postgres.stop(signal.SIGQUIT)
                self.postgres.start()
            load.wait_for_more(20, 90)
        self.nothing_is_lost(load)

    def test_what_ends_meanwhile_is_written_down_afterwards(self):
        server = self.server()
        server.start()
        box = Sandbox(env=server.env(), timeout=12)
        self.assertEqual(self.ask(f"SELECT state FROM sandboxes WHERE id = '{box.id}'"), 'running')
        self.postgres.stop()  # its time will be up, and there is nowhere to write it
        api = self.api(server)
        wait_for(lambda: api.status('GET', f'/sandboxes/{box.id}') == 404, 90)
        self.postgres.start()
        wait_for(lambda: self.ask(f"SELECT ended_by FROM sandboxes WHERE id = '{box.id}'") == 'timeout', 60)
        self.events_are_in_order()

    def test_killed_while_it_is_away(self):
        server = self.server(kept=True)
        server.start()
        box = Sandbox(env=server.env())
        self.postgres.stop()
        child = subprocess.run(['pgrep', '-P', str(server.process.pid)], capture_output=True, text=True,
                               check=True).stdout.split()[0]
        os.kill(int(child), signal.SIGKILL)
        time.sleep(2)  # the next one tries already
        self.postgres.start()
        wait_for(server.healthy, 120, server.tail)
        self.assertEqual(box.run('echo here').text(), 'here\n')
        box.kill()

    def test_frozen_and_thawed(self):
        """It neither answers nor hangs up; when it wakes, the sessions from before are still there."""
        server = self.server()
        server.start()
        with Load(self, server) as load:
            load.wait_for_more(20, 90)
            for signo, pause in ((signal.SIGSTOP, 18), (signal.SIGCONT, 0)):  # calls wait for ten
                os.kill(self.postgres.process.pid, signo)  # which begins no session from now on
                found = subprocess.run(['pgrep', '-P', str(self.postgres.process.pid)], capture_output=True,
                                       text=True, check=True).stdout.split()
                for pid in map(int, found):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signo)
                time.sleep(pause)
            load.wait_for_more(20, 90)
        self.assertIn(503, {status for status, *_ in load.answers})
        self.nothing_is_lost(load)

    def test_a_standby_is_waited_for_until_it_is_promoted(self):
        for says, more in (('hot standby', ''), ('read-only', '&target_session_attrs=any')):
            self.url = self.postgres.database()
            server = self.server(url=self.url + more, where='standby' + more)
            server.start()
            with Load(self, server, clients=2) as load:
                load.wait_for_more(5, 90)
                self.postgres.stop()
                (self.postgres.data / 'standby.signal').touch()
                self.postgres.start()
                self.assertEqual(self.ask('SELECT pg_is_in_recovery()'), 't')
                wait_for(lambda: says in server.log.read_text(), 60)  # it has seen the standby
                self.assertEqual(self.ask('SELECT pg_promote()'), 't')
                load.wait_for_more(10, 90)
            self.nothing_is_lost(load)
            self.assertEqual(server.stop(), 0)

    def test_stops_while_it_is_away(self):
        server = self.server()
        server.start()
        self.postgres.stop()
        self.assertEqual(server.stop(), 0)


class Proxy:
    """Between the server and PostgreSQL: loses what it is told to lose."""

    def __init__(self, sockets, place):
        self.target = str(pathlib.Path(sockets) / '.s.PGSQL.5432')
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(place / '.s.PGSQL.5432'))
        os.chmod(place / '.s.PGSQL.5432', 0o777)
        self.listener.listen()
        self.lose = None  # 'question' or 'answer' of the next COMMIT
        self.lost = 0
        self.cut = None  # ['up' or 'down', after how many bytes]
        self.cuts = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.target)
            threading.Thread(target=self.up, args=(client, server), daemon=True).start()
            threading.Thread(target=self.down, args=(client, server), daemon=True).start()

    def up(self, client, server):
        while data := self.take(client):
            data, is_cut = self.clip('up', data)
            if is_cut:
                server.sendall(data)
                break
            if self.lose and b'store_session' in data and b'COMMIT' in data:
                how, self.lose = self.lose, None
                self.lost += 1
                client.shutdown(socket.SHUT_RDWR)
                if how == 'answer':
                    server.sendall(data)
                    time.sleep(0.3)
                break
            server.sendall(data)
        self.end(client, server)
        client.close()

    def down(self, client, server):
        is_cut = False
        while not is_cut and (data := self.take(server)):
            data, is_cut = self.clip('down', data)
            try:
                client.sendall(data)
            except OSError:
                break
        self.end(client, server)
        server.close()

    def clip(self, way, data):
        """What may pass of it, and whether that was the last."""
        if not self.cut or self.cut[0] != way:
            return data, False
        left = self.cut[1] - len(data)
        if left > 0:
            self.cut = [way, left]
            return data, False
        self.cut = None
        self.cuts += 1
        return data[:len(data) + left], True

    @staticmethod
    def take(link):
        try:
            return link.recv(65536)
        except OSError:
            return b''

    @staticmethod
    def end(*links):
        for link in links:
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Commit(OnPostgres):
    def behind_proxy(self):
        place = self.scratch / 'p'
        place.mkdir()
        proxy = Proxy(urllib.parse.unquote(self.url.split('host=')[1]), place)
        self.addCleanup(proxy.listener.close)
        server = self.server(url=self.url.split('host=')[0] + 'host=' + str(place).replace('/', '%2F'))
        server.start()
        return proxy, self.api(server)

    def test_a_connection_that_is_cut_at_any_byte_loses_nothing(self):
        proxy, api = self.behind_proxy()
        sizes = [*range(1, 40, 3), *range(40, 1000, 59)]
        for way in ('up', 'down'):
            for size in sizes:
                proxy.cut = [way, size]
                name = f'{way}-{size}'
                made = api.ok('POST', '/api-keys', {'name': name})
                self.assertEqual(self.ask(f"SELECT id FROM api_keys WHERE name = '{name}'"), made['id'])
                self.assertEqual(self.ask(f"SELECT COUNT(*) FROM events WHERE subject = '{made['id']}'"), '1')
        self.assertGreater(proxy.cuts, len(sizes))
        self.events_are_in_order()

    def test_a_commit_whose_answer_is_lost_is_done_once(self):
        proxy, api = self.behind_proxy()
        for number, how in enumerate(('answer', 'question') * 3):
            proxy.lose = how
            made = api.ok('POST', '/api-keys', {'name': f'{how}-{number}'})
            self.assertIsNone(proxy.lose)
            self.assertEqual(self.ask(f"SELECT id FROM api_keys WHERE name = '{how}-{number}'"), made['id'])
            self.assertEqual(self.ask(f"SELECT COUNT(*) FROM events WHERE subject = '{made['id']}'"), '1')
        self.assertEqual(proxy.lost, 6)
        self.events_are_in_order()


class Move(OnPostgres):
    def db(self, *words, url=None, fails=False, **more):
        environment = {**os.environ, **({'ATOLL_DATABASE': url} if url else {})}
        environment.pop(postgres.CHOSEN, None)
        run = subprocess.run([ATOLL, 'db', *words, '--data', self.scratch / 'one/data'], env=environment,
                             capture_output=True, text=True, check=False, timeout=60, **more)
        self.assertEqual(run.returncode != 0, fails, run.stdout + run.stderr)
        return run.stderr if fails else run.stdout

    def sqlite_server(self):
        server = self.server()
        server.environment = {name: value for name, value in os.environ.items() if name != 'ATOLL_DATABASE'}
        return server

    def test_rows_move_to_postgresql_and_back(self):
        server = self.sqlite_server()
        server.start()
        api = self.api(server)
        api.ok('POST', '/secrets', {'name': 'token', 'value': 'swordfish-1', 'metadata': {'ä': '"\\'}})
        key = api.ok('POST', '/api-keys', {'name': 'moves'})
        with Sandbox(env=server.env(), metadata={'snow': '☃'}):
            self.assertIn('a server runs on it', self.db('export', self.scratch / 'no', fails=True))
        server.stop()
        first, second, third = (self.scratch / name for name in ('1.jsonl', '2.jsonl', '3.jsonl'))
        self.assertIn('rows written', self.db('export', first))
        self.assertEqual(stat.S_IMODE(first.stat().st_mode), 0o600)
        self.assertNotIn('swordfish', first.read_text())
        self.assertIn('File exists', self.db('export', first, fails=True))
        self.db('import', first, url=self.url)
        self.assertIn('has rows in it', self.db('import', first, url=self.url, fails=True))
        self.db('import', '--force', first, url=self.url)
        self.db('export', second, url=self.url)
        self.assertEqual(first.read_bytes(), second.read_bytes())
        report = json.loads(self.db('check', '--json', url=self.url))
        self.assertEqual((report['problems'], report['version']), ([], report['newest']))
        self.assertEqual(report['rows'], len(first.read_text().splitlines()) - 2)
        server = self.server()  # on PostgreSQL, with the same data directory
        server.start()
        mine = Api(server.env(), **{'X-API-Key': key['key']})
        self.assertEqual(mine.status('GET', '/secrets/token'), 200)
        self.db('check', url=self.url)  # may look while a server runs
        self.assertIn('uses this database', self.db('migrate', url=self.url, fails=True))
        server.stop()
        self.db('export', third, url=self.url)
        self.db('import', '--force', third)
        again = self.scratch / '4.jsonl'
        self.db('export', again)
        self.assertEqual(third.read_bytes(), again.read_bytes())
        server = self.sqlite_server()
        server.start()
        self.assertEqual(Api(server.env(), **{'X-API-Key': key['key']}).status('GET', '/secrets/token'), 200)

    def test_a_copy_is_the_same(self):
        server = self.sqlite_server()
        server.start()
        server.stop()
        self.assertIn('rows copied', self.db('copy', '--to', self.url))
        self.assertIn('has rows in it', self.db('copy', '--to', self.url, fails=True))
        for name, url in (('a', None), ('b', self.url)):
            self.db('export', self.scratch / name, url=url)
        self.assertEqual((self.scratch / 'a').read_bytes(), (self.scratch / 'b').read_bytes())
        file, elsewhere = server.data / 'state/atoll.db', self.scratch / 'elsewhere'
        file.unlink()
        file.symlink_to(elsewhere)  # which the server's own user could do, and this is root
        for words in (('check',), ('migrate',)):
            self.assertIn('not a plain file', self.db(*words, fails=True))
        self.assertFalse(elsewhere.exists())

    def test_a_damaged_file_changes_nothing(self):
        server = self.sqlite_server()
        server.start()
        server.stop()
        whole = self.scratch / 'whole'
        self.db('export', whole)
        lines = whole.read_text().splitlines(keepends=True)
        for text in ('', 'hello\n', ''.join(lines[:-1]), ''.join(lines[:-2] + lines[-1:]),
                     ''.join(lines)[:-20], ''.join(lines) + '{}\n',
                     ''.join([lines[0], lines[1].replace('"table":"', '"table":"x'), *lines[2:]])):
            (self.scratch / 'bad').write_text(text)
            self.db('import', '--force', self.scratch / 'bad', fails=True)
            self.db('import', self.scratch / 'bad', url=self.url, fails=True)
        self.db('export', self.scratch / 'after')
        self.assertEqual(whole.read_bytes(), (self.scratch / 'after').read_bytes())


class Docs(OnOwnPostgres):
    """What docs/database.md tells people to type."""

    TEXT = (ROOT / 'docs/database.md').read_text()

    def blocks(self, language):
        return re.findall(rf'^```{language}\n(.*?)^```', self.TEXT, re.MULTILINE | re.DOTALL)

    def test_the_commands_work(self):
        for statement in self.blocks('sql')[0].splitlines():
            postgres.ask(self.postgres.url(), statement)
        (self.postgres.data / 'pg_hba.conf').write_text('local atoll atoll scram-sha-256\nlocal all all trust\n')
        self.postgres.ask('SELECT pg_reload_conf()')
        password = self.scratch / 'password'
        password.write_text(re.search(r"PASSWORD '(.*?)'", self.TEXT)[1] + '\n')
        sockets = str(self.postgres.sockets).replace('/', '%2F')
        server = Move.sqlite_server(self)
        server.start()
        server.stop()
        ran = 0
        for line in '\n'.join(self.blocks('sh')).splitlines():
            if not line.startswith('atoll db'):
                continue
            line = line.replace('postgresql://atoll@db.internal/atoll', f'postgresql://atoll@{sockets}/atoll')
            line = line.replace('/srv/atoll', str(server.data)).replace('/var/backups', str(self.scratch))
            line = line.replace('/etc/atoll/database-password', str(password)).replace('atoll', str(ATOLL), 1)
            run = subprocess.run(line.split(), capture_output=True, text=True, check=False,
                                 env={n: v for n, v in os.environ.items() if n != 'ATOLL_DATABASE'})
            self.assertEqual(run.returncode, 0, line + run.stdout + run.stderr)
            ran += 1
        self.assertEqual(ran, 8)
        server = self.server('--database', f'postgresql://atoll@{sockets}/atoll', '--database-password-file', password)
        server.environment.pop('ATOLL_DATABASE')
        server.start()


class Full(unittest.TestCase):
    """SQLite on a disk that is full."""

    def test_full_disk_is_said_and_what_was_answered_stays(self):
        with tempfile.TemporaryDirectory(prefix='atoll-fulldb-') as name:
            top = pathlib.Path(name)
            top.chmod(0o755)
            disk, place = top / 'disk', top / 'place'
            place.mkdir()
            with open(disk, 'wb') as file:
                file.truncate(1200 << 20)
            subprocess.run(['mkfs.ext4', '-q', '-F', disk], check=True)
            subprocess.run(['mount', '-o', 'loop', disk, place], check=True)
            try:
                place.chmod(0o755)
                self.fill_and_empty(place)
            finally:
                subprocess.run(['umount', '-l', place], check=True)

    def fill_and_empty(self, place):
        server = Server(BUILD, place, '--pool', '0', '--stop-sandboxes')
        server.environment.pop('ATOLL_DATABASE', None)
        with server:
            api = Api(server.env(), **{'X-API-Key': server.env()['E2B_API_KEY']})
            room = os.statvfs(place)
            subprocess.run(['fallocate', '-l', str(room.f_bavail * room.f_frsize), place / 'filler'], check=False)
            made, status = set(), 201
            for n in range(3000):
                status, _, answer = api('POST', '/api-keys', {'name': 'x' * 90 + str(n)})
                if status != 201:
                    break
                made.add(answer['id'])
            self.assertEqual(status, 507, answer)
            self.assertTrue(server.healthy())
            (place / 'filler').unlink()
            self.assertEqual(api.status('POST', '/api-keys', {'name': 'again'}), 201)
            server.kill()
            server.start()
            self.assertLessEqual(made, {key['id'] for key in api.ok('GET', '/api-keys')})


def load_tests(_loader, standard, _pattern):
    """Most of them mostly wait, each for its own server: at the same time. The disk that is full is last."""
    return arrange(standard, lambda test: not isinstance(test, Full), 4)


if __name__ == '__main__':
    unittest.main()
