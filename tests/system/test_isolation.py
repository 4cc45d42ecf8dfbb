"""From inside a sandbox: what it is given, what it cannot have, and that its limits hold."""
import array
import base64
import concurrent.futures
import contextlib
import fcntl
import json
import os
import pathlib
import socket
import struct
import subprocess
import tempfile
import time
import unittest

from harness.faults import until
from harness.sandbox import Sandbox, frames


class Inside(unittest.TestCase):
    """One sandbox for all of these."""

    @classmethod
    def setUpClass(cls):
        cls.box = Sandbox()

    @classmethod
    def tearDownClass(cls):
        cls.box.kill()

    def out(self, command, user=None):
        result = self.box.run(command, user)
        self.assertEqual(result.exit_code, 0, result.stdout + result.stderr)
        return result.text().strip()

    def refused(self, command, user='root'):
        result = self.box.run(command, user)
        self.assertNotEqual(result.exit_code, 0, f'{command}: {result.text()}')

    def test_root_inside_is_nobody_outside(self):
        first, host, count = self.out('cat /proc/self/uid_map', 'root').split()
        self.assertEqual((first, count), ('0', '65536'))
        self.assertGreaterEqual(int(host), 0x70000000)

    def test_every_namespace_is_its_own(self):
        for name in ('user', 'mnt', 'pid', 'net', 'ipc', 'uts', 'cgroup'):
            inside = self.out(f'readlink /proc/self/ns/{name}', 'root')
            self.assertNotEqual(inside, os.readlink(f'/proc/self/ns/{name}'))

    def test_it_sees_only_its_own_processes(self):
        self.assertEqual(self.out('cat /proc/1/comm'), 'atoll-guest')
        self.assertLess(int(self.out('ls -d /proc/[0-9]* | wc -l')), 20)

    def test_a_normal_linux(self):
        for command in ('test -c /dev/null && echo x >/dev/null', 'test -c /dev/urandom',
                        'head -c 8 /dev/urandom | wc -c | grep -qx 8', 'test -d /dev/pts',
                        'touch /dev/shm/x', 'touch /tmp/x', 'ls /sys/class >/dev/null',
                        'grep -q localhost /etc/hosts', 'test -f /etc/resolv.conf',
                        'ls -l /proc/self/fd >/dev/null', 'getent hosts localhost',
                        'echo hi | sudo tee /root/x >/dev/null', 'script -qc true /dev/null'):
            self.out(command)

    def test_disk_shows_its_own_size(self):
        size = int(self.out("df --output=size -BM / | tail -1 | tr -dc 0-9"))
        self.assertLess(size, 11000)

    def test_what_root_may_not(self):
        for command in ('mount -t tmpfs none /mnt', 'mknod /tmp/sda b 8 0 && head -c1 /tmp/sda',
                        'unshare -m true', 'unshare -U true', 'dmesg', 'echo 1 >/proc/sys/kernel/panic',
                        'echo b >/proc/sysrq-trigger', 'echo x >/sys/power/state',
                        'head -c1 /proc/kcore | grep -q .', 'hostname other', 'date -s 2001-01-01',
                        'modprobe dummy', 'swapoff -a && swapon /dev/vda',
                        'ip link add dummy0 type dummy', 'nft list ruleset'):
            with self.subTest(command):
                self.refused(command)

    def test_no_way_to_the_hosts_cgroups(self):
        self.refused('ls /sys/fs/cgroup/*/atoll')

    def test_capabilities_are_a_containers(self):
        held = int(self.out("sed -n 's/^CapBnd:\\s*//p' /proc/self/status", 'root'), 16)
        for name, bit in (('sys_admin', 21), ('sys_module', 16), ('sys_rawio', 17), ('sys_ptrace', 19),
                          ('sys_boot', 22), ('net_admin', 12), ('bpf', 39), ('syslog', 34)):
            self.assertFalse(held >> bit & 1, name)
        for name, bit in (('chown', 0), ('setuid', 7), ('net_bind_service', 10)):
            self.assertTrue(held >> bit & 1, name)
        self.assertEqual(self.out("sed -n 's/^Seccomp:\\s*//p' /proc/self/status"), '2')

    def test_no_descriptor_of_the_host_is_inherited(self):
        for line in self.out('ls -l /proc/self/fd | tail -n +2', 'root').splitlines():
            self.assertRegex(line, r' -> (pipe:.*|/dev/null|/proc/\d+/fd)$')


class Network(unittest.TestCase):
    def test_the_host_and_other_sandboxes_are_out_of_reach(self):
        with contextlib.ExitStack() as stack:
            one, two = stack.enter_context(Sandbox()), stack.enter_context(Sandbox())
            listener = stack.enter_context(socket.create_server(('0.0.0.0', 0)))
            port = listener.getsockname()[1]
            gateway = one.run("ip route show default | awk '{print $3}'").text().strip()
            self.assertTrue(gateway)
            knock = 'timeout 3 bash -c "exec 3<>/dev/tcp/{}/{}" && echo open'
            self.assertNotIn('open', one.run(knock.format(gateway, port)).text())
            two.run('setsid python3 -m http.server 8000 >/dev/null 2>&1 </dev/null &')
            address = two.run("hostname -I").text().split()[0]
            self.assertEqual(two.run(f'for i in $(seq 600); do curl -s -o /dev/null {address}:8000 && '
                                     'exit 0; sleep 0.1; done; exit 1').exit_code, 0)
            self.assertNotIn('open', one.run(knock.format(address, 8000)).text())
            self.assertNotIn('open', one.run(knock.format('169.254.169.254', 80)).text())


# Threads count as processes do, and need the least memory each.
TOO_MANY = b"""
import os, threading
threading.stack_size(65536)
end, made = threading.Event(), 0
try:
    while made < 20000:
        threading.Thread(target=end.wait, daemon=True).start()
        made += 1
except RuntimeError:
    pass
print(made, flush=True)
os._exit(0)
"""


# Takes what the kernel counts by user, not by process, until there is no more, and keeps it.
HOARD = b"""
import ctypes, sys, time
libc = ctypes.CDLL(None)
take = {'inotify': libc.inotify_init, 'terminals': lambda: libc.posix_openpt(2)}[sys.argv[1]]
made = 0
while made < 5000 and take() >= 0:
    made += 1
print(made, flush=True)
if len(sys.argv) > 2:
    time.sleep(60)
"""


class Limits(unittest.TestCase):
    def hoard(self, what):
        """One takes all it can get of it; how much is left for its neighbour."""
        with Sandbox() as greedy, Sandbox() as other:
            for box in (greedy, other):
                box.write('/home/user/hoard.py', HOARD)
            greedy.run(f'ulimit -n 8192; setsid python3 hoard.py {what} stay >made 2>&1 </dev/null & '
                       'for i in $(seq 300); do [ -s made ] && break; sleep 0.1; done')
            self.assertGreater(int(greedy.run('cat made').text()), 50)
            return int(other.run(f'ulimit -n 8192; python3 hoard.py {what}').text())

    def test_inotify_of_one_is_not_anothers(self):
        self.assertGreater(self.hoard('inotify'), 50)

    def test_terminals_of_one_leave_another_its_own(self):
        self.assertGreater(self.hoard('terminals'), 50)

    def test_memory(self):
        with Sandbox() as box:
            result = box.run("python3 -c 'x = bytearray(3 << 30); print(len(x))'")
            self.assertNotEqual(result.exit_code, 0)
            self.assertEqual(box.run('echo alive').text(), 'alive\n')

    def test_processes(self):
        with Sandbox() as box:
            box.write('/home/user/many.py', TOO_MANY)
            made = int(box.run('python3 many.py').text())
            self.assertTrue(1000 < made < 5000, made)
            self.assertEqual(box.run('echo alive').text(), 'alive\n')

    def test_disk(self):
        with Sandbox() as box:
            self.assertNotEqual(box.run('fallocate -l 20G /home/user/big').exit_code, 0)
            result = box.run('fallocate -l 9G big && head -c 4G /dev/zero >more')
            self.assertNotEqual(result.exit_code, 0)
            self.assertIn(b'No space left', result.stderr)
            status, answer = box.write('/home/user/one-more', b'x' * (8 << 20))
            self.assertEqual((status, answer['code']), (507, 507))
            self.assertEqual(box.run('rm -f big more && echo freed').text(), 'freed\n')

    def test_killing_everything_inside_leaves_it_serving(self):
        with Sandbox() as box:
            box.run('kill -KILL -1', 'root')
            box.run('kill -KILL 1; kill -TERM 1', 'root')
            self.assertEqual(box.run('echo alive').text(), 'alive\n')


# Fills sockets that nobody reads, and says by how much the kernel's sockets of that kind have grown.
HOLD = b"""
import resource, socket, sys, time
files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
kept, line = [], b'x' * 60000

def held(kind):
    for row in open('/proc/net/sockstat'):
        if row.startswith(kind + ':'):
            words = row.split()
            return int(words[words.index('mem') + 1]) * 4096

def udp():
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for _ in range(100):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        kept.append(s)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        s.bind(('127.0.0.1', 0))
        for _ in range(80):
            try:
                out.sendto(line, s.getsockname())
            except OSError:
                pass

def tcp():
    listener = socket.create_server(('127.0.0.1', 0), backlog=200)
    for _ in range(120):
        s = socket.create_connection(listener.getsockname())
        kept.extend((s, listener.accept()[0]))
        s.setblocking(False)
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            try:
                s.send(line)
            except BlockingIOError:
                break

kind = sys.argv[1]
before = held(kind.upper())
{'udp': udp, 'tcp': tcp}[kind]()
print(held(kind.upper()) - before)
"""

PING = b"""
import socket, struct
for family, address, protocol, kinds in ((socket.AF_INET, '127.0.0.1', 1, (8, 0)), (socket.AF_INET6, '::1', 58, (128, 129))):
    s = socket.socket(family, socket.SOCK_DGRAM, protocol)
    s.settimeout(60)
    s.sendto(struct.pack('>BBHHH', kinds[0], 0, 0, 7, 1) + b'hello', (address, 0))
    assert s.recv(100)[0] == kinds[1]
"""


ASK = b"""
import os, socket
os.fork(), os.fork()
while True:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
"""


def waits_for_its_disk(path):
    """Whether some of the file has no place on the disk yet (FIEMAP's DELALLOC); None: nobody can say."""
    FS_IOC_FIEMAP, DELALLOC = 0xc020660b, 0x4
    with open(path, 'rb') as file:
        ask = array.array('B', struct.pack('=QQLLLL', 0, 2**64 - 1, 0, 0, 64, 0) + bytes(64 * 56))
        try:
            fcntl.ioctl(file, FS_IOC_FIEMAP, ask)
        except OSError:
            return None
    n = struct.unpack_from('=L', ask, 20)[0]
    return any(struct.unpack_from('=L', ask, 32 + 56 * i + 40)[0] & DELALLOC for i in range(n))


# What each stops at; None: the sandbox's memory, since it is charged.
KINDS = {'pipes': None, 'unix-streams': None, 'unix-datagrams': None, 'files-in-flight': 'cannot splice',
         'timerfds': None, 'timers': 'Resource temporarily',
         'inotify': None, 'locks': 'killed', 'page-tables': None, 'memory-files': None, 'attributes': None,
         'signals': 'Resource temporarily', 'semaphores': 'No space', 'messages': 'No space', 'queues': 'No space',
         'terminals': 'No space', 'corked': 'No buffer space', 'echoes': 'No buffer space', 'groups': 'No buffer space',
         'signatures': 'Protocol not', 'times': 'No message', 'errors': 'No message'}
MEMORY_MB, WANTED_MB = 128, 2 * 128


class Stopped(unittest.TestCase):
    """Whoever is root inside can stop every process but the guest."""
    STOPPER = 'exec python3 -c "import os\nwhile True:\n try: os.kill(-1, 19)\n except ProcessLookupError: pass"'
    COMMANDS = 200
    KILLED = 'another process stopped it before it began'

    def ask(self, box, method, path, message=None):
        link = box.connection(timeout=60)
        with contextlib.closing(link):
            link.request(method, path, message and json.dumps(message),
                         box.headers(**{'Content-Type': 'application/json'}))
            answer = link.getresponse()
            answer.read()
            return answer.status

    def start(self, box, link):
        message = json.dumps({'process': {'cmd': '/bin/bash', 'args': ['-c', self.STOPPER]}, 'stdin': False}).encode()
        link.request('POST', '/process.Process/Start', struct.pack('>BI', 0, len(message)) + message,
                     box.headers(Authorization='Basic ' + base64.b64encode(b'root:').decode(),
                                 **{'Content-Type': 'application/connect+json'}))
        events = frames(link.getresponse())
        return json.loads(next(events)[1])['event']['start']['pid'], events

    def command(self, box):
        """How it ended: it ran, or the guest says that it was killed on its way."""
        result = box.run('echo done', timeout=300)
        if result.error and self.KILLED in result.error['message']:
            return 'killed'
        return result.text() if not result.error else str(result.error)

    def test_a_process_that_stops_all_others_does_not_hang_the_guest(self):
        """A child that is stopped between clone and exec is killed: the guest waits for it no longer."""
        with concurrent.futures.ThreadPoolExecutor(self.COMMANDS) as pool, Sandbox(timeout=600) as box:
            stopper = box.connection(timeout=300)
            self.addCleanup(stopper.close)
            pid, events = self.start(box, stopper)
            waited, commands = [], [pool.submit(self.command, box) for _ in range(self.COMMANDS)]
            for _ in range(40):
                began = time.monotonic()
                self.assertIn(self.ask(box, 'GET', '/health'), (200, 204))
                waited.append(time.monotonic() - began)
                time.sleep(0.05)
            # About two seconds on a machine with nothing else to do.
            self.assertLess(max(waited), 20, sorted(waited)[-5:])
            self.assertEqual(self.ask(box, 'POST', '/process.Process/SendSignal',
                                      {'process': {'pid': pid}, 'signal': 'SIGNAL_SIGKILL'}), 200)
            self.assertEqual(list(events)[-1][0] & 2, 2)  # it has ended
            self.assertIsNotNone(until(lambda: self.go_on(box, commands), 120, every=0.5))
            ends = [command.result() for command in commands]
            self.assertLessEqual(set(ends), {'done\n', 'killed'})
            self.assertIn('killed', ends)  # or else it was not what this is about
            self.assertEqual(box.run('echo well').text(), 'well\n')
            print(f'\n{self.COMMANDS} commands, {ends.count("killed")} killed, health answered within '
                  f'{max(waited):.3f} s', flush=True)

    def go_on(self, box, commands):
        """Those that had begun when it ended were stopped by it as well."""
        box.run('python3 -c "import os; os.kill(-1, 18)"', 'root')
        return all(command.done() for command in commands) or None

    def test_no_thread_of_the_guest_can_be_stopped(self):
        """Among them the one that kills such children."""
        with Sandbox() as box:
            told = box.run('python3 -c "'
                           'import ctypes, os, sys, time\n'
                           'libc = ctypes.CDLL(None)\n'
                           'threads = [int(name) for name in os.listdir(\'/proc/1/task\')]\n'
                           'for signo in (19, 20, 9, 15):\n'
                           ' for tid in threads: assert libc.tgkill(1, tid, signo) == 0\n'
                           'time.sleep(0.2)\n'
                           'states = [open(f\'/proc/1/task/{tid}/stat\').read().rsplit(\')\')[-1].split()[0]'
                           ' for tid in threads]\n'
                           'print(len(threads), sorted(set(states) - set(\'RSD\')))"', 'root')
            count, states = told.text().split(maxsplit=1)
            self.assertGreaterEqual(int(count), 2, told.stderr)
            self.assertEqual(states, '[]\n')
            self.assertEqual(box.run('echo well').text(), 'well\n')


class Charged(unittest.TestCase):
    """Twice a sandbox's memory is not to be had of anything that the kernel holds for it."""

    @classmethod
    def setUpClass(cls):
        home = tempfile.TemporaryDirectory()
        cls.addClassCleanup(home.cleanup)
        program = pathlib.Path(home.name, 'hold')
        subprocess.run(['cc', '-O1', '-static', '-o', program, pathlib.Path(__file__).with_name('hold.c')],
                       check=True)
        cls.program = program.read_bytes()

    def test_every_kind(self):
        for kind, why in KINDS.items():
            with self.subTest(kind), Sandbox(limits={'memoryMB': MEMORY_MB}) as box:
                box.write('/home/user/hold', self.program)
                wanted = WANTED_MB * (4 if kind == 'locks' else 1)  # those are ended a second late
                result = box.run(f'chmod +x hold; ./hold {kind} {wanted << 20}')
                # One of its processes may not know yet that another was killed, and say that it has all.
                if 'out of memory' not in str(result.cause):
                    self.assertRegex(result.text() or str(result.cause), why or 'stopped')
                    self.assertNotIn('held', result.text())


class Shared(unittest.TestCase):
    """What all of a host share, and what the kernel holds for a sandbox."""

    def held(self, kind):
        with Sandbox(limits={'memoryMB': 128}) as box:
            box.write('/home/user/hold.py', HOLD)
            result = box.run(f'python3 hold.py {kind}')
            self.assertEqual(result.exit_code, 0, result.stderr)
            return int(result.text())

    def test_datagrams_that_wait_count(self):
        self.assertLess(self.held('udp'), 128 << 20)

    def test_streams_that_wait_count(self):
        self.assertLess(self.held('tcp'), 128 << 20)

    def test_what_a_network_keeps_is_bounded(self):
        with Sandbox() as box:
            for name, most in (('ipv4/tcp_max_tw_buckets', 16384), ('ipv4/ipfrag_high_thresh', 1 << 20),
                               ('ipv6/ip6frag_high_thresh', 1 << 20), ('core/optmem_max', 4096),
                               ('core/tstamp_allow_data', 0)):
                self.assertLessEqual(int(box.run(f'cat /proc/sys/net/{name}').text()), most, name)

    def test_network_programs_work_all_the_same(self):
        with Sandbox() as box:
            box.write('/home/user/ping.py', PING)
            for user in ('user', 'root'):
                for command in ('ip address | grep -q 127.0.0.1', 'ip route | grep -q default', 'ss -tln',
                                'hostname -I | grep -q .', 'python3 ping.py', 'getent ahosts localhost',
                                "node -e 'if (!os.networkInterfaces().lo) throw 1'", 'lscpu', 'lsblk', 'free'):
                    result = box.run(command, user)
                    self.assertEqual(result.exit_code, 0, f'{command}: {result.text()}{result.stderr}')

    def test_it_can_be_paused_while_its_calls_are_asked_for(self):
        with Sandbox() as box:
            box.write('/home/user/ask.py', ASK)
            box.run('setsid python3 ask.py >/dev/null 2>&1 </dev/null & '
                    'for i in $(seq 600); do [ $(pgrep -c python3) = 4 ] && break; sleep 0.1; done')
            for _ in range(20):
                box.api('POST', f'/sandboxes/{box.id}/pause')
                box.api('POST', f'/sandboxes/{box.id}/connect', {'timeout': 300})
            self.assertEqual(box.run('pgrep -c python3').text(), '4\n')

    def test_sync_concerns_nobody_else(self):
        """What another process has written waits on, however often a sandbox says sync."""
        with Sandbox() as box, tempfile.TemporaryDirectory() as home:
            path = pathlib.Path(home, 'written')
            for _ in range(20):  # somebody else on this machine may say it meanwhile
                path.unlink(missing_ok=True)
                path.write_bytes(bytes(1 << 20))
                if not waits_for_its_disk(path):
                    self.skipTest(f'the file system of {home} does not tell what waits')
                box.run('for i in 1 2 3 4; do (for j in 1 2 3; do sync; done) & done; wait')
                if waits_for_its_disk(path):
                    return
            self.fail('a sandbox flushes the files of the host')

    def test_a_file_is_still_put_on_the_disk(self):
        with Sandbox() as box:
            self.assertEqual(box.run('echo x >a && sync a && sync -f a && python3 -c '
                                     '"import os; os.fsync(os.open(\'a\', 0)); os.sync()"').exit_code, 0)


if __name__ == '__main__':
    unittest.main()
