"""What sandboxes can reach, against an internet of our own: rules by address. Every case looks from
both sides: what the program inside was told, and what arrived outside."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import time
import unittest

from harness import internet, kernel
from harness.faults import until
from harness.internet import ECHO, TICKER, Internet
from harness.sandbox import Sandbox
from harness.server import Server

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
ALL = '0.0.0.0/0'
ONE, TWO, THREE, FOUR = '198.51.100.10', '198.51.100.11', '203.0.113.5', '203.0.113.200'

# Inside the sandbox: tries an address and prints what came of it, in one word or the answer's first.
TRY = r'''
import socket, sys
kind, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == 'tcp' else socket.SOCK_DGRAM)
s.settimeout(float(sys.argv[4]) if len(sys.argv) > 4 else 15)
try:
    s.connect((address, port))
    s.send(b'hello\n')
    print(s.recv(100).split()[0].decode())
except TimeoutError:
    print('silence')
except OSError as e:
    print('refused' if e.errno in (104, 111, 113) else e)
'''

# A connection that stays: one line each time it is told, through a named pipe.
HOLD = r'''
import os, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20)
out = open('/tmp/held', 'w', buffering=1)
os.mkfifo('/tmp/pipe')
print('up', file=out)
while True:
    with open('/tmp/pipe') as pipe:
        pipe.read()
    try:
        s.send(b'hello\n')
        print(s.recv(100).split()[0].decode() or 'end', file=out)
    except OSError as e:
        print('silence' if isinstance(e, TimeoutError) else 'cut', file=out)
'''


# In the sandbox's network, as the host's root: a datagram with a source of one's choice; a claim to an
# address, to everybody on the link; a connection from it.
SPOOF = r'''
import socket, struct, sys
source, target = sys.argv[1:]
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
data = struct.pack('>HHHH', 5, 7, 12, 0) + b'evil'
head = struct.pack('>BBHHHBBH4s4s', 69, 0, 20 + len(data), 1, 0, 64, 17, 0, socket.inet_aton(source),
                   socket.inet_aton(target))
s.sendto(head + data, (target, 0))
print('sent')
'''
CLAIM = r'''
import socket, struct, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(('eth0', 0x806))
mac, address = s.getsockname()[4], socket.inet_aton(sys.argv[1])
for code in (1, 2):
    s.send(b'\xff' * 6 + mac + struct.pack('>HHHBBH', 0x806, 1, 0x800, 6, 4, code) + mac + address
           + b'\xff' * 6 + address)
print('sent')
'''
# Asks for the gateway in the name of thousands.
THOUSANDS = r'''
import socket, struct, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(('eth0', 0x806))
mac, gateway = s.getsockname()[4], socket.inet_aton(sys.argv[1])
for i in range(3000):
    s.send(b'\xff' * 6 + mac + struct.pack('>HHHBBH', 0x806, 1, 0x800, 6, 4, 1) + mac
           + struct.pack('>I', 0xcb000000 + i) + b'\0' * 6 + gateway)
print('sent')
'''
PIECES = r'''
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
mine, far = (socket.inet_aton(address) for address in sys.argv[1:])
for i in range(2000):  # the first piece of each, and no other
    s.sendto(struct.pack('>BBHHHBBH', 0x45, 0, 1020, i, 0x2000, 64, 17, 0) + mine + far + b'x' * 1000, (sys.argv[2], 0))
print('sent')
'''
FROM = r'''
import socket, sys
try:
    socket.create_connection((sys.argv[2], 7), 1.5, (sys.argv[1], 0))
    print('connected')
except TimeoutError:
    print('silence')
'''


class Box(Sandbox):
    """A sandbox that can be asked what it reaches."""

    def python(self, script, *arguments):
        self.run(f"cat >/tmp/script.py <<'END'\n{script}\nEND\n")
        result = self.run('python3 /tmp/script.py ' + ' '.join(map(str, arguments)))
        return result.text().strip() or result.stderr.decode()

    def reaches(self, address, port=ECHO, kind='tcp'):
        """The address that answered; 'refused'; or 'silence' after some seconds."""
        return self.python(TRY, kind, address, port)

    def put(self, **network):
        self.api('PUT', f'/sandboxes/{self.id}/network', network)

    def hold(self, address, port=ECHO):
        self.run(f"cat >/tmp/hold.py <<'END'\n{HOLD}\nEND\n"
                 f'setsid python3 /tmp/hold.py {address} {port} >/dev/null 2>&1 </dev/null &'
                 'for i in $(seq 1200); do grep -q up /tmp/held && break; sleep 0.05; done')

    def flood(self, address, port=ECHO):
        """Datagrams, as many as it can, until the end."""
        self.run('setsid python3 -c "\nimport socket\nwhile True:\n'
                 f'    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n'
                 f'    try: s.sendto(b\'x\', (\'{address}\', {port}))\n'
                 '    except OSError: pass\n" >/dev/null 2>&1 </dev/null & sleep 0.2')

    def poke(self):
        """What the held connection says to one more line."""
        return self.run('n=$(wc -l </tmp/held); echo >/tmp/pipe; for i in $(seq 1200); do '
                        '[ $(wc -l </tmp/held) -gt $n ] && break; sleep 0.05; done; '
                        'tail -1 /tmp/held').text().strip()


@unittest.skipUnless(internet.available(), 'needs a network namespace of its own')
class Network(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with contextlib.ExitStack() as stack:
            home = stack.enter_context(tempfile.TemporaryDirectory(prefix='atoll-network-'))
            pathlib.Path(home).chmod(0o755)
            cls.net = stack.enter_context(Internet())
            cls.server = Server(BUILD, home, '--pool', '2')
            stack.callback(cls.server.stop)
            cls.server.start()
            cls.closing = stack.pop_all()

    @classmethod
    def tearDownClass(cls):
        cls.closing.close()

    def setUp(self):
        self.net.seen()

    def box(self, **body):
        box = Box(env=self.server.env(), **body)
        self.addCleanup(self.gone, box)
        return box

    def gone(self, box):
        with contextlib.suppress(RuntimeError):  # some tests end it themselves
            box.kill()

    def arrived(self, address):
        return [one for one in self.net.seen() if one.get('address') == address]

    def table(self):
        return 'atoll_' + kernel.instance_of(self.server.data)

    def rules(self, *options):
        """This server's own table as nft shows it; nothing if there is none."""
        return subprocess.run(['nft', *options, 'list', 'table', 'inet', self.table()], capture_output=True,
                              text=True, check=False).stdout

    def elements(self, name):
        """Of this server's sets and maps whose names begin so."""
        found = [item.get('set') or item.get('map') for item in json.loads(self.rules('-j'))['nftables']
                 if 'set' in item or 'map' in item]
        return [element for one in found if one['name'].startswith(name) for element in one.get('elem', [])]

    # --- without rules ---

    def test_everything_public_is_reached_by_default(self):
        box = self.box()
        for address in (ONE, TWO, THREE, FOUR):
            self.assertEqual(box.reaches(address), address)
            self.assertEqual(box.reaches(address, kind='udp'), address)

    def test_what_is_private_is_refused_at_once_whatever_the_rules(self):
        neighbour = self.box()
        other = neighbour.run('hostname -I').text().split()[0]
        self.assertRegex(other, r'^10\.199\.')
        targets = ['10.1.2.3', '172.16.0.9', '192.168.1.1', '169.254.169.254', '100.64.0.1', '192.0.0.1',
                   '198.18.0.1', other, internet.NEAR, '10.199.0.1']
        for network in (None, {'allowOut': [ALL]}, {'allowOut': targets, 'denyOut': [ALL]}):
            box = self.box(network=network) if network else self.box()
            gateway = box.run("ip route show default | awk '{print $3}'").text().strip()
            for address in [*targets, gateway]:
                with self.subTest(network=network, address=address):
                    self.assertEqual(box.reaches(address, 22), 'refused')
            # The kernel sends few ICMP errors a second: these are as many as it never holds back.
            for address in ('10.1.2.3', '169.254.169.254', other, gateway):
                self.assertEqual(box.reaches(address, 9000, 'udp'), 'refused')

    def test_the_host_is_not_reached_by_any_of_its_addresses(self):
        box = self.box()
        port = self.server.port
        for address in (internet.NEAR, '10.199.0.1', '127.0.0.1'):
            self.assertEqual(box.reaches(address, port), 'refused')

    def test_the_servers_own_sockets_take_only_what_was_redirected(self):
        box = self.box()
        gateway = box.run("ip route show default | awk '{print $3}'").text().strip()
        for port in range(19900, 19906):
            for kind in ('tcp', 'udp'):
                self.assertEqual(box.reaches(gateway, port, kind), 'refused')
        for port in range(19900, 19906):  # and nothing of the host's own, or from elsewhere
            with self.subTest(port=port), self.assertRaises(OSError):
                with contextlib.closing(socket.create_connection(('127.0.0.1', port), 0.3)):
                    pass

    def test_no_ipv6(self):
        box = self.box()
        self.assertNotIn('inet6', box.run('ip -6 address show dev eth0 2>/dev/null').text())
        answer = box.run('timeout 3 bash -c "exec 3<>/dev/tcp/2001:db8::1/80" 2>&1')
        self.assertNotEqual(answer.exit_code, 0)

    # --- with more rights in its network than anybody inside has ---

    def inside(self, box, *command):
        """Runs a program of the host, as the host's root, in the sandbox's network."""
        state = (self.server.data / 'run' / box.id / 'state').read_text()
        pid = dict(line.split() for line in state.splitlines())['pid']
        return subprocess.run(['nsenter', f'--net=/proc/{pid}/ns/net', *command], capture_output=True,
                              text=True, timeout=20, check=False)

    def test_somebody_elses_source_address_does_not_get_out(self):
        box, other = self.box(), self.box()
        theirs, mine = (one.run('hostname -I').text().split()[0] for one in (other, box))
        gateway = box.run("ip route show default | awk '{print $3}'").text().strip()
        for source in ('203.0.113.77', theirs, gateway, internet.NEAR, '127.0.0.1', '10.199.3.3', mine):
            sent = self.inside(box, 'python3', '-c', SPOOF, source, THREE)
            self.assertEqual(sent.stdout, 'sent\n', sent.stderr)
            time.sleep(0.1)
            arrived, deadline = self.arrived(THREE), time.monotonic() + 30
            while source == mine and not arrived and time.monotonic() < deadline:
                time.sleep(0.1)
                arrived = self.arrived(THREE)
            self.assertEqual(len(arrived), 1 if source == mine else 0, source)

    def test_taking_a_neighbours_address_takes_nothing_from_it(self):
        box, other = self.box(), self.box()
        theirs = other.run('hostname -I').text().split()[0]
        self.inside(box, 'ip', 'address', 'add', f'{theirs}/32', 'dev', 'eth0')
        for _ in range(3):  # says that the address is here, to whoever listens
            self.assertEqual(self.inside(box, 'python3', '-c', CLAIM, theirs).stdout, 'sent\n')
        self.assertEqual(other.reaches(ONE), ONE)
        tried = self.inside(box, 'python3', '-c', FROM, theirs, ONE)
        self.assertEqual(tried.stdout, 'silence\n', tried.stderr)

    def test_lies_by_arp_do_not_fill_the_hosts_table_of_neighbours(self):
        box = self.box()
        gateway = box.run("ip route show default | awk '{print $3}'").text().strip()
        box.write('/tmp/thousands.py', THOUSANDS.encode())
        self.assertEqual(box.run(f'python3 /tmp/thousands.py {gateway}', 'root').text(), 'sent\n')
        known = subprocess.run(['ip', 'neighbour', 'show', 'nud', 'all'], capture_output=True, text=True, check=True)
        self.assertNotIn('203.0.', known.stdout)
        self.assertEqual(box.reaches(ONE), ONE)

    def test_pieces_of_packets_do_not_fill_the_hosts_place_for_them(self):
        box = self.box()
        box.write('/tmp/pieces.py', PIECES.encode())
        sent = box.run(f'python3 /tmp/pieces.py $(hostname -I) {ONE}', 'root')
        self.assertEqual(sent.text(), 'sent\n', sent)
        self.assertIn('FRAG: inuse 0 memory 0\n', pathlib.Path('/proc/net/sockstat').read_text())
        self.assertEqual(box.reaches(ONE, kind='udp'), ONE)

    def test_no_ipv6_even_for_root_in_its_network(self):
        box = self.box(network={'denyOut': [ALL]})
        name = f'atoll{(int(box.run("hostname -I").text().split()[0].split(".")[3]) - 1) // 2}'
        subprocess.run(['sysctl', '-qw', f'net.ipv6.conf.{name}.disable_ipv6=0'], check=False)
        subprocess.run(['ip', 'link', 'set', name, 'arp', 'on'], check=True)  # or it would not find its way back
        subprocess.run(['ip', '-6', 'address', 'add', 'fd00::1/64', 'dev', name, 'nodad'], check=True)
        self.inside(box, 'ip', '-6', 'address', 'add', 'fd00::2/64', 'dev', 'eth0', 'nodad')
        with contextlib.closing(socket.create_server(('::', 0), family=socket.AF_INET6)) as listener:
            tried = self.inside(box, 'python3', '-c', 'import socket, sys\n'
                                f'socket.create_connection(("fd00::1", {listener.getsockname()[1]}), 1)')
        self.assertIn('timed out', tried.stderr)

    # --- rules by address ---

    def test_denied_ranges_are_refused_and_the_rest_is_not(self):
        box = self.box(network={'denyOut': ['203.0.113.0/25', TWO]})
        for kind in ('tcp', 'udp'):
            self.assertEqual(box.reaches(ONE, kind=kind), ONE)
            self.assertEqual(box.reaches(TWO, kind=kind), 'refused')
            self.assertEqual(box.reaches(THREE, kind=kind), 'refused')
            self.assertEqual(box.reaches(FOUR, kind=kind), FOUR)
        self.assertEqual([one for one in self.net.seen() if one['address'] in (TWO, THREE)], [])

    def test_allowing_goes_before_denying(self):
        box = self.box(network={'denyOut': ['203.0.113.0/24', '198.51.100.8/29'],
                                'allowOut': [THREE, '198.51.100.11/32']})
        self.assertEqual([box.reaches(address) for address in (ONE, TWO, THREE, FOUR)],
                         ['refused', TWO, THREE, 'refused'])

    def test_deny_all_but(self):
        box = self.box(network={'denyOut': [ALL], 'allowOut': ['203.0.113.128/25']})
        self.assertEqual([box.reaches(address) for address in (ONE, TWO, THREE, FOUR)],
                         ['refused', 'refused', 'refused', FOUR])

    def test_no_internet(self):
        for body in ({'allow_internet_access': False}, {'network': {'denyOut': [ALL]}}):
            box = self.box(**body)
            self.assertEqual(box.reaches(ONE), 'refused')
            self.assertEqual(box.reaches(ONE, 443, 'udp'), 'refused')
            self.assertNotEqual(box.run(f'ping -c1 -W1 {ONE}').exit_code, 0)
        box = self.box(allow_internet_access=False, network={'allowOut': [TWO]})
        self.assertEqual([box.reaches(address) for address in (ONE, TWO)], ['refused', TWO])

    def test_a_thousand_ranges(self):
        ranges = [f'{a}.{b}.0.0/16' for a in range(20, 28) for b in range(0, 256, 2)][:1000]
        box = self.box(network={'denyOut': [*ranges, FOUR], 'allowOut': [THREE]})
        self.assertEqual([box.reaches(address) for address in (ONE, THREE, FOUR, '21.4.1.1')],
                         [ONE, THREE, 'refused', 'refused'])

    def test_ranges_of_every_length(self):
        box = self.box()
        address = int.from_bytes(socket.inet_aton(FOUR), 'big')
        for bits in range(2, 33):  # with one, what is beside it is no range that may be given
            first = address >> (32 - bits) << (32 - bits)
            beside = socket.inet_ntoa((first ^ 1 << (32 - bits)).to_bytes(4, 'big'))
            one, other = f'{socket.inet_ntoa(first.to_bytes(4, "big"))}/{bits}', f'{beside}/{bits}'
            with self.subTest(bits=bits):
                box.put(denyOut=[one])
                self.assertEqual(box.reaches(FOUR), 'refused')
                box.put(denyOut=[other])
                self.assertEqual(box.reaches(FOUR), FOUR)
                box.put(denyOut=[ALL], allowOut=[one])
                self.assertEqual(box.reaches(FOUR), FOUR)
                box.put(denyOut=[ALL], allowOut=[other])
                self.assertEqual(box.reaches(FOUR), 'refused')

    # --- changing them ---

    def test_a_rule_put_later_cuts_what_is_open(self):
        box = self.box()
        box.hold(ONE)
        self.assertEqual(box.poke(), ONE)
        box.put(denyOut=[ALL])
        self.assertEqual(box.poke(), 'cut')
        self.assertEqual(box.reaches(ONE), 'refused')
        box.put()
        self.assertEqual(box.reaches(ONE), ONE)

    def test_what_only_listens_is_cut_as_well(self):
        box = self.box()
        box.run(f'setsid bash -c "cat </dev/tcp/{THREE}/{TICKER} >/tmp/ticks" >/dev/null 2>&1 </dev/null &'
                'for i in $(seq 600); do [ $(cat /tmp/ticks | wc -l) -gt 3 ] && break; sleep 0.05; done')
        self.assertGreater(int(box.run('wc -l </tmp/ticks').text()), 3)
        box.put(denyOut=[THREE])
        box.run('for i in $(seq 600); do pgrep -f dev/tc[p] || break; sleep 0.05; done')  # it notices
        before = box.run('wc -l </tmp/ticks').text()
        time.sleep(0.5)
        self.assertEqual(box.run('wc -l </tmp/ticks; pgrep -f dev/tc[p]').text(), before)

    def ticks(self, box, address):
        return int(box.run(f'wc -c </tmp/ticks-{address}').text())

    def follow(self, box, address):
        """One datagram there, and from then on it only listens."""
        box.run(f"""rm -f /tmp/ticks-{address}; setsid python3 -c "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(b'x', ('{address}', {TICKER}))
out = open('/tmp/ticks-{address}', 'wb', 0)
while True:
    s.recv(100)
    out.write(b'.')
" >/dev/null 2>&1 </dev/null &
for i in $(seq 600); do [ $(cat /tmp/ticks-{address} 2>/dev/null | wc -c) -gt 3 ] && break; sleep 0.05; done""")
        self.assertGreater(self.ticks(box, address), 3)

    def stands_still(self, box, address):
        before = self.ticks(box, address)
        time.sleep(0.5)  # ten of them
        return self.ticks(box, address) == before

    def goes_on(self, box, address):
        before = self.ticks(box, address)
        return until(lambda: self.ticks(box, address) > before + 3, 60)

    def test_who_sends_datagrams_is_cut_as_well(self):
        """The kernel takes them for answers as long as they come."""
        box, other = self.box(), self.box()
        for one, address in ((box, THREE), (box, ONE), (other, THREE)):
            self.follow(one, address)
        box.put(denyOut=[THREE])
        self.assertTrue(until(lambda: self.stands_still(box, THREE), 30))
        self.assertTrue(self.goes_on(box, ONE))  # what is allowed was not forgotten
        self.assertTrue(self.goes_on(other, THREE))
        box.put()
        self.assertTrue(self.stands_still(box, THREE))  # until somebody inside speaks to it
        self.follow(box, THREE)
        box.put(allowOut=[ONE], denyOut=[ALL])
        self.assertTrue(until(lambda: self.stands_still(box, THREE), 30))
        self.assertTrue(self.goes_on(box, ONE))

    def test_datagrams_are_cut_by_the_next_warden_if_the_last_did_not_come_to_it(self):
        box = self.box()
        self.follow(box, THREE)
        self.server.stop()
        self.server.environment['ATOLL_CRASH_AT'] = 'warden.policy.laid'
        self.server.start()
        self.follow(box, THREE)
        with contextlib.suppress(OSError, http.client.HTTPException, RuntimeError):
            box.put(denyOut=[THREE])
        self.server.kill()
        self.server.environment['ATOLL_CRASH_AT'] = ''
        self.server.start()
        box.put(denyOut=[THREE])  # the same: nothing changes
        self.assertTrue(until(lambda: self.stands_still(box, THREE), 30))

    def test_every_kind_of_rule_follows_every_other(self):
        kinds = [({}, [ONE, THREE]), ({'denyOut': [ALL]}, ['refused', 'refused']),
                 ({'denyOut': [THREE]}, [ONE, 'refused']),
                 ({'denyOut': [ALL], 'allowOut': [THREE]}, ['refused', THREE])]
        box = self.box()
        for first in range(len(kinds)):
            for second in range(len(kinds)):
                for network, expected in (kinds[first], kinds[second]):
                    box.put(**network)
                    self.assertEqual([box.reaches(ONE), box.reaches(THREE)], expected)

    def test_a_wrong_rule_changes_nothing(self):
        box = self.box(network={'denyOut': [ONE]})
        with self.assertRaisesRegex(RuntimeError, '400'):
            box.put(denyOut=['not an address'])
        self.assertEqual([box.reaches(ONE), box.reaches(TWO)], ['refused', TWO])

    def test_rules_of_one_are_not_anothers(self):
        closed, free = self.box(network={'denyOut': [ALL]}), self.box()
        self.assertEqual((closed.reaches(ONE), free.reaches(ONE)), ('refused', ONE))
        closed.kill()
        self.assertEqual(free.reaches(ONE), ONE)

    def test_one_sandbox_does_not_fill_the_hosts_table_of_connections(self):
        count = pathlib.Path('/proc/sys/net/netfilter/nf_conntrack_count')
        box, before = self.box(), int(count.read_text())
        box.python('import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n'
                   f'for port in range(1000, 11000):\n    s.sendto(b"x", ("{THREE}", port))\n')
        kept = int(count.read_text()) - before
        self.assertGreater(kept, 3000)  # it did try
        self.assertLess(kept, 4400)
        self.assertEqual(self.box().reaches(ONE), ONE)

    def test_what_was_refused_is_counted_and_some_of_it_is_told(self):
        box = self.box(network={'denyOut': [FOUR]})
        began = time.monotonic()
        self.assertEqual(box.run(f'for i in $(seq 30); do (echo >/dev/tcp/{FOUR}/4242) && exit 9; done; '
                                 'exit 1').exit_code, 1)
        deadline = time.monotonic() + 60
        told = []
        while not told and time.monotonic() < deadline:
            time.sleep(0.1)
            told = [line for line in self.server.log.read_text().splitlines()
                    if 'egress.denied' in line and box.id in line]
        self.assertRegex(told[0], rf'target={FOUR} port=4242')
        time.sleep(0.5)
        lines, seconds = self.server.log.read_text(), time.monotonic() - began
        self.assertLess(lines.count(f'target={FOUR} port=4242'), 10 + 2 * seconds)  # a few, and then two a second
        counted = re.findall(r'counter packets (\d+)', self.rules())
        self.assertGreaterEqual(max(map(int, counted)), 30)
        deadline = time.monotonic() + 60
        while (shown := box.api('GET', f'/sandboxes/{box.id}')['networkDenied'])['packets'] < 30:
            self.assertLess(time.monotonic(), deadline, shown)
            time.sleep(0.3)

    # --- they last ---

    def check_closed_but_three(self, box):
        self.assertEqual([box.reaches(ONE), box.reaches(THREE)], ['refused', THREE])

    def closed_but_three(self):
        return self.box(network={'denyOut': [ALL], 'allowOut': [THREE]})

    def test_pausing_and_resuming_keep_them(self):
        for how in ({}, {'memory': False}):
            box = self.closed_but_three()
            box.api('POST', f'/sandboxes/{box.id}/pause', how)
            box.api('POST', f'/sandboxes/{box.id}/connect', {'timeout': 300})
            self.check_closed_but_three(box)

    def test_forks_have_them(self):
        box = self.closed_but_three()
        for made in box.api('POST', f'/sandboxes/{box.id}/fork', {'count': 2}):
            made = made.get('sandbox', made)
            fork = Box.__new__(Box)
            fork.env, fork.made, fork.id = box.env, made, made['sandboxID']
            self.addCleanup(self.gone, fork)
            self.check_closed_but_three(fork)

    def test_restarts_and_crashes_keep_them(self):
        made, put = self.closed_but_three(), self.box()
        put.put(denyOut=[ALL], allowOut=[THREE])
        shut = self.box(allow_internet_access=False)
        made.hold(THREE)
        self.server.stop()
        self.assertEqual(len(self.elements('ranges')), 2)  # what they may reach
        self.server.start()
        self.assertEqual(made.poke(), THREE)
        for how in (self.server.stop, self.server.kill):
            how()
            self.server.start()
            for box in (made, put):
                self.check_closed_but_three(box)
            self.assertEqual(shut.reaches(THREE), 'refused')
        put.put()
        self.assertEqual(put.reaches(ONE), ONE)

    def test_there_is_no_moment_without_them(self):
        """While the server restarts, a sandbox that tries all the time never gets out."""
        box = self.closed_but_three()
        box.flood(ONE)
        for how in (self.server.stop, self.server.kill):
            how()
            self.server.start()
        time.sleep(0.3)
        self.assertEqual(self.arrived(ONE), [])

    def test_no_packet_slips_through_while_rules_are_replaced(self):
        """Every packet meets the rules of before or those of after, never neither."""
        box, other = self.closed_but_three(), self.box()
        box.flood(ONE)
        for i in range(200):
            box.put(denyOut=[ALL], allowOut=[THREE, FOUR] if i % 2 else [TWO])
        many = [f'{a}.{b}.0.0/16' for a in range(20, 28) for b in range(0, 256, 2)][:1020]
        for i in range(10):  # of so many that they are laid in pieces
            box.put(denyOut=[*many[i:], '198.51.100.0/25' if i % 2 else ONE], allowOut=[THREE])
        box.put(denyOut=[ALL], allowOut=[THREE])
        for _ in range(10):  # the whole table, and the one that all servers share
            self.flush_one(self.table())
            other.put(denyOut=[ALL])
            other.put()
        time.sleep(0.3)
        self.assertEqual(self.arrived(ONE), [])
        self.assertEqual(box.reaches(THREE), THREE)

    def flush_one(self, table):
        subprocess.run(['nft', 'delete', 'table', 'inet', table], check=True)

    def test_a_server_that_is_gone_is_not_in_anothers_way(self):
        """Its sandboxes live on behind its table, and its ports are the next one's."""
        self.box()
        with tempfile.TemporaryDirectory(prefix='atoll-network-') as home:
            pathlib.Path(home).chmod(0o755)
            other = Server(BUILD, home, '--pool', '0', '--stop-sandboxes')
            self.server.stop()
            try:
                with other:
                    box = Box(env=other.env(), allow_internet_access=False)
                    asked = box.run('s=$(date +%s%N); getent hosts example.com; c=$?; '
                                    'echo $((($(date +%s%N) - s) / 1000000)); exit $c')
                    self.assertEqual(asked.exit_code, 2)
                    self.assertLess(int(asked.text()), 4500)  # an answer, no silence: who hears none waits for five
            finally:
                self.server.start()

    def flush(self):
        """As `nft flush ruleset` does, but for other servers' tables."""
        for name in ('atoll', self.table()):
            self.flush_one(name)

    def test_flushed_rules_come_back(self):
        box = self.closed_but_three()
        self.flush()
        deadline = time.monotonic() + 60
        while not self.rules() and time.monotonic() < deadline:
            time.sleep(0.2)
        self.check_closed_but_three(box)
        self.flush()
        box.put(denyOut=[ALL])  # which finds that there is no table
        self.assertEqual(box.reaches(THREE), 'refused')

    def test_counting_goes_on_after_a_moment_without_a_table(self):
        box = self.box(network={'denyOut': [FOUR]})
        until = time.monotonic() + 6  # longer than from one count to the next
        while time.monotonic() < until:
            if self.rules():
                self.flush_one(self.table())
            time.sleep(0.05)
        deadline = time.monotonic() + 60
        while box.api('GET', f'/sandboxes/{box.id}')['networkDenied']['packets'] == 0:
            self.assertLess(time.monotonic(), deadline)
            box.run(f'echo >/dev/tcp/{FOUR}/4343')
            time.sleep(0.2)

    def test_nothing_of_them_is_left(self):
        boxes = [self.closed_but_three(), self.box(allow_internet_access=False),
                 self.box(network={'denyOut': [ONE]})]
        for box in boxes:
            box.kill()
        deadline = time.monotonic() + 60
        while self.elements('ranges') and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual(self.elements('ranges'), [])
        self.assertEqual(self.elements('proxied'), [])
        # Of those that nobody has taken yet: open ones.
        self.assertEqual({value['concat'][1] & 3 for _, value in self.elements('reach')} - {0}, set())

    def test_what_was_changed_while_nobody_looked_is_put_right(self):
        """A next server takes the table over, and lays anew just what is not as it should be."""
        box, many, free = self.closed_but_three(), self.box(), self.box()
        ranges = [f'{a}.{b}.0.0/16' for a in range(20, 28) for b in range(0, 256, 2)]
        many.put(denyOut=[*ranges[:1000], ONE])
        gone = '0x0fe00022 . 1.2.3.4'
        for change in (('flush', 'map', 'reach'), ('flush', 'set', 'mine'), ('delete',),
                       *[('flush', 'set', f'ranges{i}') for i in range(16)],
                       ('flush', 'chain', 'through'), ('flush', 'chain', 'refuse'),
                       ('add element', 'ranges14', '{ ' + gone + ' }')):
            self.server.kill()
            if change == ('delete',):
                self.flush_one(self.table())
            else:
                verb, *rest = change
                subprocess.run(['nft', ' '.join([verb, {'flush': rest[0]}.get(verb, ''), 'inet', self.table(),
                                                 *(rest[1:] if verb == 'flush' else rest)])], check=True)
            self.server.start()
            with self.subTest(change=change):
                self.check_closed_but_three(box)
                self.assertEqual([many.reaches(address) for address in (ONE, THREE, '21.4.1.1')],
                                 ['refused', THREE, 'refused'])
                self.assertEqual(free.reaches(ONE), ONE)
                self.assertEqual(len(self.elements('ranges')), 1 + 1002)


if __name__ == '__main__':
    unittest.main()
