"""A freed address is used again: nothing that was meant for the sandbox before comes to the one that has
it now, and nothing that the one before might do works for it. On a network so small that addresses soon
come back, against an internet of our own that goes on sending."""
import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest

from harness import internet
from harness.internet import ECHO, Internet
from harness.server import Server
from test_network import ALL, ONE, TWO, Box

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
LATE = 9999

# In the far network: whoever has asked once is answered for as long as this runs.
SENDER = r'''
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], int(sys.argv[2])))
s.settimeout(0.02)
peers = set()
print('up', flush=True)
while True:
    try:
        peers.add(s.recvfrom(100)[1])
    except TimeoutError:
        pass
    for peer in peers:
        s.sendto(b'a secret of the first', peer)
'''
# Inside: asks once from a fixed port, and goes on holding it.
ASK = r'''
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('0.0.0.0', 5555))
for port in (int(sys.argv[2]), 7):
    s.sendto(b'hello', (sys.argv[1], port))
s.settimeout(float(sys.argv[3]))
said = b''
while b'secret' not in said:
    said = s.recv(100)
print(said.decode(), flush=True)
'''
# Inside, as root: all that arrives on the wire in a second; or, if told how many must, until they did.
SNIFF = r'''
import socket, sys, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x800))
s.settimeout(0.1)
want = int(sys.argv[1]) if len(sys.argv) > 1 else 0
until, seen = time.monotonic() + (30 if want else 1), 0
while time.monotonic() < until and (not want or seen < want):
    try:
        data, who = s.recvfrom(2000)
        seen += who[2] != 4 and b'a secret of the first' in data
    except TimeoutError:
        pass
print(seen)
'''


@unittest.skipUnless(internet.available(), 'needs a network namespace of its own')
class Reuse(unittest.TestCase):
    def setUp(self):
        with contextlib.ExitStack() as stack:
            home = stack.enter_context(tempfile.TemporaryDirectory(prefix='atoll-reuse-'))
            pathlib.Path(home).chmod(0o755)
            self.net = stack.enter_context(Internet())
            self.server = Server(BUILD, home, '--pool', '1', '--network', '10.77.0.0/26', '--stop-sandboxes')
            stack.callback(self.server.stop)
            self.server.start()
            self.addCleanup(stack.pop_all().close)

    def sender(self):
        process = subprocess.Popen(['nsenter', f'--net=/proc/{self.net.process.pid}/ns/net', sys.executable, '-c',
                                    SENDER, ONE, str(LATE)], stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), 'up\n')

    def box(self, **more):
        box = Box(env=self.server.env(), **more)
        box.address = box.run('hostname -I').text().strip()
        return box

    def python(self, box, script, *arguments):
        box.run(f"cat >/tmp/script.py <<'END'\n{script}\nEND\n")
        result = box.run('python3 /tmp/script.py ' + ' '.join(map(str, arguments)), 'root')
        return result.text().strip() or result.stderr.decode()

    def again(self, address, **more):
        """The next sandbox that has the address."""
        for _ in range(80):
            box = self.box(**more)
            if box.address == address:
                return box
            box.kill()
        number = int(address.split('.')[-1]) // 2
        if f'atoll{number}' in [name for _, name in socket.if_nameindex()]:
            self.skipTest(f'another server of this host has taken number {number} meanwhile')
        self.fail(f'{address} did not come back')

    def test_what_is_still_sent_to_the_one_before_does_not_arrive(self):
        self.sender()
        old = self.box()
        self.assertEqual(self.python(old, ASK, ONE, LATE, 30), 'a secret of the first')
        self.assertGreater(int(self.python(old, SNIFF, 6)), 5)  # it would be seen
        old.kill()
        self.assertEqual(self.python(self.again(old.address), SNIFF), '0')

    def test_also_when_the_warden_that_knew_has_ended(self):
        self.sender()
        old = self.box()
        self.assertEqual(self.python(old, ASK, ONE, LATE, 30), 'a secret of the first')
        self.server.stop()  # and with it the sandbox
        self.server.start()
        self.assertEqual(self.python(self.again(old.address), SNIFF), '0')

    def test_what_the_one_before_might_do_is_denied(self):
        self.sender()
        old = self.box()
        self.assertEqual(self.python(old, ASK, ONE, LATE, 30), 'a secret of the first')
        self.assertEqual(old.reaches(TWO), TWO)
        old.kill()
        self.net.seen()
        new = self.again(old.address, network={'denyOut': [ALL]})
        self.assertEqual(new.reaches(TWO), 'refused')
        self.assertNotIn('secret', self.python(new, ASK, ONE, LATE, 2).splitlines()[-1])  # from the same port, to where the other was known
        self.assertEqual([one for one in self.net.seen() if one['kind'] in ('udp', 'tcp')], [])

    def test_its_name_and_token_are_worth_nothing(self):
        old = self.box()
        old.kill()
        new = self.again(old.address)
        for box, token, status in ((old, old, 404), (new, old, 401), (new, new, 200)):
            link = new.connection()
            with contextlib.closing(link):
                link.request('GET', '/metrics', headers={
                    'E2b-Sandbox-Id': box.id, 'E2b-Sandbox-Port': '49983',
                    'X-Access-Token': token.made['envdAccessToken']})
                answer = link.getresponse()
                answer.read()
                self.assertIn(answer.status, (status, 502) if status == 404 else (status,))


if __name__ == '__main__':
    unittest.main()
