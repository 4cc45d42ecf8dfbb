"""What each process may do and who may read each file, compared with what SECURITY.md says."""
import os
import pathlib
import re
import stat
import tempfile
import time
import unittest

from harness.certificates import Authority
from harness.sandbox import Sandbox
from harness.server import ROOT, Server

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
FIRST_UID, BLOCK, USER = 0x70000000, 65536, 1000
NAMESPACES = ('cgroup', 'ipc', 'mnt', 'net', 'pid', 'time', 'user', 'uts')
CAPS = ('CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE '
        'NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO '
        'SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME '
        'SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG '
        'WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE').split()


def table(heading):
    """The first table below that heading of SECURITY.md: a dictionary of dictionaries."""
    text = (ROOT / 'SECURITY.md').read_text().split(f'{heading}\n', 1)[1]
    lines = re.search(r'(?:^\|.*\n)+', text, re.MULTILINE)[0].splitlines()
    head, _, *rows = [[cell.strip().strip('`') for cell in line.strip('|').split('|')] for line in lines]
    return {row[0]: dict(zip(head[1:], row[1:])) for row in rows}


class Process:
    """One process, as /proc shows it to root."""

    def __init__(self, pid):
        self.pid, self.path = pid, pathlib.Path('/proc') / str(pid)
        self.name = (self.path / 'comm').read_text().strip()
        self.status = dict(line.split(':\t', 1) for line in
                           (self.path / 'status').read_text().splitlines() if ':\t' in line)
        self.parent = int(self.status['PPid'])
        self.command = (self.path / 'cmdline').read_bytes().split(b'\0')

    def uids(self):
        return set(map(int, self.status['Uid'].split()))

    def is_itself(self):
        return len(self.uids()) == 1

    def caps(self, which):
        mask = int(self.status[which], 16)
        return {name for i, name in enumerate(CAPS) if mask >> i & 1}

    def own_namespaces(self):
        return {name for name in NAMESPACES
                if os.readlink(self.path / 'ns' / name) != os.readlink(f'/proc/self/ns/{name}')}


def processes():
    for entry in os.listdir('/proc'):
        if entry.isdigit():
            try:
                yield Process(int(entry))
            except OSError:
                pass  # it has ended meanwhile


class Privileges(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        home = tempfile.TemporaryDirectory(prefix='atoll-privileges-')
        cls.addClassCleanup(home.cleanup)
        os.chmod(home.name, 0o755)
        certificate, key = pathlib.Path(home.name, 'cert'), pathlib.Path(home.name, 'key')
        Authority(home.name).issue(certificate, key, 'localhost')
        cls.token = pathlib.Path(home.name, 'token')
        cls.token.write_text('an-operators-token-of-this-test\n')
        cls.token.chmod(0o600)
        cls.server = Server(BUILD, home.name, '--stop-sandboxes', '--tls-cert', certificate, '--tls-key', key,
                            '--admin-token-file', cls.token, kept=True)
        cls.addClassCleanup(cls.server.stop)
        cls.server.start()
        cls.env = {**cls.server.env(), 'E2B_API_URL': f'http://127.0.0.1:{cls.server.port}'}
        cls.box = Sandbox(env=cls.env, secure=True)
        for user in ('user', 'root'):
            cls.box.run(f'nohup sleep 61{USER if user == "user" else 0} >/dev/null 2>&1 &', user)
        cls.found = cls.wait_for_all()

    @classmethod
    def wait_for_all(cls, seconds=60):
        deadline = time.monotonic() + seconds
        while True:
            try:
                return cls.find()
            except (StopIteration, OSError):  # one that has not become what it will be, or was one of the pool
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    @classmethod
    def find(cls):
        """The processes that the table names."""
        everybody = list(processes())
        found = {'keeper': Process(cls.server.process.pid)}

        def child(parent, name):
            return next(p for p in everybody if p.parent == found[parent].pid and p.name == name)

        found['server'] = child('keeper', 'atoll')
        found['tls-files'] = child('server', 'atoll-tls-files')
        found['warden'] = child('server', 'atoll-warden')
        found['worker'] = child('warden', 'atoll-maker')
        if not found['warden'].is_itself() or not found['worker'].is_itself():  # each is another for single calls
            raise StopIteration
        for row, command in (('user in a sandbox', [b'sleep', b'611000']),
                             ('root in a sandbox', [b'sleep', b'610'])):
            found[row] = next(p for p in everybody if p.command[:2] == command)
        inside = os.readlink(found['user in a sandbox'].path / 'ns/pid')
        found['guest'] = next(p for p in everybody if p.name == 'atoll-guest'
                              and os.readlink(p.path / 'ns/pid') == inside)
        return found

    def for_each(self, check):
        rows = table('## Privileges')
        self.assertEqual(set(rows), set(self.found))
        for name, row in rows.items():
            with self.subTest(name):
                check(self.found[name], row)

    def all_caps(self):
        return self.found['keeper'].caps('CapBnd')

    def expected(self, text):
        """A host may have given fewer to begin with, but inside a sandbox it cannot."""
        return self.all_caps() if text == 'all' else set() if text == 'none' else set(text.split())

    def assert_caps(self, process, which, wanted):
        outside = process.name != 'sleep' and process.name != 'atoll-guest'
        self.assertEqual(process.caps(which), wanted & self.all_caps() if outside else wanted, which)

    def test_users(self):
        def check(process, row):
            uids = process.uids()
            self.assertEqual(len(uids), 1)
            uid = uids.pop()
            if row['user'].endswith('inside'):
                self.assertGreaterEqual(uid, FIRST_UID + BLOCK)
                self.assertEqual(uid % BLOCK, 0 if row['user'] == 'root inside' else USER)
            else:
                self.assertEqual(uid, {'root': 0, 'server': FIRST_UID}[row['user']])

        self.for_each(check)

    def test_capabilities(self):
        def check(process, row):
            effective = self.expected(row['capabilities'])
            bounding = effective if row['bounding set'] == 'as effective' else self.expected(row['bounding set'])
            self.assert_caps(process, 'CapEff', effective)
            self.assert_caps(process, 'CapPrm', effective)
            self.assert_caps(process, 'CapBnd', bounding)
            self.assertEqual(process.caps('CapAmb') | process.caps('CapInh'), set())

        self.for_each(check)

    def test_new_privileges_and_filters(self):
        def check(process, row):
            self.assertEqual(process.status['NoNewPrivs'], '1' if row['no_new_privs'] == 'yes' else '0')
            self.assertEqual(process.status['Seccomp'], '0' if row['filters'] == '0' else '2')
            self.assertEqual(process.status['Seccomp_filters'], row['filters'])

        self.for_each(check)

    def test_namespaces(self):
        def check(process, row):
            words = [] if row['own namespaces'] == 'none' else row['own namespaces'].split()
            maybe = {word.strip('()') for word in words if word.startswith('(')}
            wanted = {word for word in words if not word.startswith('(')}
            deadline = time.monotonic() + 20  # the warden may be on a visit, while it fills its pool
            while process.own_namespaces() - maybe != wanted and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertEqual(process.own_namespaces() - maybe, wanted)

        self.for_each(check)

    def test_groups_of_others_are_nobodys(self):
        for name in ('server', 'guest', 'user in a sandbox', 'root in a sandbox'):
            for group in self.found[name].status['Groups'].split():
                self.assertGreaterEqual(int(group), FIRST_UID)

    def test_no_core_is_written(self):
        def check(process, _):
            limits = (process.path / 'limits').read_text()
            self.assertEqual(re.search(r'^Max core file size +(\S+)', limits, re.MULTILINE)[1], '0')
            # What cannot be dumped belongs to root in /proc, whoever runs it.
            if process is self.found['server']:
                self.assertEqual((process.path / 'mem').stat().st_uid, 0, 'dumpable')

        self.for_each(check)

    def test_the_guest_is_closed_to_root_inside(self):
        self.assertNotEqual(self.box.run('cat /proc/1/environ', 'root').exit_code, 0)
        self.assertEqual(self.box.run('cat /proc/self/environ', 'root').exit_code, 0)

    def test_files_are_born_closed(self):
        self.assertEqual(self.found['server'].status['Umask'], '0077')
        self.assertEqual(self.found['warden'].status['Umask'], '0022')

    def secrets(self):
        return [self.env['E2B_API_KEY'], self.box.made['envdAccessToken'], self.token.read_text().strip()]

    def test_no_secret_is_where_others_look(self):
        def check(process, _):
            for place in ('cmdline', 'environ'):
                text = (process.path / place).read_bytes()
                for secret in self.secrets():
                    self.assertNotIn(secret.encode(), text)

        self.for_each(check)
        log = self.server.log.read_text(errors='replace')
        for secret in self.secrets():
            self.assertNotIn(secret, log)

    # --- files ---

    def test_modes_are_as_told(self):
        data = self.server.data
        self.box.api('POST', '/volumes', {'name': 'modes'})
        for name, row in table('### Files').items():
            paths = [data] if name == '.' else self.found_below(data, name)
            self.assertTrue(paths, name)
            for path in paths:
                with self.subTest(str(path.relative_to(data))):
                    if path.name == '.lock':  # the warden's, not a sandbox
                        continue
                    wanted = int(row['mode'], 8), {'root': 0, 'server': FIRST_UID}[row['owner']]
                    self.assertIn(self.mode_and_owner(path, wanted), (wanted, None))

    def found_below(self, data, name):
        """Slots come and go meanwhile."""
        for _ in range(100):
            try:
                return list(data.glob(name))
            except FileNotFoundError:
                time.sleep(0.05)
        return []

    def mode_and_owner(self, path, wanted):
        """None: a slot has just been given its name. One that is being made is looked at again."""
        for _ in range(200):
            try:
                st = path.lstat()
            except FileNotFoundError:
                return None
            seen = stat.S_IMODE(st.st_mode), st.st_uid
            if seen == wanted:
                break
            time.sleep(0.05)
        return seen

    def test_others_read_nothing_and_write_nothing(self):
        readable, writable = [], []

        def walk(folder):
            for path in folder.iterdir():
                st = path.lstat()
                if st.st_mode & stat.S_IROTH and not path.is_symlink():
                    readable.append(path.name)
                if st.st_mode & stat.S_IWOTH and not path.is_symlink():
                    writable.append(path.name)
                if stat.S_ISDIR(st.st_mode) and st.st_mode & stat.S_IXOTH:
                    walk(path)

        for _ in range(100):  # slots come and go meanwhile
            try:
                readable, writable = [], []
                walk(self.server.data)
                break
            except FileNotFoundError:
                time.sleep(0.1)
        self.assertEqual(readable, ['version'])
        self.assertEqual(writable, [])

    def test_modes_that_were_loosened_are_mended(self):
        with tempfile.TemporaryDirectory(prefix='atoll-loose-') as home:
            os.chmod(home, 0o755)
            (pathlib.Path(home) / 'data/state').mkdir(parents=True, mode=0o777)
            os.chmod(pathlib.Path(home) / 'data/state', 0o777)
            with Server(BUILD, home, '--pool', '0') as server:
                self.assertEqual(stat.S_IMODE((server.data / 'state').stat().st_mode), 0o700)


if __name__ == '__main__':
    unittest.main()
