"""More clients than the server takes: strangers get nothing read and give way, a team has its share and no more, and
those who do not read their replies lose them. Health checks, other teams and the operator go on."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import socket
import tempfile
import time
import unittest
import urllib.parse

from harness import volumes
from harness.sandbox import GUEST_PORT, Sandbox
from harness.server import Server
from harness.v1 import Api, another_team

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
TOKEN = 'the-operator-of-a-crowd'
LARGE = 16 << 20
ROOM = 64   # connections that the crowded server takes
STREAMS = 23  # of them one team's streams, when no other team has any
UNREAD_MIB = 1


def status_of(link):
    """Of an answer that comes although no more is sent; None: there is none."""
    head = b''
    try:
        while b'\r\n' not in head and (piece := link.recv(4096)):
            head += piece
    except TimeoutError:
        return None
    return int(head.split(b' ', 2)[1]) if head.startswith(b'HTTP/1.1 ') else None


class NoKey(unittest.TestCase):
    """Of a large body nothing is waited for before the caller is known."""

    def setUp(self):
        self.url = urllib.parse.urlsplit(os.environ['E2B_API_URL'])

    def dial(self):
        link = socket.create_connection((self.url.hostname, self.url.port), 30)
        self.addCleanup(link.close)
        return link

    def get(self, path):
        link = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=60)
        with contextlib.closing(link):
            link.request('GET', path)
            return json.loads(link.getresponse().read())

    def operations(self):
        for prefix in ('', '/api/v1'):
            for path, item in self.get(f'{prefix}/openapi.json')['paths'].items():
                for method in item:
                    yield method.upper(), prefix + path

    def answer(self, method, path, *lines):
        """What is said after the first KiB of a large body."""
        link = self.dial()
        head = '\r\n'.join([f'{method} {path} HTTP/1.1', 'Host: localhost', *lines, '', ''])
        link.sendall(head.encode() + b'{' + b' ' * 1023)
        return status_of(link)

    def test_every_operation_answers_before_the_body(self):
        asked = 0
        for method, path in self.operations():
            path = re.sub(r'\{[^}]*\}', 'x', path)
            for framing in (f'Content-Length: {LARGE}', 'Transfer-Encoding: chunked'):
                status = self.answer(method, path, framing, 'Content-Type: application/json')
                with self.subTest(method=method, path=path, framing=framing):
                    # Open ones, which are read and nothing else, have no use for a body at all.
                    self.assertIn(status, {401} if method != 'GET' else {200, 401, 503})
                asked += 1
        self.assertGreater(asked, 150)

    def test_the_edge_and_the_guest_behind_it_too(self):
        with Sandbox() as box:
            to = [f'E2b-Sandbox-Id: {box.id}', f'E2b-Sandbox-Port: {GUEST_PORT}', f'Content-Length: {LARGE}']
            for path in ('/files?path=/tmp/x', '/process.Process/Start', '/filesystem.Filesystem/Stat'):
                with self.subTest(path=path):
                    self.assertEqual(self.answer('POST', path, *to), 401)
            self.assertEqual(self.answer('POST', '/init', *to), 404)
        self.assertIn(self.answer('POST', '/', *to), {404, 410, 502})


class Crowd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-crowd-')
        cls.addClassCleanup(scratch.cleanup)
        place = pathlib.Path(scratch.name)
        place.chmod(0o755)
        (place / 'token').write_text(TOKEN)
        cls.server = Server(BUILD, place, '--pool', '0', '--stop-sandboxes', '--admin-token-file', place / 'token',
                            '--max-connections', str(ROOM), '--max-queued-mb', str(UNREAD_MIB))
        cls.addClassCleanup(cls.server.stop)
        cls.server.start()
        cls.operator = Api(cls.server, operator=TOKEN)
        cls.other = another_team(cls.server, cls.operator)
        # Without the scope of an administrator, who would get into the operators' reserve.
        cls.api, _ = Api(cls.server).key_for(scopes=['sandboxes:read', 'sandboxes:write', 'volumes', 'usage'])

    def setUp(self):
        """What the test before had open is still counted for a moment."""
        deadline = time.monotonic() + 60
        while self.metric('atoll_team_connections') > 0:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def tearDown(self):
        self.doCleanups()  # the crowd goes first
        self.assertEqual(self.server.sanitizer_findings(), '')

    # ---- clients ----

    def dial(self, text='', receive=None):
        link = socket.socket()
        self.addCleanup(link.close)
        link.settimeout(60)
        if receive:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        link.connect((self.server.host, self.server.port))
        link.sendall(text.encode())
        return link

    def ask(self, path, *lines, **more):
        return self.dial('\r\n'.join([f'GET {path} HTTP/1.1', 'Host: localhost', *lines, '', '']), **more)

    def stream(self, api):
        return self.ask('/api/v1/events', f'X-API-Key: {api.key}')

    def metric(self, name):
        """The sum over all labels."""
        answer = self.operator.call('GET', '/metrics')
        self.assertEqual(answer.status, 200, answer.body)
        return sum(float(line.rsplit(' ', 1)[1]) for line in answer.body.decode().splitlines()
                   if re.match(rf'{name}[ {{]', line))

    def others_work(self):
        for _ in range(10):
            self.assertTrue(self.server.healthy(timeout=60))
            self.assertEqual(self.other.get('/quota').status, 200)
            self.assertEqual(self.operator.raw('GET', '/nodes').status, 200)

    def is_open(self, link):
        link.setblocking(False)
        try:
            while link.recv(65536):
                pass
            return False
        except BlockingIOError:
            return True
        except ConnectionError:
            return False

    # ---- what is seen ----

    def test_slow_strangers_give_way(self):
        stream = self.stream(self.api)
        self.assertEqual(status_of(stream), 200)
        began = self.metric('atoll_connections_evicted_total')
        slow = []
        for i in range(4 * ROOM):
            slow.append(self.dial(('', 'GET /health HT', 'POST /sandboxes HTTP/1.1\r\nHost: a\r\n')[i % 3]))
            if i % 16 == 0:
                self.assertTrue(self.server.healthy(timeout=60))
                self.assertEqual(self.api.get('/quota').status, 200)
        self.others_work()
        self.assertGreater(self.metric('atoll_connections_evicted_total'), began + 2 * ROOM)
        self.assertTrue(self.is_open(stream))
        self.assertFalse(any(self.is_open(link) for link in slow[:2 * ROOM]))

    def test_a_large_body_of_a_stranger_takes_no_memory(self):
        def rss():
            text = pathlib.Path(f'/proc/{self.server.process.pid}/status').read_text()
            return int(re.search(r'VmRSS:\s+(\d+)', text).group(1)) >> 10

        before, piece = rss(), b' ' * (1 << 20)
        for _ in range(ROOM // 2):
            link = self.dial(f'PATCH /volumecontent/x/path?path=/ HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n'
                             'Content-Type: application/json\r\n\r\n{')
            with contextlib.suppress(ConnectionError):
                for _ in range(8):
                    link.sendall(piece)
        self.assertLess(rss() - before, 64)

    def test_a_team_has_its_share(self):
        taken, answer = 0, None
        for _ in range(ROOM):
            answer = self.stream(self.api)
            if status_of(answer) != 200:
                break
            taken += 1
        self.assertEqual(taken, STREAMS)
        refused = self.api.get('/events')
        self.assertEqual((refused.status, refused.json()['code']), (429, 'too_many_connections'))
        self.assertGreaterEqual(int(refused.headers['Retry-After']), 1)
        self.assertEqual(self.api.get('/quota').status, 200)  # its calls have a part that streams do not get
        self.others_work()
        self.assertEqual(status_of(self.stream(self.other)), 200)
        self.assertGreaterEqual(self.metric('atoll_team_connections'), STREAMS + 1)

    def test_a_team_behind_the_edge_has_it_too(self):
        with Sandbox(env=self.server.env()) as box:
            token = box.made['envdAccessToken']
            to = [f'E2b-Sandbox-Id: {box.id}', f'E2b-Sandbox-Port: {GUEST_PORT}']
            visits = [self.ask('/metrics', *to) for _ in range(ROOM)]
            statuses = [status_of(link) for link in visits]
            self.assertLessEqual(set(statuses), {401, 429})
            for link in visits:
                link.close()
            link = self.ask('/metrics', *to, f'X-Access-Token: {token}')
            self.assertEqual(status_of(link), 200)

    def test_unread_replies_are_bounded(self):
        volumes = [api.raw('POST', '/volumes', json.dumps({'name': 'large'})).json() for api in (self.api, self.other)]
        for volume in volumes:
            self.fill(volume)
        mine, theirs = [(f"/volumecontent/{v['volumeID']}/dir?path=/", f"Authorization: Bearer {v['token']}")
                        for v in volumes]
        before = self.metric('atoll_unread_replies_cut_total')
        for _ in range(20):
            self.ask(*mine, receive=4096)
            self.assertLessEqual(self.metric('atoll_queued_bytes'), UNREAD_MIB << 20)
        self.assertGreater(self.metric('atoll_unread_replies_cut_total'), before)
        read = http.client.HTTPResponse(self.ask(*theirs))
        read.begin()
        self.assertEqual((read.status, len(json.loads(read.read()))), (200, 400))
        self.others_work()

    def fill(self, volume):
        """Its list becomes a large reply."""
        link = http.client.HTTPConnection(self.server.host, self.server.port, timeout=60)
        with contextlib.closing(link):
            for i in range(400):
                link.request('POST', f"/volumecontent/{volume['volumeID']}/dir?path=/{'d' * 200}{i}",
                             headers={'Authorization': f"Bearer {volume['token']}"})
                answer = link.getresponse()
                answer.read()
                self.assertEqual(answer.status, 201)

    # ---- what keeps the loop, and with it everybody ----

    def volume(self):
        return self.api.raw('POST', '/volumes', json.dumps({'name': f'loop-{time.monotonic_ns()}'})).json()

    def on_host(self, made):
        self.assertEqual(self.content(made, 'path?path=/').status, 200)  # it is in use
        return volumes.on_host(self.server.data, made['volumeID'])

    def content(self, made, path):
        return self.api.raw('GET', f"/volumecontent/{made['volumeID']}/{path}",
                            headers={'Authorization': f"Bearer {made['token']}"})

    def read_by_the_loop(self):
        pid = self.server.process.pid
        text = pathlib.Path(f'/proc/{pid}/task/{pid}/io').read_text()
        return int(re.search(r'rchar: (\d+)', text).group(1))

    def test_the_loop_reads_no_file_of_a_volume(self):
        made, size = self.volume(), 8 << 20
        bytes_ = os.urandom(size)
        with self.on_host(made) as place:
            (place / 'large').write_bytes(bytes_)
            volumes.take(place / 'large')
        before = self.read_by_the_loop()
        answer = self.content(made, 'file?path=/large')
        self.assertEqual((answer.status, answer.body), (200, bytes_))
        self.assertLess(self.read_by_the_loop() - before, size // 8)

    def test_a_file_that_becomes_shorter_ends_its_reply_early(self):
        made = self.volume()
        with self.on_host(made) as place:
            (place / 'large').touch()
            volumes.take(place / 'large')
            os.truncate(place / 'large', 64 << 20)
            link = self.ask(f"/volumecontent/{made['volumeID']}/file?path=/large",
                            f"Authorization: Bearer {made['token']}", receive=4096)
            self.assertEqual(status_of(link), 200)
            os.truncate(place / 'large', 1 << 20)
        self.assertFalse(self.is_whole(link, 64 << 20))
        self.others_work()

    def is_whole(self, link, size):
        read = 0
        with contextlib.suppress(ConnectionError):
            while piece := link.recv(1 << 20):
                read += len(piece)
        return read >= size

    def test_a_list_has_a_length(self):
        made = self.volume()
        with self.on_host(made) as deep:
            for _ in range(10):
                deep = deep / ('d' * 250)
            deep.mkdir(parents=True)
            for i in range(7000):
                (deep / f'{i:0200}').touch()
        answer = self.content(made, 'dir?path=/&depth=64')
        self.assertEqual(answer.status, 413, answer.body[:200])
        self.assertEqual(len(self.content(made, 'dir?path=/&depth=10').json()), 10)

    def busy(self):
        """Nanoseconds of a processor: of the loop, and of all threads."""
        tasks = pathlib.Path(f'/proc/{self.server.process.pid}/task')
        spent = {int(path.name): int((path / 'schedstat').read_text().split()[0]) for path in tasks.iterdir()}
        return spent[self.server.process.pid], sum(spent.values())

    def test_a_long_list_of_a_sandbox_is_no_work_for_the_loop(self):
        owner = Api(self.server)
        with Sandbox(env=self.server.env()) as box:
            box.run('mkdir /tmp/many; cd /tmp/many; seq 1500 | xargs touch')
            before = self.busy()
            for _ in range(20):
                answer = owner.call('GET', f'/sandboxes/{box.id}/files/list?path=/tmp/many')
                self.assertEqual((answer.status, len(answer.json()['items'])), (200, 1500))
            loop, everything = (now - then for now, then in zip(self.busy(), before))
        self.assertLess(loop, everything / 2)

    def test_patterns_of_a_run_are_no_work_for_the_loop(self):
        made = {'shell': 'mkdir /tmp/many; cd /tmp/many; seq 2000 | xargs touch',
                'artifacts': [f'/tmp/many/*{i}.none' for i in range(20)] + ['/tmp/many/199?']}
        before = self.busy()
        got = Api(self.server).ask('POST', '/run', made)
        loop, everything = (now - then for now, then in zip(self.busy(), before))
        self.assertEqual(len(got['artifacts']), 10)
        self.assertLess(loop, everything / 2)

    def test_a_document_is_small_before_it_is_understood(self):
        def sent(text, path='/v2/sandboxes'):
            answer = self.api.raw('POST', path, text, {'Content-Type': 'application/json'})
            return answer.status, answer.json()['message']
        many = json.dumps({'templateID': 'base', 'metadata': {str(i): '' for i in range(20000)}})
        self.assertEqual(sent(many), (400, 'validation error: more than 16384 values'))
        self.assertEqual(sent(' ' * (2 << 20)), (413, 'the request body is larger than 1 MiB'))
        run = '/api/v1/sandboxes/none/execute'
        self.assertEqual(sent(json.dumps({'argv': ['cat'], 'stdin': 'x' * (7 << 20)}), run)[0], 403)
        self.others_work()


if __name__ == '__main__':
    unittest.main()
