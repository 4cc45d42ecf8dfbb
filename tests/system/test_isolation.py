"""From inside a sandbox: what it is given, what it cannot have, and that its limits hold."""
import contextlib
import os
import socket
import unittest

from harness.sandbox import Sandbox


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


if __name__ == '__main__':
    unittest.main()
