"""Behind a company's network: authorities, proxies, variables that all sandboxes get, and private addresses
that the operator has opened. Against an internet of our own, in which some addresses are private."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from harness import internet, v1
from harness.certificates import Authority
from harness.faults import until
from harness.internet import ECHO, HTTP, NEAR, PRIVATE, TICKER
from harness.server import ROOT
from test_egress import BY_NAME, Case
from test_network import ALL, BUILD, Box, ONE

TOKEN = 'the-operators-own-token'
MIRROR, CLOSED, WHOLE = PRIVATE
OPENED = ['--allow-private', f'{MIRROR}:{ECHO}', '--allow-private', f'{MIRROR}:{HTTP},{WHOLE}']
NAMES = {'mirror.corp.internal': [MIRROR], 'closed.corp.internal': [CLOSED], 'mirror.example': [CLOSED, MIRROR],
         'public.corp.internal': [ONE], 'allowed.example': [ONE], 'private.wild.example': [CLOSED],
         'a.wild.example': [MIRROR]}


# In a sandbox: asks once by a datagram, and writes down what comes for ever.
TICKS = r'''
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('', 0))
s.sendto(b'x', (sys.argv[1], int(sys.argv[2])))
while True:
    print(s.recv(100), flush=True)
'''


def on_gvisor(case):
    """A sandbox on that engine, as a function that runs a command in it and says what it printed."""
    api = v1.Api(case.server)
    made = api.ask('POST', '/sandboxes', {'runtime': 'gvisor'})
    case.addCleanup(api.call, 'DELETE', f"/sandboxes/{made['id']}")
    return lambda command: api.ask('POST', f"/sandboxes/{made['id']}/execute", {'shell': command})['stdout']


class Opened(Case):
    @classmethod
    def options(cls, home):
        return OPENED

    def setUp(self):
        self.net.set_zone(NAMES)
        super().setUp()

    def closed(self, box):
        """What no list opens stays closed beside one."""
        gateway = box.run("ip route show default | awk '{print $3}'").text().strip()
        neighbour = self.box().run('hostname -I').text().split()[0]
        for address in (CLOSED, '10.77.0.4', '10.1.2.3', '172.16.0.9', '192.168.1.1', '169.254.169.254',
                        '100.100.100.200', '192.0.0.192', NEAR, gateway, neighbour):
            self.assertEqual(box.reaches(address), 'refused', address)

    def ticks(self, box):
        """Whether more of them come."""
        before = box.run('wc -c </tmp/ticks').text()
        return until(lambda: box.run('wc -c </tmp/ticks').text() != before, 2)

    def test_what_is_opened_is_reached_and_nothing_else_private(self):
        box = self.box()
        self.assertEqual(box.reaches(MIRROR), MIRROR)
        self.assertIn(MIRROR, self.curl(box, f'http://{MIRROR}/'))
        for port in (8080, 443, 22):
            self.assertEqual(box.reaches(MIRROR, port), 'refused', port)
        self.assertEqual(box.reaches(WHOLE), WHOLE)
        self.assertEqual(box.reaches(WHOLE, ECHO, 'udp'), WHOLE)
        self.assertEqual(box.reaches(MIRROR, ECHO, 'udp'), MIRROR)  # a port is one of both protocols
        self.assertEqual(box.reaches(MIRROR, 443, 'udp'), 'refused')
        self.assertEqual(box.reaches(ONE), ONE)
        self.closed(box)
        self.assertEqual({one['address'] for one in self.net.seen() if one['kind'] in ('tcp', 'udp')},
                         {MIRROR, WHOLE, ONE})

    def test_a_sandboxes_own_policy_goes_before_the_list(self):
        for network in ({'denyOut': [ALL]}, {'denyOut': ['10.0.0.0/8']}, {'denyOut': [f'{MIRROR}/32', WHOLE]}):
            box = self.box(network=network)
            self.assertEqual((box.reaches(MIRROR), box.reaches(WHOLE)), ('refused', 'refused'), network)
        box = self.box(network={'denyOut': [ALL], 'allowOut': [MIRROR, CLOSED]})
        self.assertEqual((box.reaches(MIRROR), box.reaches(WHOLE), box.reaches(CLOSED)),
                         (MIRROR, 'refused', 'refused'))
        self.closed(box)

    def test_names_lead_to_what_is_opened(self):
        box = self.box()
        self.assertEqual(self.evade(box, 'resolve', 'mirror.corp.internal'), MIRROR)
        self.assertEqual(self.evade(box, 'resolve', 'mirror.example'), MIRROR)
        for name in ('closed.corp.internal', 'public.corp.internal', 'private.wild.example', 'x.localhost'):
            self.assertEqual(self.evade(box, 'resolve', name), 'no such name', name)
        self.assertEqual(self.evade(box, 'ask_udp', '10.199.0.1', 'mirror.corp.internal', '28'), 'empty')
        self.assertIn(MIRROR, self.curl(box, 'http://mirror.corp.internal/'))

    def test_a_policy_by_name_passes_to_what_is_opened(self):
        box = self.box(network={**BY_NAME, 'allowOut': ['mirror.example', 'mirror.corp.internal', 'private.wild.example']})
        self.assertIn(MIRROR, self.curl(box, 'http://mirror.example/'))
        self.assertIn(MIRROR, self.curl(box, 'http://mirror.corp.internal/'))
        # Its other ports, other private addresses, and other names of the same server.
        self.assertIn('no address that may be reached', self.curl(box, 'http://private.wild.example/', '--connect-to',
                                                                  f'::{MIRROR}:80'))
        self.assertIn('blocked', self.curl(box, 'http://allowed.example/', '--connect-to', f'::{MIRROR}:80'))
        self.assertEqual(box.reaches(MIRROR), 'refused')
        self.assertEqual(box.reaches(MIRROR, 8080), 'refused')
        self.closed(box)
        self.assertEqual({one['address'] for one in self.seen('http')}, {MIRROR})

    def test_another_list_holds_for_sandboxes_that_live(self):
        box, named = self.box(), self.box(network={'denyOut': [ALL], 'allowOut': ['mirror.example']})
        before = self.server.options
        box.run(f"cat >/tmp/ticks.py <<'END'\n{TICKS}\nEND\n"
                f'setsid python3 /tmp/ticks.py {WHOLE} {TICKER} >/tmp/ticks 2>&1 </dev/null &')
        self.assertTrue(self.ticks(box))
        box.hold(MIRROR)
        self.assertEqual(box.poke(), MIRROR)
        self.assertIn(MIRROR, self.curl(named, 'http://mirror.example/'))
        try:
            self.server.stop()
            self.server.options = tuple(word for word in self.server.options if word not in OPENED) + \
                ('--allow-private', f'{CLOSED}:{ECHO}')
            self.server.start()
            self.assertEqual((box.reaches(MIRROR), box.reaches(CLOSED)), ('refused', CLOSED))
            self.assertNotIn(MIRROR, self.curl(named, 'http://mirror.example/'))
            self.assertEqual(box.poke(), 'cut')
            # Who sends on without being asked, too; the kernel forgets it a moment behind the start.
            self.assertTrue(until(lambda: not self.ticks(box), 60))
            self.server.stop()
            self.server.options = self.server.options[:-2]
            self.server.start()
            self.assertEqual((box.reaches(MIRROR), box.reaches(CLOSED)), ('refused', 'refused'))
        finally:
            self.server.stop()
            self.server.options = before
            self.server.start()
        self.assertEqual(box.reaches(MIRROR), MIRROR)

    @unittest.skipUnless(shutil.which('runsc'), 'gVisor is not installed')
    def test_the_list_holds_on_another_engine(self):
        shell = on_gvisor(self)
        for address, want in ((MIRROR, '0'), (CLOSED, '1'), ('169.254.169.254', '1')):
            self.assertEqual(shell(f'timeout 10 bash -c "exec 3<>/dev/tcp/{address}/{ECHO}"; echo $?').strip(), want)


class Neighbours(Case):
    """A list that covers the sandboxes' own network opens neither neighbours nor the host."""

    @classmethod
    def options(cls, home):
        return ['--allow-private', '10.199.0.0/16']

    def test_they_stay_closed_whatever_the_list_says(self):
        neighbour = self.box()
        neighbour.run('setsid python3 -m http.server 8000 >/tmp/log 2>&1 </dev/null & '
                      'for i in $(seq 600); do curl -s -o /dev/null localhost:8000 && break; sleep 0.1; done')
        address = neighbour.run('hostname -I').text().split()[0]
        seen = neighbour.run('wc -l </tmp/log').text()
        for network in (None, {**BY_NAME, 'allowOut': ['allowed.example', '10.199.0.0/16']}):
            box = self.box(network=network) if network else self.box()
            gateway = box.run("ip route show default | awk '{print $3}'").text().strip()
            for target, port in ((address, 8000), (gateway, self.server.port), ('10.199.0.1', self.server.port)):
                said = box.reaches(target, port)  # 101: no route
                self.assertIn(said.replace('[Errno 101] Network is unreachable', 'refused'), ('refused', 'end'), (network, target))
        self.assertEqual(neighbour.run('wc -l </tmp/log').text(), seen)


class Refused(unittest.TestCase):
    def refused(self, *options):
        run = subprocess.run([BUILD / 'atoll', 'serve', '--data', '/nonexistent/x', *options], capture_output=True,
                             text=True, timeout=60, check=False)
        self.assertNotEqual(run.returncode, 0)
        return run.stderr

    def test_what_can_never_be_opened_is_refused_with_the_reason(self):
        for value, why in (('169.254.169.254', 'never opened'), ('127.0.0.1:3128', 'never opened'),
                           ('100.64.0.0/10', 'a cloud serves'), ('8.8.8.8', 'not within a private network'),
                           ('0.0.0.0/0', 'use ADDRESS'), ('10.0.0.5:http', 'use ADDRESS')):
            said = self.refused('--allow-private', value)
            self.assertIn(f"--allow-private: '{value}'", said)
            self.assertIn(why, said)


PROGRAMS = {
    'curl': 'curl -sS -m 20 -o /dev/null -w %{http_code} https://allowed.example/',
    'node': "node -e \"fetch('https://allowed.example/').then(r => console.log(r.status), e => console.log(e.cause))\"",
    'python': "python3 -c \"import urllib.request as u; print(u.urlopen('https://allowed.example/').status)\"",
    'pip': 'python3 -c "from pip._vendor import requests as r; print(r.get(\'https://allowed.example/\').status_code)"',
    'openssl': "openssl s_client -connect allowed.example:443 -servername allowed.example </dev/null 2>&1 | "
               "grep -o 'Verify return code: 0' | head -1 | sed 's/.*/200/'",
    'git': 'GIT_CURL_VERBOSE=1 git ls-remote https://allowed.example/x 2>&1 | grep -o "HTTP/1.1 200" | head -1 | cut -c10-',
}


class Authorities(Case):
    """An authority that nobody has heard of, which the operator's option names."""

    @classmethod
    def options(cls, home):
        other = Authority(tempfile.mkdtemp(dir=home))
        both = pathlib.Path(home) / 'both.pem'
        both.write_text(f'A comment.\n{cls.authority.path.read_text()}')
        cls.other = other
        return ['--sandbox-ca', str(both), '--sandbox-ca', str(other.path), '--sandbox-env', 'GREETING=hello, you',
                '--sandbox-env', 'PIP_INDEX_URL=https://mirror.example/simple']

    def test_programs_trust_it_as_they_are(self):
        box = self.box()
        for name, command in PROGRAMS.items():
            with self.subTest(program=name):
                self.assertEqual(box.run(command).text().strip(), '200', box.run(command + ' 2>&1').text())

    def test_they_do_when_sudo_takes_their_environment(self):
        box = self.box()
        for name in ('node', 'python'):
            command = PROGRAMS[name].replace('node -e', 'sudo node -e').replace('python3 -c', 'sudo python3 -c')
            self.assertEqual(box.run(command).text().strip(), '200', name)
        self.assertEqual(box.run('sudo printenv PIP_INDEX_URL').text().strip(), 'https://mirror.example/simple')
        self.assertEqual(box.run('sudo -n visudo -c 2>&1 | grep -ci error').text().strip(), '0')

    def test_it_is_in_every_store_once(self):
        box = self.box()
        text = self.authority.path.read_text().strip().splitlines()[1]
        self.assertEqual(box.run(f"grep -c '{text}' /etc/ssl/certs/ca-certificates.crt").text().strip(), '1')
        self.assertEqual(box.run(f"grep -lr '{text}' /usr/local/share/ca-certificates | wc -l").text().strip(), '1')
        # By the name that OpenSSL looks it up by, without any file of all.
        found = box.run('env -u SSL_CERT_FILE openssl verify -no-CAfile -CApath /etc/ssl/certs '
                        '/usr/local/share/ca-certificates/atoll-*.crt').text()
        self.assertEqual(found.count(': OK'), 2, found)
        # What makes the stores anew comes to the same.
        box.run('update-ca-certificates --fresh', 'root')
        self.assertEqual(box.run(f"grep -c '{text}' /etc/ssl/certs/ca-certificates.crt").text().strip(), '1')
        self.assertEqual(box.run(PROGRAMS['curl']).text().strip(), '200')

    def test_header_rules_trust_the_servers_own_besides(self):
        box = self.box(network={'rules': {'allowed.example': [{'transform': {'headers': {'X-Rule': 'r'}}}]}})
        self.assertEqual(box.run(PROGRAMS['node']).text().strip(), '200')
        self.assertEqual([one['headers'].get('X-Rule') for one in self.seen('http')], ['r'])
        self.assertEqual(box.run('grep -c BEGIN $NODE_EXTRA_CA_CERTS').text().strip(), '3')

    def test_all_sandboxes_have_the_variables_and_a_creators_own_go_before(self):
        self.assertEqual(self.box().run('echo $GREETING').text().strip(), 'hello, you')
        box = self.box(envVars={'GREETING': 'mine', 'OTHER': 'x'})
        self.assertEqual(box.run('echo $GREETING $OTHER').text().strip(), 'mine x')

    def test_the_doctor_sees_whom_only_this_machine_trusts(self):
        place = pathlib.Path('/usr/local/share/ca-certificates')
        place.mkdir(parents=True, exist_ok=True)
        third = Authority(tempfile.mkdtemp(dir=self.server.scratch))

        def row():
            run = subprocess.run([BUILD / 'atoll', 'doctor', '--json', '--data', self.server.data], timeout=120,
                                 capture_output=True, text=True, check=False)
            return next(one for one in json.loads(run.stdout)['checks'] if one['id'] == 'authorities')

        # In the mount namespace of the test run.
        subprocess.run(['mount', '-t', 'tmpfs', 'none', place], check=True)
        self.addCleanup(subprocess.run, ['umount', place], check=True)
        with tempfile.TemporaryDirectory(dir=place) as below:
            (pathlib.Path(below) / 'known.crt').write_text(self.other.path.read_text().replace('\n', '\r\n'))
            known = row()
            (pathlib.Path(below) / 'unknown.crt').write_text(third.path.read_text())
            unknown = row()
        self.assertEqual((known['status'], unknown['status']), ('ok', 'warn'), (known, unknown))
        self.assertIn(f'--sandbox-ca {below}/unknown.crt', unknown['fix'])

    @unittest.skipUnless(shutil.which('runsc'), 'gVisor is not installed')
    def test_another_engine_trusts_it_too(self):
        said = on_gvisor(self)(PROGRAMS['node'] + '; ' + PROGRAMS['python'] + '; echo $GREETING')
        self.assertEqual(said.split('\n')[:3], ['200', '200', 'hello, you'])


class Proxied(Case):
    """A proxy at a private address, which is the only way out."""

    @classmethod
    def options(cls, home):
        return ['--allow-private', f'{MIRROR}:{HTTP}', '--sandbox-proxy', f'http://{MIRROR}:{HTTP}',
                '--sandbox-no-proxy', '.direct.example']

    def test_programs_ask_the_proxy(self):
        box = self.box()
        for command in ('curl -sS -m 20 http://package.example/x', 'sudo curl -sS -m 20 http://package.example/x',
                        'python3 -c "import urllib.request as u; u.urlopen(\'http://package.example/x\')"',
                        'sudo apt-get -o Acquire::Retries=0 -o Dir::Etc::SourceList=/tmp/s update'):
            box.run('echo "deb [trusted=yes] http://package.example/x ./" >/tmp/s')
            self.net.seen()
            box.run(command)
            asked = self.seen('http')
            with self.subTest(command=command):
                self.assertTrue(asked, 'nobody asked')
                self.assertTrue(all(one['address'] == MIRROR and one['path'].startswith('http://package.example/x')
                                    for one in asked), asked)

    def test_what_needs_no_proxy_is_reached_without(self):
        self.net.set_zone({**NAMES, 'a.direct.example': [ONE]})
        self.assertIn(ONE, self.box().run('curl -sS -m 20 http://a.direct.example/').text())


class Teams(Case):
    """Variables of a team, and the page with its commands and its file."""
    PAGE = (ROOT / 'docs/corporate.md').read_text()

    @classmethod
    def options(cls, home):
        token = pathlib.Path(home) / 'token'
        token.write_text(TOKEN + '\n')
        [cls.file] = re.findall(r'^```toml\n(.*?)^```', cls.PAGE, re.MULTILINE | re.DOTALL)
        authority = pathlib.Path(home) / 'corp.crt'
        authority.write_text(cls.authority.path.read_text())
        config = pathlib.Path(home) / 'config.toml'
        config.write_text(cls.file.replace('/usr/local/share/ca-certificates/corp.crt', str(authority)))
        return ['--config', config, '--admin-token-file', token]

    def setUp(self):
        super().setUp()
        self.admin = v1.Api(self.server, operator=TOKEN)
        team = json.loads(v1.Api(self.server).raw('GET', '/teams').body)[0]['teamID']
        self.path = f'/admin/teams/{team}/environment'
        self.addCleanup(self.put, {})

    def put(self, variables, **more):
        return self.admin.raw('PUT', self.path, json.dumps({'variables': variables, **more}),
                              {'Content-Type': 'application/json'}).status

    def test_the_file_of_the_page_is_taken(self):
        said = self.box().run('echo $PIP_INDEX_URL $http_proxy $NO_PROXY; grep -c BEGIN $NODE_EXTRA_CA_CERTS').text()
        self.assertEqual(said.split(), ['https://mirror.corp.example/pypi/simple', 'http://10.0.0.5:3128',
                                        'localhost,127.0.0.1,::1,.corp.example,10.0.0.0/8', '1'])

    def test_a_team_goes_before_the_server_and_a_creator_before_the_team(self):
        self.assertEqual(self.put({'PIP_INDEX_URL': 'https://team/simple', 'A': '1', 'B': '2'}), 204)
        self.assertEqual(json.loads(self.admin.raw('GET', self.path).body)['variables']['B'], '2')
        box = self.box(envVars={'B': 'mine'})
        self.assertEqual(box.run('echo $PIP_INDEX_URL $A $B').text().split(), ['https://team/simple', '1', 'mine'])
        text = json.dumps(box.api('GET', f'/sandboxes/{box.id}')) + self.server.log.read_text()
        self.assertNotIn('https://team/simple', text)
        # A fork boots afresh, with what holds then; its own stays its own.
        self.assertEqual(self.put({'A': 'later'}), 204)
        forked = v1.Api(self.server).raw('POST', f'/sandboxes/{box.id}/fork', '{"count": 1}',
                                         {'Content-Type': 'application/json'})
        self.assertEqual(forked.status, 201, forked.body)
        other = Box.__new__(Box)
        other.env, other.made = box.env, json.loads(forked.body)[0]['sandbox']
        other.id = other.made['sandboxID']
        self.addCleanup(self.gone, other)
        self.assertEqual(other.run('echo $PIP_INDEX_URL $A $B').text().split(),
                         ['https://mirror.corp.example/pypi/simple', 'later', 'mine'])

    def test_what_makes_no_sense_changes_nothing(self):
        self.assertEqual(self.put({'A': '1'}), 204)
        for wrong in ({'A-B': 'x'}, {'': 'x'}, {'1A': 'x'}, {'A': 1}, {'A': None}, ['A'], None,
                      {f'A{i}': 'x' for i in range(65)}, {'A': 'x' * 70000}):
            self.assertIn(self.put(wrong), (400, 413), wrong)
        self.assertEqual(self.put({'A': '1'}, colour='red'), 400)
        self.assertEqual(json.loads(self.admin.raw('GET', self.path).body)['variables'], {'A': '1'})
        self.assertEqual(v1.Api(self.server).raw('GET', self.path).status, 401)
        self.assertEqual(self.admin.raw('GET', '/admin/teams/nobody/environment').status, 404)

    def test_the_commands_of_the_page(self):
        if not shutil.which('jq'):
            self.skipTest('jq is needed to run the page')
        script = 'set -eu\natoll() { "$ATOLL_TEST_BIN" "$@"; }\n' + ''.join(
            re.findall(r'^```sh\n(.*?)^```', self.PAGE, re.MULTILINE | re.DOTALL))
        env = {**os.environ, **self.server.env(), 'ATOLL_ADMIN_TOKEN_FILE': str(self.server.scratch / 'token')}
        run = subprocess.run(['bash', '-c', script], env=env, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual((run.returncode, run.stdout.strip().split('\n')[-1]), (0, 'true'), run.stderr)
        events = v1.Api(self.server).ask('GET', '/audit?limit=50')
        self.assertIn('team.environment', json.dumps(events))
        self.assertNotIn('/simple', json.dumps(events))


@unittest.skipUnless(internet.available(), 'needs a mount namespace of its own')
class Template(unittest.TestCase):
    """What the base template's script tells mmdebstrap's apt of the way out: one in its place writes it down."""
    FAKE = """#!/bin/sh
for word; do
    case $word in --aptopt=/*) cp "${word#--aptopt=}" "$OUT/apt.conf" ;; esac
done
env >"$OUT/env"
exit 1
"""

    def mount(self, *words):
        subprocess.run(['mount', *words], check=True)
        self.addCleanup(subprocess.run, ['umount', words[-1]], check=True)

    def test_it_goes_out_as_the_hosts_apt_does(self):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-corporate-')
        self.addCleanup(scratch.cleanup)
        out = pathlib.Path(scratch.name)
        (out / 'apt').mkdir()
        (out / 'apt/99corp').write_text('Acquire::http::Proxy "http://10.0.0.5:3128";\n'
                                        'Acquire::https::CAInfo "/etc/corp.pem";\n'
                                        'Acquire::https::mirror.example::Proxy "DIRECT";\n'
                                        'Acquire::Languages "fr";\n')
        self.mount('--bind', str(out / 'apt'), '/etc/apt/apt.conf.d')
        self.mount('-t', 'tmpfs', 'none', '/usr/local/sbin')
        fake = pathlib.Path('/usr/local/sbin/mmdebstrap')
        fake.write_text(self.FAKE)
        fake.chmod(0o755)
        run = subprocess.run([ROOT / 'templates/base/build', out / 'base'], capture_output=True, text=True, timeout=120,
                             env={**os.environ, 'OUT': str(out), 'https_proxy': 'http://10.0.0.5:3128',
                                  'ATOLL_DEBIAN_MIRROR': 'http://mirror.example/debian'}, check=False)
        self.assertNotEqual(run.returncode, 0)
        told = (out / 'apt.conf').read_text().splitlines()
        for line in ('Acquire::http::Proxy "http://10.0.0.5:3128";', 'Acquire::https::CAInfo "/etc/corp.pem";',
                     'Acquire::https::mirror.example::Proxy "DIRECT";'):
            self.assertIn(line, told)
        self.assertFalse([line for line in told if 'Languages' in line], told)
        self.assertIn('https_proxy=http://10.0.0.5:3128', (out / 'env').read_text().splitlines())


if __name__ == '__main__':
    unittest.main()
