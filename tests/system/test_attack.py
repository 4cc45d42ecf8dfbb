"""Atoll attacks itself: zero escapes, everything tried, and probes that can fail."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from harness.server import ROOT, template_cache
from harness.together import arrange

PROGRAM = pathlib.Path(os.environ['ATOLL_TEST_BIN'])
PROBE = PROGRAM.parent / 'atoll-probe'
RELEASE = ROOT / 'build/atoll'

# What is promised to be tried, and the attempts that do.
PROMISED = {
    "writing the runtime's own binary through /proc/*/exe":
        ['fds.runtime', 'descriptors.reexecute', 'files.runtime', 'host.programs'],
    'leaked descriptors and working directories at start and at exec':
        ['fds.inherited', 'fds.directory', 'descriptors.directory', 'descriptors.start',
         'proc.init-descriptors'],
    'symlinked /dev/null, /proc, /sys, /dev/pts in a hostile template':
        ['templates.proc', 'templates.proc-up', 'templates.sys', 'templates.dev', 'templates.null',
         'templates.pts', 'templates.plain'],
    'file API traversal by symlink, .., magic links, hard links, FIFOs and device nodes':
        ['files.dots', 'files.magic-links', 'files.symlinks', 'files.compose', 'files.hard-links',
         'files.strange', 'files.layer', 'files.switches'],
    'helpers that the kernel runs':
        ['proc.release-agent', 'proc.core-pattern', 'proc.uevent-helper', 'proc.modprobe',
         'proc.binfmt-misc', 'proc.sysrq'],
    'raw devices': ['devices.memory', 'devices.kmsg', 'devices.fuse', 'devices.loop', 'devices.disks',
                    'devices.mknod', 'devices.listed'],
    'open_by_handle_at': ['kernel.open-by-handle'],
    'kernel interfaces': ['kernel.modules', 'kernel.kexec', 'kernel.bpf', 'kernel.perf',
                          'kernel.userfaultfd', 'kernel.keyctl', 'kernel.io-uring', 'foreign.af-alg',
                          'foreign.af-alg-int80', 'foreign.af-alg-socketcall', 'foreign.x32'],
    'what namespaces inside would open':
        ['nested.proc', 'nested.uncover', 'nested.types', 'nested.file-systems', 'nested.cgroups', 'nested.power',
         'nested.networks', 'nested.users', 'nested.sockets', 'nested.tables'],
    'nested user namespaces': ['namespaces.unshare', 'namespaces.overlay', 'namespaces.nftables',
                               'namespaces.fuse'],
    'shared page cache and base layers':
        ['layers.dirty-pipe', 'layers.dirty-cow', 'layers.map', 'files.layer', 'host.layers'],
    'control and abstract sockets': ['neighbours.control', 'neighbours.abstract',
                                     'neighbours.sockets', 'neighbours.listed'],
    "other sandboxes' processes, /proc and signals":
        ['proc.processes', 'proc.signals', 'host.processes'],
    'terminals': ['terminal.tiocsti', 'logs.escapes'],
    'addresses': ['network.metadata', 'network.link-local', 'network.gateway', 'network.loopback',
                  'network.host', 'network.api', 'network.neighbour', 'addresses.reuse'],
    'ARP and ND spoofing': ['frames.arp', 'frames.nd', 'frames.spoofed', 'host.neighbours',
                            'host.heard'],
    'proxy confusion': ['edge.confusion', 'edge.control', 'edge.framing', 'edge.key'],
    'clone uniqueness': ['clones.unique', 'clones.tokens'],
    'mount-target symlink races on volumes':
        ['volumes.target-far', 'volumes.target-above', 'volumes.target-up', 'volumes.target-proc',
         'volumes.target-self', 'volumes.target-changed', 'volumes.race-created',
         'volumes.race-resumed'],
    'setuid and file capabilities on volumes': ['volumes.set-user-id', 'volumes.capabilities'],
    'volumes from outside': ['volumes.links', 'volumes.strange'],
    'memory that is charged to nobody, budgets that all share':
        ['memory.queues', 'memory.datagrams', 'memory.protocols', 'memory.rings', 'memory.lists',
         'memory.socket-filters', 'memory.call-filters', 'memory.huge-pages', 'memory.cores'],
    "neighbours' disks and how busy they are": ['proc.others'],
    'archive and upload bombs': ['bombs.gzip', 'bombs.upload', 'bombs.archive',
                                 'archives.traversal'],
}
BOTH = ('fds.', 'files.chroot', 'mounts.', 'layers.', 'proc.', 'devices.', 'kernel.', 'foreign.',
        'namespaces.', 'neighbours.', 'network.', 'frames.', 'memory.')


# What this kernel or host may have nothing of; anything else is there, and must be refused.
MAY_BE_ABSENT = ('devices.', 'proc.uevent-helper', 'proc.binfmt-misc', 'proc.symbols', 'proc.sysrq',
                 'neighbours.queues', 'foreign.', 'network.link-local', 'terminal.console')


def attack(program, *options):
    """Its exit status and its document."""
    run = subprocess.run([program, 'doctor', '--attack', '--json', '--template-cache',
                          template_cache(), *options], capture_output=True, text=True, timeout=1200,
                         check=False)
    try:
        return run.returncode, json.loads(run.stdout)
    except json.JSONDecodeError:
        raise AssertionError(f'no document, status {run.returncode}: {run.stderr}') from None


class Attacked(unittest.TestCase):
    def check(self, status, answer, is_gvisor=False):
        bad = [a for a in answer['attempts'] if a['verdict'] in ('ESCAPED', 'inconclusive')]
        self.assertEqual(bad, [])
        self.assertEqual((status, answer['ESCAPED'], answer['inconclusive']), (0, 0, 0))
        self.assertEqual(len(answer['attempts']),
                         answer['refused'] + answer['contained'] + answer['absent'])
        self.check_races(answer, is_gvisor)
        made = {a['name'] for a in answer['attempts']}
        for item, names in PROMISED.items():
            self.assertLessEqual(set(names), made, item)
        for who in ('user', 'root'):
            names = {a['name'] for a in answer['attempts'] if a['as'] == who}
            for start in BOTH:
                self.assertTrue(any(name.startswith(start) for name in names), (who, start))
        for a in answer['attempts']:
            self.assertTrue(a['title'] and a['evidence'], a)

    def check_races(self, answer, may_lack_one):
        """That there was a race is seen by both ends of it. gVisor's kernel exchanges no names."""
        for name in ('volumes.race-created', 'volumes.race-resumed'):
            [row] = [a for a in answer['attempts'] if a['name'] == name]
            if may_lack_one and row['verdict'] == 'absent' and name.endswith('resumed'):
                continue
            mounted, refused, swaps = map(int, re.match(
                r'(\d+) mounted, (\d+) refused, in (\d+) exchanges: ', row['evidence']).groups())
            self.assertGreater(min(mounted, refused), 0, row)
            self.assertGreater(swaps, 1000 if name.endswith('created') else 64, row)
        [row] = [a for a in answer['attempts'] if a['name'] == 'addresses.reuse']
        self.assertRegex(row['evidence'], r'^10\.199\.0\.\d+ again after \d+ sandboxes: ')

    def check_absent(self, answer):
        """Only on a kernel that is the host's: gVisor's own has nothing of many things."""
        absent = [a for a in answer['attempts'] if a['verdict'] == 'absent' and
                  not a['name'].startswith(MAY_BE_ABSENT)]
        self.assertEqual(absent, [])

    def test_this_server(self):
        """With something to be reached at the metadata address, which the firewall must hide."""
        address = ['169.254.169.254/32', 'dev', 'lo']
        subprocess.run(['ip', 'address', 'add', *address], check=True)
        self.addCleanup(subprocess.run, ['ip', 'address', 'del', *address], check=True)
        status, answer = attack(PROGRAM)
        self.check(status, answer)
        self.check_absent(answer)
        self.assertFalse(answer['ownServer'])

    def test_a_link_local_address_of_the_host(self):
        """As every interface of an ordinary host has one: it is tried on the sandbox's own link."""
        pathlib.Path('/proc/sys/net/ipv6/conf/lo/disable_ipv6').write_text('0')
        address = ['fe80::a770:11/64', 'dev', 'lo']
        subprocess.run(['ip', 'address', 'add', *address], check=True)
        self.addCleanup(subprocess.run, ['ip', 'address', 'del', *address], check=True)
        status, answer = attack(PROGRAM, '--only', 'inside')
        self.assertEqual([a for a in answer['attempts'] if a['verdict'] in ('ESCAPED', 'inconclusive')], [])
        self.assertEqual(status, 0)

    @unittest.skipUnless(shutil.which('runsc'), 'runsc is not installed')
    def test_gvisor(self):
        status, answer = attack(PROGRAM, '--runtime', 'gvisor')
        self.check(status, answer, is_gvisor=True)
        kernels = [a for a in answer['attempts'] if 'of a kernel of its own' in a['evidence']]
        self.assertTrue(kernels and all(a['verdict'] == 'contained' for a in kernels), kernels)

    @unittest.skipUnless(RELEASE.exists(), 'there is no release build')
    def test_a_server_of_its_own(self):
        status, answer = attack(RELEASE, '--api-url', 'http://127.0.0.1:9')
        self.check(status, answer)
        self.check_absent(answer)
        self.assertTrue(answer['ownServer'])

    def test_nested(self):
        """What nested sandboxes may do is contained; what only they can try leads nowhere."""
        status, answer = attack(PROGRAM, '--nested', '--only', 'inside')
        self.assertEqual([a for a in answer['attempts'] if a['verdict'] in ('ESCAPED', 'inconclusive')], [])
        self.assertEqual(status, 0)
        inside = [a for a in answer['attempts'] if a['name'].startswith('nested.')]
        self.assertEqual(len(inside), 20)
        self.assertEqual({a['verdict'] for a in inside}, {'contained'})

    def test_one_way_alone(self):
        status, answer = attack(PROGRAM, '--only', 'edge')
        self.assertEqual(status, 0, answer)
        self.assertEqual({a['name'].split('.')[0] for a in answer['attempts']}, {'edge', 'host'})
        run = subprocess.run([PROGRAM, 'doctor', '--attack', '--only', 'nonsense'], check=False,
                             capture_output=True, text=True, timeout=30)
        self.assertEqual((run.returncode, 'nonsense' in run.stderr), (2, True), run.stderr)


class Left(unittest.TestCase):
    """After all of them."""

    def test_no_hostile_template_stays(self):
        self.assertEqual([path.name for path in template_cache().iterdir() if path.name.startswith('attack-')], [])
        self.assertEqual(list(pathlib.Path('/tmp').glob('atoll-attack-*/bait')), [])


# Where nothing stands in the way these must succeed: else they would not be seen in a sandbox.
SUCCEED_OUTSIDE = {
    'fds.inherited', 'files.secret', 'mounts.listed', 'mounts.paths', 'mounts.places',
    'mounts.uncover', 'mounts.remount', 'layers.redirect', 'proc.core-pattern', 'proc.switches',
    'proc.write-proc', 'proc.write-sys', 'proc.init-files', 'proc.init-trace',
    'proc.init-descriptors', 'proc.processes', 'proc.uid-map', 'proc.gid-map', 'proc.capabilities',
    'devices.kmsg', 'devices.mknod', 'devices.listed', 'devices.nodes', 'kernel.kexec', 'kernel.bpf',
    'kernel.mount', 'kernel.open-by-handle', 'kernel.clock', 'kernel.administration',
    'kernel.personality', 'namespaces.unshare', 'namespaces.clone', 'namespaces.clone3',
    'namespaces.setns', 'namespaces.overlay', 'namespaces.nftables', 'namespaces.own-nftables',
    'neighbours.abstract', 'neighbours.control', 'neighbours.listed', 'neighbours.memory',
    'network.metadata', 'network.loopback', 'network.host', 'network.neighbour', 'network.ping',
    'proc.signals', 'proc.others', 'memory.queues', 'memory.datagrams', 'memory.protocols', 'memory.rings',
    'memory.lists', 'memory.socket-filters', 'memory.call-filters', 'memory.huge-pages',
    'nested.proc', 'nested.uncover', 'nested.file-systems', 'nested.networks', 'nested.users', 'nested.sockets',
}


@contextlib.contextmanager
def canary(mark, home):
    """What atoll doctor has on its host, in small."""
    with socket.create_server(('0.0.0.0', 0)) as listener, socket.socket(socket.AF_UNIX) as abstract, \
            socket.socket(socket.AF_UNIX) as control:
        abstract.bind(f'\0atoll-host-{mark}')
        abstract.listen()
        control.bind(f'{home}/control')
        control.listen()

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    link, _ = listener.accept()
                    with link:
                        link.sendall(mark.encode())
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


class Outside(unittest.TestCase):
    """The probe where no sandbox is: many attempts must be seen to succeed."""

    def test_probes_can_fail(self):
        mark = 'outsidemarkabcdefghi'
        address = ['169.254.169.254/32', 'dev', 'lo']
        subprocess.run(['ip', 'address', 'add', *address], check=True)
        self.addCleanup(subprocess.run, ['ip', 'address', 'del', *address], check=True)
        subprocess.run([PROBE, '--serve', '--mark', mark], check=True)
        self.addCleanup(self.stop_neighbour, mark)
        with tempfile.TemporaryDirectory() as home, open(f'{home}/secret', 'w+') as secret, \
                canary(mark, home) as port:
            secret.write(mark)
            secret.flush()
            run = subprocess.run([PROBE, '--mark', mark, '--canary-port', str(port), '--host',
                                  '127.0.0.1', '--host', '169.254.169.254', '--neighbour', '127.0.0.1',
                                  '--secret', secret.name, '--path', '/dev/pts', '--host-pid',
                                  str(self.neighbour_pid(mark))], pass_fds=[secret.fileno()], text=True,
                                 capture_output=True, timeout=300, check=True)
        lines = [line.split('\t') for line in run.stdout.splitlines()]
        self.assertEqual(lines[-1], ['end', str(len(lines) - 1)])
        escaped = {line[0] for line in lines if line[1] == 'ESCAPED'}
        self.assertLessEqual(SUCCEED_OUTSIDE, escaped)
        self.assertGreater(len(lines), 90)

    def neighbour_pid(self, mark):
        """Its process, once it has the name."""
        for _ in range(1500):
            for comm in pathlib.Path('/proc').glob('[0-9]*/comm'):
                with contextlib.suppress(OSError):
                    if comm.read_text().strip() == mark[:12]:
                        return int(comm.parent.name)
            time.sleep(0.02)
        raise AssertionError('the neighbour did not start')

    def stop_neighbour(self, mark):
        os.kill(self.neighbour_pid(mark), signal.SIGKILL)
        for path in ('/tmp/atoll-probe-heard', f'/dev/shm/{mark}', f'/dev/mqueue/{mark}'):
            pathlib.Path(path).unlink(missing_ok=True)
        for line in pathlib.Path('/proc/sysvipc/shm').read_text().splitlines()[1:]:
            key, ident, *_ = line.split()
            if int(key) == mark_key(mark):
                subprocess.run(['ipcrm', '-m', ident], check=False)

    def test_a_list_without_attacking(self):
        run = subprocess.run([PROBE, '--list', '--family', 'kernel'], capture_output=True, text=True,
                             timeout=30, check=True)
        lines = run.stdout.splitlines()
        self.assertEqual(lines[-1], f'end\t{len(lines) - 1}')
        self.assertTrue(all(line.startswith('kernel.') for line in lines[:-1]))
        self.assertTrue(all('refused by E' in line for line in lines[:-1]))  # each names its errors
        self.assertEqual(subprocess.run([PROBE, '--nonsense'], stderr=subprocess.DEVNULL, timeout=30,
                                        check=False).returncode, 2)


def mark_key(mark):
    """As the probe makes it: FNV-1a, odd, as a signed number."""
    key = 2166136261
    for byte in mark.encode():
        key = ((key ^ byte) * 16777619) & 0xffffffff
    key |= 1
    return key - (1 << 32) if key >> 31 else key


def load_tests(_, standard, __):
    """Three servers' worth at once: most of it is waiting for answers that must not come."""
    return arrange(standard, lambda test: isinstance(test, Attacked), 3)


if __name__ == '__main__':
    unittest.main()
