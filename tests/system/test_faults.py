"""What goes wrong around sandboxes, caused on purpose: a runtime that fails, a clock that is set, a full
disk, a reader that never reads, a killed server, guests that fall silent. Nothing that was answered with
success is lost, nothing ends that should not, nothing is left over. The last thing it says is a table.
Needs the build with faults in it (the sanitizers' one)."""
import concurrent.futures
import datetime
import errno
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from harness import kernel
from harness.faults import Faults, Table, until
from harness.server import Server
from harness.together import arrange
from harness.v1 import Api

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
HAS_FAULTS = (BUILD / 'atoll').read_bytes().find(b'pause.frozen') > 0
TABLE = Table('fault', 'asked', 'answered', 'held')
CUT = (OSError, http.client.HTTPException)


def tearDownModule():
    print('\n' + TABLE.text(), file=sys.stderr)


def seconds_of(text):
    return datetime.datetime.fromisoformat(text.replace('Z', '+00:00')).timestamp()


@unittest.skipUnless(HAS_FAULTS, 'this build has no faults in it')
class Case(unittest.TestCase):
    options = ()

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-fault-', ignore_cleanup_errors=True)
        self.addCleanup(scratch.cleanup)
        self.top = pathlib.Path(scratch.name)
        self.top.chmod(0o755)
        self.faults = Faults(self.top)
        self.server = self.make_server()
        self.addCleanup(self.server.stop)
        self.start()
        self.api = Api(self.server)

    def make_server(self):
        return Server(BUILD, self.top, '--pool', '4', '--stop-sandboxes', '--metrics-open', *self.options)

    def start(self):
        self.server.environment['ATOLL_FAULTS'] = str(self.faults.path)
        self.server.start()

    def make(self, **body):
        return self.api.ask('POST', '/sandboxes', {'timeout': 600, **body})

    def look(self, made):
        return self.api.ask('GET', f"/sandboxes/{made['id']}")

    def execute(self, made, line):
        return self.api.ask('POST', f"/sandboxes/{made['id']}/execute", {'shell': line})

    def wait_ended(self, made, seconds):
        return until(lambda: (lambda seen: seen if seen['state'] == 'ended' else None)(self.look(made)), seconds)

    def events(self, kind, made=None):
        query = {'subject': made['id']} if made else {}
        return self.api.events(kind=kind, **query)

    def check_empty(self):
        """Nothing is left of anything on the disk; in the kernel, when all have ended: Left."""
        self.assertEqual(self.server.stop(), 0, self.server.tail())
        self.assertEqual(kernel.sandbox_files(self.server.data), [])
        self.assertEqual(self.server.sanitizer_findings(), '')


class Artifacts(Case):
    def run_one(self):
        return self.api.ask('POST', '/run', {'shell': 'echo kept > /tmp/a', 'artifacts': ['/tmp/a']})

    def test_what_is_not_on_the_disk_is_not_promised(self):
        self.faults.set(sync_errno=errno.EIO)
        got = self.run_one()
        self.assertEqual(got['artifacts'], [])
        self.assertIn('write out the artifact: Input/output error', got['artifacts_missing'])
        self.assertEqual(self.api.ask('GET', '/artifacts')['items'], [])
        self.assertEqual(list((self.server.data / 'state/artifacts').iterdir()), [])
        self.faults.set(sync_errno=0)
        got = self.run_one()
        self.assertEqual(self.api.call('GET', f"/artifacts/{got['artifacts'][0]['id']}").body, b'kept\n')


class Stopping(Case):
    def test_work_that_outlasts_its_request_ends_before_the_server_does(self):
        made = self.api.raw('POST', '/volumes', '{"name": "slow"}').json()
        self.faults.set(job_ms=6000)  # more than requests have for their end
        link = socket.create_connection((self.server.host, self.server.port), 30)
        self.addCleanup(link.close)
        link.sendall(f"GET /volumecontent/{made['volumeID']}/path?path=/ HTTP/1.1\r\nHost: a\r\n"
                     f"Authorization: Bearer {made['token']}\r\n\r\n".encode())
        time.sleep(1)  # it is under way
        self.check_empty()
        self.assertEqual(link.recv(1), b'')


class Runtime(Case):
    def test_one_that_fails_every_third_time_under_load(self):
        self.faults.set(create_every=3)
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda _: self.api.call('POST', '/sandboxes', {'timeout': 600}), range(30)))
        self.faults.set(create_every=0)
        made = [answer.json() for answer in answers if answer.status == 201]
        # Whose three attempts are all among the failing ones is told so; that is one in 27.
        lost = [answer for answer in answers if answer.status != 201]
        self.assertLess(len(lost), 6, [answer.body for answer in lost])
        for answer in lost:
            self.assertEqual((answer.status, answer.json()['origin']), (500, 'infrastructure'), answer.body)
        self.assertEqual({self.execute(box, 'echo there')['stdout'] for box in made[:6]}, {'there\n'})
        failed = self.events('sandbox.attempt_failed')
        self.assertGreaterEqual(len(failed), 10)
        for event in failed:
            self.assertEqual((event['data']['origin'], event['data']['runtime'], event['cause']),
                             ('infrastructure', 'local', 'a test made this creation fail'))
            if event['data']['attempt'] < 3:
                self.assertGreater(event['data']['again_ms'], 500)
        self.assertEqual(len([e for e in failed if e['data']['attempt'] == 3]), len(lost))
        self.assertEqual(self.api.get('/ready').json()['runtimes']['local']['breaker'], 'closed')
        # Time that attempts took is not taken from the sandbox.
        again = {event['subject'] for event in failed}
        for box in made:
            if box['id'] in again:
                left = seconds_of(self.look(box)['ends_at']) - time.time()
                self.assertGreater(left + time.time() - seconds_of(box['created_at']), 600.5)
        TABLE.add('runtime fails every 3rd create', '30 creates, 6 at once', f'{len(made)} x 201, {len(lost)} x 500',
                  f'{len(failed)} attempts failed, each with its cause; breaker closed')
        for box in made:
            self.api.ask('DELETE', f"/sandboxes/{box['id']}")
        self.check_empty()

    def test_one_that_always_fails_is_left_alone_until_it_works(self):
        self.faults.set(create_every=1)
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda _: self.api.call('POST', '/sandboxes', {}), range(6)))
        for answer in answers:
            self.assertIn(answer.status, (500, 503), answer.body)
            self.assertEqual(answer.json()['origin'], 'infrastructure')
        spent = time.monotonic() - began
        refused = self.refused_at_once(lambda: self.api.call('POST', '/sandboxes', {}))
        self.assertEqual((refused.status, refused.json()['code']), (503, 'runtime_unavailable'), refused.body)
        self.assertIn('a test made this creation fail', refused.json()['message'])
        self.assertGreaterEqual(int(refused.headers['Retry-After']), 1)
        e2b = self.refused_at_once(lambda: self.api.raw('POST', '/v2/sandboxes', json.dumps({'templateID': 'base'}),
                                                        {'Content-Type': 'application/json'}))
        self.assertEqual(e2b.status, 503, e2b.body)
        self.assertGreaterEqual(int(e2b.headers['Retry-After']), 1)
        ready = self.api.get('/ready')
        self.assertEqual((ready.status, ready.json()['runtimes']['local']['breaker']), (200, 'open'))
        self.assertIn('atoll_breaker_state{runtime="local"} 2', self.metrics())
        status = subprocess.run([BUILD / 'atoll', 'status'], capture_output=True, text=True, check=False,
                                env={**os.environ, **self.server.env()})
        self.assertRegex(status.stdout, r'breaker\s+local open')
        self.faults.set(create_every=0)
        made = until(lambda: self.try_create(), 150, every=0.5)
        self.assertTrue(made, 'it was never tried again')
        self.assertEqual(self.api.get('/ready').json()['runtimes']['local']['breaker'], 'closed')
        states = [event['data']['state'] for event in self.operator_events('runtime.breaker')]
        self.assertEqual((states[0], states[-2:]), ('open', ['half_open', 'closed']))
        self.check_failed_rows()
        TABLE.add('runtime fails every create', '6 creates, then 2', f'6 x 5xx in {spent:.1f} s, then 503 at once',
                  f"breaker {' '.join(states)}; nothing left")
        self.api.ask('DELETE', f"/sandboxes/{made['id']}")
        self.check_empty()

    def refused_at_once(self, ask):
        """Without being tried. One in a while is, when it has been left alone for long enough: then the next."""
        for _ in range(5):
            before = self.attempts()
            answer = ask()
            if self.attempts() <= before + 1:  # the refusal is told as such, and not tried again
                return answer
        self.fail(f'it is tried each time: {answer.body}')
        return None

    def attempts(self):
        return self.server.log.read_text().count('attempt_failed')

    def try_create(self):
        answer = self.api.call('POST', '/sandboxes', {})
        return answer.json() if answer.status == 201 else None

    def metrics(self):
        return self.api.get('/metrics').body.decode()

    def operator_events(self, kind):
        """Those of no team are the operator's; here the log itself tells."""
        lines = [line for line in self.server.log.read_text().splitlines() if f'event={kind}' in line or kind in line]
        return [{'data': {'state': word.split('=')[1]}} for line in lines for word in line.split()
                if word.startswith('state=')]

    def check_failed_rows(self):
        """Each that could not be made is told as such, by whom, and is no sandbox."""
        for box in self.api.get('/sandboxes', state='ended').json()['items']:
            self.assertEqual((box['ended_by'], box['origin']), ('infrastructure', 'infrastructure'), box)

    def test_what_the_caller_did_wrong_is_not_tried_again(self):
        self.faults.set(create_every=1, create_errno=116)  # ESTALE: a volume that is gone
        answer = self.api.call('POST', '/sandboxes', {})
        self.assertEqual((answer.status, answer.json()['origin']), (400, 'user'), answer.body)
        self.assertEqual(len(self.events('sandbox.attempt_failed')), 1)
        TABLE.add("the caller's own error", '1 create', '400 at once', '1 attempt, origin user')

    def test_resuming_is_tried_again_as_well(self):
        made = self.make()
        self.execute(made, 'echo kept > /tmp/f; sync')
        self.api.ask('POST', f"/sandboxes/{made['id']}/pause", {'memory': False})
        self.faults.set(create_every=2)
        made2 = self.make()  # the first of the two passings
        self.api.ask('POST', f"/sandboxes/{made['id']}/resume", {})
        self.assertEqual(self.execute(made, 'cat /tmp/f')['stdout'], 'kept\n')
        failed = self.events('sandbox.attempt_failed', made)
        self.assertEqual([(e['data']['act'], e['data']['attempt']) for e in failed], [('resume', 1)])
        TABLE.add('runtime fails a resume', '1 resume', '200', 'second attempt; files kept')
        self.faults.set(create_every=0)
        self.assertTrue(made2['id'])

    def test_a_crash_between_two_attempts_leaves_nothing(self):
        self.faults.set(create_every=1)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(self.api.call, 'POST', '/sandboxes', {})
            self.assertTrue(until(lambda: 'attempt_failed' in self.server.log.read_text(), 60, every=0.01))
            self.server.kill()
            self.assertIsInstance(asked.exception(), CUT)
        self.faults.set(create_every=0)
        self.start()
        self.assertEqual(self.api.get('/sandboxes').json()['items'], [])
        rows = self.api.get('/sandboxes', state='ended').json()['items']
        self.assertEqual([row['origin'] for row in rows], ['infrastructure'])
        TABLE.add('SIGKILL between two attempts', '1 create', 'none', 'no sandbox, its row says why')
        self.check_empty()

    def test_a_stop_does_not_wait_for_the_next_attempt(self):
        self.faults.set(create_every=1)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(self.api.call, 'POST', '/sandboxes', {})
            until(lambda: self.attempts(), 60, every=0.01)
            began = time.monotonic()
            self.assertEqual(self.server.stop(), 0)
            self.assertLess(time.monotonic() - began, 30)
            self.assertLess(self.attempts(), 3)  # which it would have had time for
            self.assertEqual(asked.result().status, 500)


class Clock(Case):
    def cpu_s(self):
        fields = pathlib.Path(f'/proc/{self.server.process.pid}/stat').read_text().rsplit(')', 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')

    def test_set_forward_ends_nothing_and_nothing_late(self):
        self.jump(30)  # more than any time-out

    def test_set_back_ends_nothing_and_nothing_late(self):
        self.jump(-30)

    def jump(self, by_h):
        asked = time.monotonic()
        long = self.make()
        made_at = time.monotonic()
        short, idle = self.make(timeout=20), self.make(idle_timeout=100)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(self.execute, long, 'sleep 3; echo done')
            time.sleep(0.5)
            now_us, spent = by_h * 3600 * 1000000, self.cpu_s()
            self.faults.set(clock_us=now_us)
            time.sleep(3.5)
            spent = self.cpu_s() - spent
            answer = running.result()
        self.assertEqual((answer['stdout'], answer['exit_code']), ('done\n', 0), answer)
        for box in (long, short, idle):
            self.assertEqual(self.look(box)['state'], 'running')
        left = seconds_of(self.look(long)['ends_at']) - (time.time() + now_us / 1e6)
        now = time.monotonic()
        self.assertGreater(left, 600 - (now - asked) - 3)
        self.assertLess(left, 600 - (now - made_at) + 8)
        ended = self.wait_ended(short, 90)
        self.assertTrue(ended, 'its time was up, and it lives')
        self.assertEqual(ended['ended_by'], 'timeout')
        self.assertGreater(time.monotonic() - made_at, 18)
        self.api.ask('POST', f"/sandboxes/{long['id']}/extend", {'timeout': 30})
        self.assertEqual(self.look(long)['state'], 'running')
        self.assertLess(spent, 2.5, 'the server was busy with its timers')
        made = self.make(timeout=300)
        self.assertEqual(self.execute(made, 'echo new')['stdout'], 'new\n')
        TABLE.add(f'clock set {by_h:+d} h', '3 sandboxes and a command', 'all go on',
                  f'20 s time-out after {time.monotonic() - made_at:.0f} s at most; {spent:.1f} s of CPU in 4 s')
        for box in (long, idle, made):
            self.api.ask('DELETE', f"/sandboxes/{box['id']}")
        self.check_empty()


class Disk(Case):
    def make_server(self):
        disk, self.place = self.top / 'disk', self.top / 'place'
        self.place.mkdir()
        with open(disk, 'wb') as file:
            file.truncate(1200 << 20)
        subprocess.run(['mkfs.ext4', '-q', '-F', disk], check=True)
        subprocess.run(['mount', '-o', 'loop', disk, self.place], check=True)
        self.addCleanup(subprocess.run, ['umount', '-l', self.place], check=True)
        self.place.chmod(0o755)
        return Server(BUILD, self.place, '--pool', '1', '--stop-sandboxes')

    def fill(self):
        """To the last block, as root can."""
        with open(self.place / 'filler', 'ab', buffering=0) as file:
            for size in (1 << 20, 4096):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    pass
            os.fsync(file.fileno())

    def test_full_to_the_last_block(self):
        kept = [self.make() for _ in range(2)]
        self.fill()
        self.assertTrue(until(lambda: 'ballast_given_up' in self.server.log.read_text(), 60))
        self.fill()  # what was kept for this moment is gone as well
        refused = []
        for _ in range(6):
            answer = self.api.call('POST', '/sandboxes', {'timeout': 600})
            if answer.status == 201:
                kept.append(answer.json())
            else:
                refused.append(answer)
        self.assertTrue(refused, 'the disk is full, and everything is made')
        for answer in refused:
            self.assertIn(answer.status, (503, 507), answer.body)
            self.assertEqual(answer.json()['origin'], 'infrastructure')
        self.assertEqual(self.api.get('/health').status, 200)
        self.assertEqual({self.look(box)['state'] for box in kept}, {'running'})
        written = self.write_secrets()
        self.assertEqual(self.api.get('/ready').json()['runtimes']['local']['breaker'], 'closed')
        (self.place / 'filler').unlink()
        made = until(lambda: self.try_create(), 60)
        self.assertTrue(made, 'there is room again, and nothing is made')
        self.server.kill()
        self.start()
        self.assertLessEqual(written, {s['name'] for s in self.api.get('/secrets', limit=100).json()['items']})
        for box in [*kept, made]:
            self.assertEqual(self.look(box)['state'], 'running', box['id'])
            self.assertEqual(self.execute(box, 'echo alive')['stdout'], 'alive\n')
        TABLE.add('disk full to the last block', '6 creates, 40 rows of 48 KB',
                  f"{6 - len(refused)} x 201, {len(refused)} x {'/'.join(sorted({str(a.status) for a in refused}))}; "
                  f'{len(written)} rows',
                  f'{len(kept) + 1} of {len(kept) + 1} sandboxes and {len(written)} of {len(written)} rows after SIGKILL')

    def write_secrets(self):
        """Rows for which there is no room: what is answered with success, and that the rest says why."""
        written = set()
        for i in range(40):
            answer = self.api.call('PUT', f'/secrets/S{i}', {'value': os.urandom(24000).hex()})
            if answer.status < 300:
                written.add(f'S{i}')
            else:
                self.assertIn(answer.status, (503, 507), answer.body)
                self.assertEqual(answer.json()['origin'], 'infrastructure')
        self.assertLess(len(written), 40, 'the disk is full, and everything is written')
        return written

    def try_create(self):
        answer = self.api.call('POST', '/sandboxes', {'timeout': 600})
        return answer.json() if answer.status == 201 else None


class Readers(Case):
    def rss_mib(self):
        for line in pathlib.Path(f'/proc/{self.server.process.pid}/status').read_text().splitlines():
            if line.startswith('VmRSS'):
                return int(line.split()[1]) / 1024
        return 0

    def test_subscribers_that_never_read(self):
        idle = []
        for _ in range(50):
            link = socket.socket()
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            link.connect((self.server.host, self.server.port))
            link.sendall(f'GET /api/v1/events?after=0 HTTP/1.1\r\nHost: x\r\nX-API-Key: {self.api.key}\r\n'
                         'Accept: text/event-stream\r\n\r\n'.encode())
            idle.append(link)
            self.addCleanup(link.close)
        before, slowest = self.rss_mib(), 0
        for i in range(150):
            began = time.monotonic()
            self.api.ask('PUT', f'/secrets/S{i % 10}', {'value': 'x' * 100, 'metadata': {'n': 'y' * 1000}})
            slowest = max(slowest, time.monotonic() - began)
        made = self.make()
        self.assertEqual(self.execute(made, 'echo fine')['stdout'], 'fine\n')
        grown = self.rss_mib() - before
        self.assertLess(grown, 120, 'what nobody reads is kept')
        self.assertLess(slowest, 20)
        TABLE.add('50 subscribers that never read', '150 writes, 1 create', 'all',
                  f'slowest {slowest * 1000:.0f} ms, {grown:.0f} MiB more')


class Killed(Case):
    def make_server(self):
        return Server(BUILD, self.top, '--pool', '4')

    def test_while_it_is_asked_for_many_things_at_once(self):
        alive, gone, asked, cut = {}, set(), set(), []
        over = time.monotonic() + 6

        def work(number):
            mine = []
            while time.monotonic() < over:
                try:
                    if len(mine) < 4:
                        answer = self.api.call('POST', '/sandboxes', {'timeout': 600, 'task_id': f't{number}'})
                        if answer.status == 201:
                            mine.append(answer.json()['id'])
                            alive[mine[-1]] = True
                    else:
                        box = mine.pop(0)
                        asked.add(box)
                        if self.api.call('DELETE', f'/sandboxes/{box}').status == 204:
                            gone.add(box)
                except CUT:
                    cut.append(number)
                    time.sleep(0.05)

        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            workers = [pool.submit(work, n) for n in range(6)]
            for _ in range(2):
                time.sleep(1.5)
                self.server.kill()
                self.start()
            for worker in workers:
                worker.result()
        for box in set(alive) - asked:
            self.assertEqual(self.look({'id': box})['state'], 'running', box)
        for box in gone:
            self.assertEqual(self.look({'id': box})['state'], 'ended', box)
        live = {box['id'] for box in self.pages('running')}
        # Made, and the server died before it could say so: it lives until its time is up.
        self.assertLessEqual(len(live - set(alive)), len(cut))
        for box in sorted(set(alive) - asked)[:4]:
            self.assertEqual(self.execute({'id': box}, 'echo alive')['stdout'], 'alive\n')
        TABLE.add('SIGKILL twice under load', f'{len(alive)} created, {len(gone)} deleted', 'with success',
                  f'{len(set(alive) - asked)} of {len(set(alive) - asked)} are there, all deleted ones are not')
        for box in live:
            self.api.ask('DELETE', f'/sandboxes/{box}')
        self.check_empty()

    def pages(self, state):
        found, cursor = [], {}
        while True:
            page = self.api.get('/sandboxes', state=state, limit=100, **cursor).json()
            found += page['items']
            if not page['next_cursor']:
                return found
            cursor = {'cursor': page['next_cursor']}


class Care(Case):
    """Health and sweeps: mostly waiting, so all at once, and looked after each 2 s instead of 5."""
    options = ('--unresponsive-after', '8')

    def guest_pid(self, made):
        """The guest of a sandbox: the first process of its cgroup."""
        for root, _, files in os.walk('/sys/fs/cgroup'):
            if made['id'] in root and 'cgroup.procs' in files:
                pids = [p for p in pathlib.Path(root, 'cgroup.procs').read_text().split() if p != '0']
                for pid in pids:
                    if pathlib.Path('/proc', pid, 'comm').read_text().startswith('atoll-guest'):
                        return int(pid)
        return self.guest_by_socket(made)

    def guest_by_socket(self, made):
        for entry in pathlib.Path('/proc').glob('[0-9]*'):
            try:
                comm, environ = (entry / 'comm').read_text(), (entry / 'root/run/e2b/.E2B_SANDBOX_ID')
                if comm.startswith('atoll-guest') and environ.exists() and environ.read_text() == made['id']:
                    return int(entry.name)
            except OSError:
                continue
        self.fail('its guest is not found')
        return 0

    def test_none_becomes_a_zombie(self):
        self.faults.set(care_ms=2000)
        old = self.make(timeout=25, max_age=26)
        self.api.ask('POST', f"/sandboxes/{old['id']}/pause", {})
        well, stopped, back, deaf, killed = [self.make() for _ in range(5)]
        idle = self.make(idle_timeout=15)
        napping = self.make(idle_timeout=15, on_timeout='pause')
        for box in (idle, napping, well, stopped, back, deaf, killed):
            self.assertEqual(self.execute(box, 'true')['exit_code'], 0)
        began = time.monotonic()
        os.kill(self.guest_pid(killed), signal.SIGKILL)
        for box in (stopped, back):
            os.kill(self.guest_pid(box), signal.SIGSTOP)
        (self.server.data / 'run' / deaf['id'] / 'guest.sock').unlink()
        used = self.make(idle_timeout=15)
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            for check in [pool.submit(self.check_used, used), pool.submit(self.check_killed, killed),
                          pool.submit(self.check_swept, old, idle, napping), pool.submit(self.check_deaf, deaf),
                          pool.submit(self.check_back, back), pool.submit(self.check_stopped, stopped, began)]:
                check.result()
        seen = self.look(well)
        self.assertEqual((seen['state'], seen['health'], seen['health_why']), ('running', 'healthy', None))
        self.assertIn('atoll_sandbox_health{health="healthy"}', self.api.get('/metrics').body.decode())
        self.check_empty()

    def check_used(self, box):
        self.assertEqual(self.execute(box, 'sleep 22; echo busy')['stdout'], 'busy\n')
        self.assertEqual(self.look(box)['state'], 'running')
        self.assertTrue(self.wait_ended(box, 90), 'it was used, and then was not')

    def check_killed(self, box):
        seen = self.wait_ended(box, 60)
        self.assertTrue(seen, 'its guest is dead')
        self.assertEqual((seen['ended_by'], seen['origin'], seen['ended_why']),
                         ('infrastructure', 'infrastructure', 'the guest was killed by signal 9'))
        TABLE.add('guest killed from outside', '', '', 'ended by infrastructure at once')

    def check_swept(self, old, idle, napping):
        for box, why in ((old, 'older than its max_age of 26 s'), (idle, 'idle for')):
            seen = self.wait_ended(box, 90)
            self.assertTrue(seen, f'{why}: it lives')
            self.assertEqual((seen['ended_by'], seen['origin']), ('timeout', 'user'))
            self.assertIn(why, seen['ended_why'])
        self.assertTrue(until(lambda: self.look(napping)['state'] == 'paused', 60))
        self.assertIn('it was idle for', self.events('sandbox.paused', napping)[-1]['cause'])
        TABLE.add('forgotten: max_age, idle_timeout', '3 sandboxes', '', '2 ended, 1 paused, with the cause')

    def check_deaf(self, box):
        seen = self.wait_ended(box, 90)
        self.assertTrue(seen, 'nobody can speak with it, and it lives')
        self.assertEqual(seen['ended_by'], 'infrastructure')
        self.assertIn('nobody listens in it any more', seen['ended_why'])
        self.assertEqual([e['data']['health'] for e in self.events('sandbox.unhealthy', box)], ['dead'])
        TABLE.add('guest that nobody can reach', '', '', 'dead, then ended by infrastructure with the evidence')

    def check_back(self, box):
        self.assertTrue(until(lambda: self.look(box)['health'] == 'unresponsive', 90))
        self.assertIn('did not answer', self.look(box)['health_why'])
        os.kill(self.guest_pid(box), signal.SIGCONT)
        self.assertTrue(until(lambda: self.look(box)['health'] == 'healthy', 60))
        self.assertEqual(len(self.events('sandbox.recovered', box)), 1)
        self.assertEqual(self.execute(box, 'echo back')['stdout'], 'back\n')
        TABLE.add('guest that is silent for a while', '', '', 'unresponsive, then recovered; not ended')

    def check_stopped(self, box, began):
        seen = self.wait_ended(box, 90)
        self.assertTrue(seen, 'it does not answer, and lives')
        self.assertEqual((seen['ended_by'], seen['origin']), ('infrastructure', 'infrastructure'))
        self.assertIn('did not answer', seen['ended_why'])
        self.assertGreater(time.monotonic() - began, 12)
        TABLE.add('guest that is silent for good', '--unresponsive-after 8', '',
                  f'ended by infrastructure after {time.monotonic() - began:.0f} s')


class Left(unittest.TestCase):
    """The last of all: what the kernel held before the first of them, and no more."""
    before = {}

    def test_nothing_is_left_in_the_kernel(self):
        if not self.before:
            self.skipTest('nothing ran before this')
        self.assertEqual({kind: names for kind, names in kernel.leaked(self.before).items() if names}, {})


def settled():
    """What the kernel holds before all of them: the server of the whole run may have just been started."""
    return kernel.settled()


def load_tests(_loader, standard, _pattern):
    """Those that mostly wait at the same time; then the one that is busy; and what is left of them."""
    Left.before = settled() if HAS_FAULTS else {}
    suite = arrange(standard, lambda test: not isinstance(test, (Killed, Left)), 6)
    return unittest.TestSuite(sorted(suite, key=lambda test: isinstance(test, Left)))


if __name__ == '__main__':
    unittest.main()
