"""What the kernel holds on our behalf, as sets of names: the same before and after, or it leaked."""
import contextlib
import hashlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time

INSTANCES = 'ATOLL_TEST_INSTANCES'  # a directory with a file for each server that these tests started
FIRST_UID = 0x70000000  # of block 0; each sandbox's number is its block
SANDBOX_ID = re.compile(r'(?<![a-z0-9])i[a-z0-9]{20}(?![a-z0-9])')


def processes():
    """Our three programs, and everything that runs in a cgroup of ours."""
    found = set()
    for entry in os.listdir('/proc'):
        if not entry.isdigit():
            continue
        try:
            comm = pathlib.Path('/proc', entry, 'comm').read_text().strip()
            cgroup = pathlib.Path('/proc', entry, 'cgroup').read_text()
        except OSError:
            continue
        if comm.startswith('atoll') or '/atoll' in cgroup:
            found.add(f'{entry} {comm}')
    return found


def mounts():
    text = pathlib.Path('/proc/self/mountinfo').read_text()
    return {' '.join(line.split()[3:5]) for line in text.splitlines()}


def interfaces():
    return {name for _, name in socket.if_nameindex()}


def cgroups():
    """Those of servers that these tests started; where nobody keeps a list, of servers in this process
    namespace: a process of another one shows as 0."""
    trees = {}
    for root, names, _ in os.walk('/sys/fs/cgroup'):
        for path in (os.path.join(root, name) for name in names):
            if '/atoll/' in path:
                trees.setdefault(path.split('/atoll/')[1].split('/')[0], []).append(path)
    ours = ours_of(trees)
    return {path for name, paths in trees.items() if name in ours for path in paths}


def ours_of(trees):
    if listed := os.environ.get(INSTANCES):
        return os.listdir(listed) if os.path.isdir(listed) else []
    return [name for name, paths in trees.items() if not any(map(has_foreign_process, paths))]


def note_instance(data):
    """A server with this data directory is about to be started: what it leaves is ours to find."""
    if listed := os.environ.get(INSTANCES):
        os.makedirs(listed, exist_ok=True)
        pathlib.Path(listed, instance_of(data)).touch()


def instance_of(data):
    """As the server names itself in the kernel's tables."""
    return hashlib.sha256(os.path.realpath(data).encode()).hexdigest()[:8]


def has_foreign_process(cgroup):
    try:
        return '0' in pathlib.Path(cgroup, 'cgroup.procs').read_text().split()
    except OSError:
        return False


def loop_devices():
    """Those whose file lies where temporary files lie: `tests/run` gives its own place to all."""
    found = set()
    for backing in pathlib.Path('/sys/block').glob('loop*/loop/backing_file'):
        try:
            path = backing.read_text().strip()
        except OSError:
            continue
        if path.startswith(tempfile.gettempdir() + '/'):
            found.add(f'{backing.parts[3]} {path}')
    return found


def nft_tables():
    try:
        answer = subprocess.run(['nft', '-j', 'list', 'tables'], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return set()
    tables = (item.get('table') for item in json.loads(answer.stdout)['nftables'])
    return {f"{table['family']} {table['name']}" for table in tables if table}


KINDS = {
    'processes': processes,
    'mounts': mounts,
    'network interfaces': interfaces,
    'cgroups': cgroups,
    'loop devices': loop_devices,
    'nft tables': nft_tables,
}


def snapshot():
    return {kind: look() for kind, look in KINDS.items()}


def settled(still=4, seconds=60):
    """The same several times in a row: a server fills its pool in the background, a slot at a time, and on a
    busy machine one of them takes its time."""
    deadline, seen, same = time.monotonic() + seconds, snapshot(), 0
    while same < still and time.monotonic() < deadline:
        time.sleep(0.5)
        now = snapshot()
        seen, same = now, same + 1 if now == seen else 0
    return seen


def parent_of(pid):
    try:
        return int(pathlib.Path('/proc', str(pid), 'stat').read_text().rpartition(')')[2].split()[1])
    except (OSError, IndexError):
        return 0


def others(before):
    """What belongs to servers that were there before: one that all suites share makes and removes prepared
    sandboxes whenever it likes. As the same kinds of names, where these can be told."""
    wardens = {int(name.split()[0]) for name in before['processes'] if name.endswith(' atoll-warden')}
    theirs, instances, numbers = set(), set(), set()
    for name in processes() if wardens else ():
        pid = above = int(name.split()[0])
        while above > 1 and above not in wardens:
            above = parent_of(above)
        if above not in wardens:
            continue
        theirs.add(name)
        with contextlib.suppress(OSError, IndexError):
            instances |= set(re.findall(r'/atoll/([0-9a-f]{8})', pathlib.Path('/proc', str(pid), 'cgroup').read_text()))
            first_uid = int(pathlib.Path('/proc', str(pid), 'uid_map').read_text().split()[1])
            numbers.add(first_uid - FIRST_UID >> 16)
    return {'processes': theirs, 'network interfaces': {f'atoll{number}' for number in numbers},
            'cgroups': {path for path in cgroups() if any(f'/atoll/{name}/' in path for name in instances)}}


def leaked(before, seconds=60):
    """What is there now and was not before; the kernel gets a moment to finish its own tidying."""
    deadline = time.monotonic() + seconds
    while True:
        now = snapshot()
        more = {kind: now[kind] - before[kind] for kind in KINDS}
        if any(more.values()):
            theirs = others(before)
            more = {kind: names - theirs.get(kind, set()) for kind, names in more.items()}
        if not any(more.values()) or time.monotonic() > deadline:
            return {kind: sorted(names) for kind, names in more.items()}
        time.sleep(0.2)


def tidy(more):
    """After a leak was reported: the next run must not find it again."""
    for process in more['processes']:
        with contextlib.suppress(OSError):
            os.kill(int(process.split()[0]), signal.SIGKILL)
    deadline = time.monotonic() + 3
    paths = sorted(more['cgroups'], key=len, reverse=True)
    while paths and time.monotonic() < deadline:
        for path in list(paths):
            with contextlib.suppress(OSError):
                os.rmdir(path)
                paths.remove(path)
        time.sleep(0.1)


def sandbox_files(data):
    """Files and directories below a data directory that carry a sandbox's id."""
    found = []
    for root, directories, files in os.walk(data):
        found += [os.path.join(root, name) for name in directories + files
                  if SANDBOX_ID.search(name)]
    return sorted(found)
