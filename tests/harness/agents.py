"""A template with the agents' command lines, Playwright and Chromium: the base template's tree and what npm and
Debian have, in build/agents. It stands in the place of `base`, so a server that has it for its template cache needs no
other."""
import os
import pathlib
import shutil
import subprocess
import sys

from .server import ROOT, Failed, template_cache

HOME = ROOT / 'build/agents'
TREE = HOME / 'base/rootfs'
PLACE = 'opt/agents'  # of the npm packages, in the tree
PACKAGES = ('@anthropic-ai/claude-code', '@openai/codex', '@google/gemini-cli', 'opencode-ai', 'playwright-core')
MODULES = f'/{PLACE}/node_modules'
PATH = f'{MODULES}/opencode-linux-x64-baseline/bin:{MODULES}/.bin:/usr/local/bin:/usr/bin:/bin'
DEBIAN = ('bubblewrap', 'chromium', 'fuse3', 'squashfs-tools', 'squashfuse')
SETTINGS = 'memory_mb = 2048\nuser = "user"\nworkdir = "/home/user"\nnested = true\n'
MISSING = 'ATOLL_TEST_NO_AGENTS'  # why; passed on to the run's lanes


def source():
    """What it was made from: made again when that has changed."""
    base = template_cache() / 'base/template.toml'
    return '\n'.join([*PACKAGES, *DEBIAN, SETTINGS, str(base.stat().st_mtime_ns if base.exists() else 0)])


def is_ready():
    stamp = HOME / 'made-from'
    return stamp.exists() and stamp.read_text() == source()


def reason_missing():
    """Empty when it is there."""
    return '' if is_ready() else os.environ.get(MISSING, 'build/agents was not made; tests/run makes it')


def run(what, *command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          timeout=900, **options)
    if done.returncode:
        said = (done.stderr + done.stdout).strip().splitlines() or ['it said nothing']
        raise Failed(f'cannot {what}: {said[-1]}')


def make():
    shutil.rmtree(HOME, ignore_errors=True)
    TREE.parent.mkdir(parents=True)
    run('copy the base template', 'cp', '-a', '--reflink=auto', template_cache() / 'base/rootfs', TREE)
    # Scripts of packages are not run here. One of them puts a program in its place.
    run('get the agents from npm', 'npm', 'install', '--prefix', TREE / PLACE, '--ignore-scripts', '--no-audit',
        '--no-fund', '--no-package-lock', '--loglevel=error', *PACKAGES)
    shutil.copy('/etc/resolv.conf', TREE / 'etc/resolv.conf')
    script = ('mount -t proc proc /proc && mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && '
              'mknod -m 666 /dev/urandom c 1 9 && export DEBIAN_FRONTEND=noninteractive && apt-get update -q && '
              f'apt-get install -q -y --no-install-recommends {" ".join(DEBIAN)} && apt-get clean')
    run('get Chromium from Debian', 'unshare', '--mount', '--pid', '--fork', '--kill-child', 'chroot', TREE,
        '/bin/sh', '-c', script)
    (TREE / 'etc/resolv.conf').write_text('')
    run('place claude', 'unshare', '--net', 'chroot', TREE, '/usr/bin/env', f'PATH={PATH}', 'node',
        f'{MODULES}/@anthropic-ai/claude-code/install.cjs')
    (TREE.parent / 'template.toml').write_text(SETTINGS)
    (HOME / 'made-from').write_text(source())


def prepare():
    """Without the network nothing fails: the test skips, and says why."""
    os.environ.pop(MISSING, None)
    if is_ready():
        return
    try:
        make()
    except (Failed, OSError, subprocess.SubprocessError) as problem:
        os.environ[MISSING] = str(problem)
        print(f'the agents cannot be tested: {problem}', file=sys.stderr, flush=True)


if __name__ == '__main__':
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    prepare()
