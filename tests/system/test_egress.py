"""What sandboxes can reach by name, against an internet of our own. The matrix at the end tries every
way round a policy that we know of, under every kind of policy, and looks at what arrived outside."""
import contextlib
import os
import pathlib
import re
import sqlite3
import tempfile
import time
import unittest
import unittest.mock
import uuid

from harness import internet
from harness.certificates import Authority
from harness.internet import ECHO, Internet
from harness.server import Server
from test_network import ALL, BUILD, ONE, TWO, THREE, Box
from test_plane import Api

ZONE = {
    'allowed.example': [ONE], 'www.allowed.example': [TWO], 'other.example': [TWO],
    'a.wild.example': [THREE], 'b.c.wild.example': [THREE], 'wild.example': [TWO],
    'private.wild.example': ['10.0.0.1'], 'half.wild.example': ['10.0.0.1', ONE],
    'host.wild.example': [internet.NEAR], 'gone.wild.example': ['198.51.100.99', ONE],
    'dns.example': [TWO],
}
CERTIFIED = ['allowed.example', 'other.example', 'a.wild.example']
BY_NAME = {'denyOut': [ALL], 'allowOut': ['allowed.example', '*.wild.example']}

# Inside the sandbox: the ways to speak, and every way round that we know of.
SCRIPT = pathlib.Path(__file__).with_name('evade.py').read_text()


@unittest.skipUnless(internet.available(), 'needs a network namespace of its own')
class Case(unittest.TestCase):
    """A server, an internet behind it, and sandboxes that know the ways round."""
    before = []  # words in front of the server's command

    @classmethod
    def options(cls, _home):
        return []

    @classmethod
    def setUpClass(cls):
        with contextlib.ExitStack() as stack:
            home = stack.enter_context(tempfile.TemporaryDirectory(prefix='atoll-egress-'))
            pathlib.Path(home).chmod(0o755)
            cls.authority = Authority(home)
            # Whom the server trusts is whom the host does, and the host may be told otherwise.
            stack.enter_context(unittest.mock.patch.dict(os.environ, SSL_CERT_FILE=str(cls.authority.path)))
            cls.net = stack.enter_context(Internet(ZONE, cls.authority, CERTIFIED, home))
            cls.server = Server(BUILD, home, '--pool', '2', '--dns-server', f'{internet.FAR}:53',
                                *cls.options(home))
            cls.server.before = cls.before
            stack.callback(cls.server.stop)
            cls.server.start()
            cls.closing = stack.pop_all()

    @classmethod
    def tearDownClass(cls):
        cls.closing.close()
        findings = cls.server.sanitizer_findings()
        if findings:
            raise AssertionError(findings)

    def setUp(self):
        self.net.seen()

    def box(self, env=None, **body):
        box = Box(env=env or self.server.env(), **body)
        self.addCleanup(self.gone, box)
        box.run(f"cat >/tmp/evade.py <<'END'\n{SCRIPT}\nEND\ncat >/tmp/ca.pem <<'END'\n"
                f'{self.authority.path.read_text()}END\n')
        return box

    def gone(self, box):
        with contextlib.suppress(RuntimeError):
            box.kill()

    def named(self, **more):
        return self.box(network={**BY_NAME, **more})

    def evade(self, box, what, *arguments):
        """What the program inside was told, in one line."""
        return box.run(f'timeout 60 python3 /tmp/evade.py {what} ' + ' '.join(arguments)).text().strip()

    def held(self, box, file, *arguments):
        """Begins a connection that writes into this file what becomes of it."""
        box.run(f"setsid python3 /tmp/evade.py hold {' '.join(arguments)} >/tmp/{file} 2>&1 </dev/null & "
                f'for i in $(seq 1200); do grep -q up /tmp/{file} && break; sleep 0.05; done')

    def becomes(self, box, files, words):
        """What the held connections have come to: it is written when they notice."""
        deadline = time.monotonic() + 30
        while (seen := box.run(f'cat {files}').text().split()) != words and time.monotonic() < deadline:
            time.sleep(0.2)
        self.assertEqual(seen, words)

    def curl(self, box, url, *options):
        result = box.run(f"curl -sS --cacert /tmp/ca.pem -m 30 {' '.join(options)} '{url}' 2>&1")
        return result.text()

    def seen(self, kind):
        return [one for one in self.net.seen() if one['kind'] == kind]


class Teams(Case):
    """Two of them, and a server that has little to give: 256 connections at once."""
    before = ['prlimit', '--nofile=2048:2048']

    @classmethod
    def options(cls, home):
        token = pathlib.Path(home) / 'token'
        token.write_text('the-operators-own-token\n')
        return ['--admin-token-file', token]

    def other_team(self):
        """The environment of somebody else."""
        team = str(uuid.uuid4())
        self.server.stop()
        [base] = (self.server.data / 'state').glob('*.db')
        with contextlib.closing(sqlite3.connect(base)) as link, link:
            link.execute('INSERT INTO teams (id, name, created_us) VALUES (?, ?, 1)', (team, 'others'))
        self.server.start()
        admin = Api(self.server.env(), **{'X-Admin-Token': 'the-operators-own-token'})
        key = admin.ok('POST', f'/admin/teams/{team}/api-keys', {'name': 'theirs'})['key']
        return {**self.server.env(), 'E2B_API_KEY': key}

    def hoard(self, box):
        box.run('setsid python3 /tmp/evade.py hoard allowed.example >/tmp/n 2>&1 </dev/null & '
                'for i in $(seq 1100); do [ -s /tmp/n ] && break; sleep 0.1; done')
        return int(box.run('cat /tmp/n').text())

    def test_a_team_of_many_leaves_another_its_own(self):
        other = self.box(env=self.other_team(), network=BY_NAME)
        held = [self.hoard(self.named()) for _ in range(4)]
        self.assertGreater(sum(held), 150, held)
        self.assertLessEqual(sum(held), 192, held)
        self.assertIn(ONE, self.curl(other, 'https://allowed.example/'))
        self.assertGreaterEqual(self.hoard(other), 30)


class Egress(Case):
    # --- names ---

    def test_names_are_answered_for_everybody(self):
        box = self.box()
        self.assertEqual(self.evade(box, 'resolve', 'allowed.example'), ONE)
        self.assertEqual(self.evade(box, 'resolve', 'missing.example'), 'no such name')
        self.assertEqual(self.evade(box, 'resolve', 'half.wild.example'), ONE)
        self.assertEqual(self.evade(box, 'resolve', 'private.wild.example'), 'no such name')
        self.assertEqual(self.curl(box, 'http://allowed.example/').count(ONE), 1)

    def test_the_resolver_is_ours_whichever_is_asked(self):
        box = self.box()
        for server in ('10.199.0.1', '8.8.8.8', TWO):
            for kind in ('udp', 'tcp'):
                with self.subTest(server=server, kind=kind):
                    self.assertEqual(self.evade(box, f'ask_{kind}', server, 'other.example', '1'), TWO)
        self.assertEqual(self.evade(box, 'ask_udp', '10.199.0.1', 'other.example', '28'), 'empty')
        self.assertEqual(self.evade(box, 'ask_udp', '10.199.0.1', 'other.example', '65'), 'empty')
        self.assertEqual(self.evade(box, 'ask_udp', '10.199.0.1', 'other.example', '255'), 'rcode 5')

    def test_only_allowed_names_are_asked_for(self):
        box = self.named()
        self.assertEqual(self.evade(box, 'resolve', 'allowed.example'), ONE)
        self.assertEqual(self.evade(box, 'resolve', 'a.wild.example'), THREE)
        for name in ('other.example', 'www.allowed.example', 'wild.example', 'a-secret.tunnel.example'):
            self.assertEqual(self.evade(box, 'resolve', name), 'no such name')  # and not after silence
        self.assertEqual({one['name'] for one in self.seen('dns')}, {'allowed.example', 'a.wild.example'})

    def test_without_internet_nothing_is_asked_for(self):
        for network in ({'denyOut': [ALL]}, {'denyOut': [ALL], 'allowOut': [ONE]}):
            box = self.box(network=network)
            self.assertEqual(self.evade(box, 'resolve', 'allowed.example'), 'no such name')
        self.assertEqual(self.seen('dns'), [])

    # --- connections ---

    def test_allowed_names_are_reached_by_http_and_by_tls(self):
        box = self.named()
        self.assertIn(ONE, self.curl(box, 'http://allowed.example/one?two'))
        self.assertIn(ONE, self.curl(box, 'https://allowed.example/'))
        self.assertIn(THREE, self.curl(box, 'http://a.wild.example:8080/', '-X', 'POST', '-d', 'body'))
        seen = self.seen('http')
        self.assertEqual([(one['address'], one['path'], one['host']) for one in seen],
                         [(ONE, '/one?two', 'allowed.example'), (ONE, '/', 'allowed.example'),
                          (THREE, '/', 'a.wild.example:8080')])
        self.assertEqual(seen[2]['body'], 'body')
        self.assertEqual(seen[1]['tls'], 'allowed.example')

    def test_what_is_blocked_says_so(self):
        box = self.named()
        said = self.evade(box, 'http', ONE, 'other.example')
        self.assertEqual(said, "403 blocked by the sandbox's network policy: other.example")
        self.assertIn('ACCESS_DENIED', self.evade(box, 'tls', ONE, 'other.example'))
        self.assertEqual(self.evade(box, 'raw', ONE, str(ECHO)), 'refused')

    def test_names_and_ranges_together(self):
        box = self.box(network={'denyOut': [ALL], 'allowOut': ['allowed.example', TWO]})
        self.assertIn(ONE, self.curl(box, 'http://allowed.example/'))
        self.assertEqual(self.evade(box, 'raw', TWO, str(ECHO)), TWO)
        self.assertEqual(self.evade(box, 'raw', TWO, '13'), 'tick')  # the server speaks first
        self.assertEqual(self.evade(box, 'raw', ONE, str(ECHO)), 'refused')
        self.assertIn(TWO, self.evade(box, 'http', TWO, 'other.example'))

    def test_every_name(self):
        box = self.box(network={'denyOut': [ALL], 'allowOut': ['*']})
        self.assertIn(TWO, self.curl(box, 'http://other.example/'))
        self.assertEqual(self.evade(box, 'raw', TWO, str(ECHO)), 'refused')
        self.assertIn('403', self.evade(box, 'http', TWO, TWO))

    def test_the_next_address_of_a_name_is_tried(self):
        box = self.named()
        self.assertIn(ONE, self.curl(box, 'http://half.wild.example/'))
        self.assertIn(ONE, self.curl(box, 'http://gone.wild.example/', '-m', '60'))

    def test_large_bodies_pass_both_ways(self):
        box = self.named()
        for url in ('http://allowed.example/', 'https://allowed.example/'):
            said = box.run('head -c 3000000 /dev/zero | tr "\\0" Q >/tmp/big; curl -sS --cacert /tmp/ca.pem '
                           f'--data-binary @/tmp/big {url} | tr -dc Q | wc -c').text()
            self.assertEqual(said.strip(), '3000000', url)

    def test_a_reply_that_is_cut_is_not_made_to_look_complete(self):
        box = self.named()
        for scheme in ('http', 'https'):
            self.assertEqual(self.curl(box, f'{scheme}://allowed.example/whole'), 'half')
            self.assertRegex(self.curl(box, f'{scheme}://allowed.example/cut'), r'curl: \((18|56)\)')

    def test_what_no_policy_opens_is_refused_at_once_and_counted(self):
        rules = {'rules': {'allowed.example': [{'transform': {'headers': {'X': 'y'}}}]}}
        targets = ['10.1.2.3', '169.254.169.254', '192.168.1.1', internet.NEAR, '10.199.0.1']
        for network in (BY_NAME, rules, {**BY_NAME, 'allowOut': ['allowed.example', *targets]}):
            box = self.box(network=network)
            self.assertEqual(self.evade(box, 'local', ','.join(targets), '22', '80', '443'), 'refused')
            deadline = time.monotonic() + 60
            while (shown := box.api('GET', f'/sandboxes/{box.id}')['networkDenied'])['packets'] < 15:
                self.assertLess(time.monotonic(), deadline, shown)
                time.sleep(0.3)
            self.assertEqual(shown['addresses'], 0)  # which are the proxy's
            told = re.compile(rf'egress.denied \S*{box.id} by=kernel .*target=10.1.2.3')
            while not told.search(self.server.log.read_text()):
                self.assertLess(time.monotonic(), deadline, 'it was not told')
                time.sleep(0.3)

    def test_a_hello_in_small_pieces(self):
        box = self.named()
        self.assertEqual(self.evade(box, 'slow_tls', ONE, 'allowed.example'), 'certificate of allowed.example')
        self.assertEqual(self.evade(box, 'slow_tls', ONE, 'other.example'), 'refused')

    # --- changing ---

    def test_a_rule_put_later_cuts_what_is_open(self):
        box = self.named()
        for kind in ('tls', 'http'):
            self.held(box, kind, 'allowed.example', kind)
        box.put(**{**BY_NAME, 'allowOut': ['allowed.example']})
        time.sleep(0.2)
        self.assertEqual(box.run('cat /tmp/tls /tmp/http').text().split(), ['up', 'up'])
        box.put(denyOut=[ALL], allowOut=['*.wild.example'])
        self.becomes(box, '/tmp/tls /tmp/http', ['up', 'cut', 'up', 'cut'])
        self.assertEqual(self.evade(box, 'resolve', 'allowed.example'), 'no such name')
        box.put()
        self.assertIn(TWO, self.curl(box, 'http://other.example/'))

    def test_what_is_open_is_judged_by_where_it_went_and_why(self):
        # To an address that everybody may reach, under a name that nobody checked.
        claims = self.box(network={'rules': {'a.wild.example': [{'transform': {'headers': {'X': 'y'}}}]}})
        self.held(claims, 'claim', 'allowed.example', 'tls', TWO)
        self.held(claims, 'true', 'allowed.example', 'tls', ONE)
        claims.put(denyOut=[ALL], allowOut=['allowed.example', ONE])
        # Because of its name, and so not to the address that it was meant for.
        named = self.named()
        self.held(named, 'tls', 'allowed.example', 'tls', TWO)
        self.held(named, 'http', 'allowed.example', 'http', TWO)
        named.put(denyOut=[ALL], allowOut=[TWO])
        self.becomes(named, '/tmp/tls /tmp/http', ['up', 'cut', 'up', 'cut'])
        self.becomes(claims, '/tmp/claim /tmp/true', ['up', 'cut', 'up'])

    def test_they_last(self):
        box = self.named()
        for how in (self.server.stop, self.server.kill):
            how()
            self.server.start()
            self.assertIn(ONE, self.curl(box, 'https://allowed.example/'))
            self.assertIn('403', self.evade(box, 'http', ONE, 'other.example'))
        for how in ({}, {'memory': False}):
            box.api('POST', f'/sandboxes/{box.id}/pause', how)
            box.api('POST', f'/sandboxes/{box.id}/connect', {'timeout': 300})
            self.assertIn(ONE, self.curl(box, 'https://allowed.example/'))
            self.assertIn('403', self.evade(box, 'http', ONE, 'other.example'))

    def test_denials_are_logged_and_few_of_them(self):
        box = self.named()
        box.run('cd /tmp; python3 -c "import evade; [evade.resolve(f\'n{i}.example\') for i in range(1, 41)]"')
        lines = [line for line in self.server.log.read_text().splitlines()
                 if 'egress.denied' in line and box.id in line]
        self.assertGreater(len(lines), 2)
        self.assertLess(len(lines), 16)
        self.assertRegex(lines[0], r'by=question target="n1.example"')

    def test_many_connections_of_one_leave_another_its_own(self):
        greedy, other = self.named(), self.named()
        greedy.run('setsid python3 /tmp/evade.py hoard allowed.example >/tmp/n 2>&1 </dev/null & '
                   'for i in $(seq 1100); do [ -s /tmp/n ] && break; sleep 0.1; done')
        held = int(greedy.run('cat /tmp/n').text())
        self.assertGreater(held, 100)
        self.assertLessEqual(held, 512)
        self.assertIn(ONE, self.curl(other, 'https://allowed.example/'))

    # --- the matrix ---

    POLICIES = {
        # network; of what may be seen outside: the names and their addresses, and the ranges
        'closed': ({'denyOut': [ALL]}, (), (), ()),
        'no internet': (None, (), (), ()),
        'one name': ({'denyOut': [ALL], 'allowOut': ['allowed.example']}, ['allowed.example'], [ONE], ()),
        'names below': ({'denyOut': [ALL], 'allowOut': ['*.wild.example']}, ['.wild.example'], [THREE, ONE],
                        ()),
        'a range': ({'denyOut': [ALL], 'allowOut': [f'{ONE}/32']}, (), (), [ONE]),
        'a name and a range': ({'denyOut': [ALL], 'allowOut': ['allowed.example', THREE]},
                               ['allowed.example'], [ONE], [THREE]),
    }
    # Way round: what it would reach without a policy (None: nothing, ever).
    WAYS = {
        'address_literal': 'tcp', 'address_http': 'http', 'address_tls': 'hello', 'address_udp': 'udp',
        'udp_443': 'udp', 'ipv6': None, 'ping': None,
        'other_sni': 'hello', 'no_sni': 'hello', 'sni_then_other_address': 'hello',
        'host_under_sni': 'http', 'other_host': 'http', 'second_request': 'http', 'pipelined': 'http',
        'absolute_form': 'http', 'two_hosts': 'http', 'folded_host': 'http', 'connect_method': 'http',
        'h2_prior_knowledge': 'h2', 'h2_after_request': 'h2', 'h2c_upgrade': 'h2', 'redirect': 'http', 'poisoned_hosts_file': 'http',
        'upgrade_then_other': 'http',
        'dns_tunnel': 'dns', 'dns_tunnel_txt': 'dns', 'dns_tunnel_below': 'dns', 'dns_tcp': 'dns',
        'dns_other_server': 'dns', 'dns_over_tls': None, 'dns_over_https': 'hello',
        'rebinding': None, 'rebinding_http': None, 'rebinding_to_host': None,
        'proxy_port': None, 'gateway': None, 'host_address': None, 'neighbour': None, 'metadata': None,
        'private': None, 'link_local': None,
        'server_first': 'ticker', 'split_hello': 'hello', 'half_a_hello': None,
    }

    # Where no policy leads: refused by the kernel, before anybody accepts.
    NOWHERE = ('proxy_port', 'gateway', 'host_address', 'neighbour', 'metadata', 'private', 'link_local')

    def allowed(self, one, names, addresses, ranges):
        name = (one.get('name') or one.get('host') or '').split(':')[0]
        fits = any(name == n or (n[0] == '.' and name.endswith(n)) for n in names)
        if one['kind'] == 'dns':
            return fits
        if one['kind'] == 'http' and one['tls']:
            fits = True  # inside TLS only the name of the hello is seen, and that has been checked
        return one['address'] in ranges or (fits and one['address'] in addresses)

    def try_way(self, box, way, neighbour):
        said = self.evade(box, way, neighbour)
        return said, self.net.seen()

    def test_every_way_round_every_policy_is_closed(self):
        listener = self.box()
        listener.run('setsid python3 -m http.server 8000 >/dev/null 2>&1 </dev/null &')
        neighbour = listener.run('hostname -I').text().split()[0]
        rows = []
        for policy, (network, *may_be_seen) in self.POLICIES.items():
            box = self.box(network=network) if network else self.box(allow_internet_access=False)
            self.net.seen()
            for way in self.WAYS:
                said, seen = self.try_way(box, way, neighbour)
                leaked = [one for one in seen if not self.allowed(one, *may_be_seen)]
                held = not leaked and 'ESCAPED' not in said and (way not in self.NOWHERE or said == 'refused')
                rows.append((policy, way, 'held' if held else f'NOT HELD {leaked}', ' '.join(said.split())))
                with self.subTest(policy=policy, way=way):
                    self.assertTrue(held, f'{said}: {leaked}')
            self.gone(box)
        if table := os.environ.get('ATOLL_POLICY_TABLE'):
            pathlib.Path(table).write_text(''.join(f'{" | ".join(row)}\n' for row in rows))

    def test_the_ways_are_ways(self):
        """Without a policy each of them gets where it wants to, or the matrix would prove nothing."""
        box = self.box()
        self.net.seen()
        for way, kind in self.WAYS.items():
            if kind is None:
                continue
            said, seen = self.try_way(box, way, '10.199.255.1')
            with self.subTest(way=way):
                self.assertIn(kind, {one['kind'] for one in seen}, said)

    def test_help_for_the_matrix_is_complete(self):
        self.assertEqual(set(self.WAYS), set(re.findall(r'(?m)^def way_(\w+)', SCRIPT)))


if __name__ == '__main__':
    unittest.main()
