"""The published PyPI package `e2b`, in an environment of its own below build/."""
import os
import shutil
import subprocess
import sys

from .server import ROOT, Failed

TESTS = ROOT / 'tests/sdk-python'
HOME = ROOT / 'build/python-sdk'
MADE_FROM = HOME / 'made-from'  # written last: an environment without it is half made
MISSING = 'ATOLL_TEST_NO_PYTHON_SDK'  # why there is none; passed on into the run's namespaces


def interpreter():
    return HOME / 'bin/python'


def wanted():
    return f'{sys.version}\n{(TESTS / "requirements.txt").read_text()}'


def is_ready():
    return MADE_FROM.exists() and MADE_FROM.read_text() == wanted()


def prepare():
    """Needs the network. Without it nothing fails: what wants the package skips, and says why."""
    os.environ.pop(MISSING, None)
    if is_ready():
        return
    try:
        make()
    except (Failed, OSError) as problem:
        os.environ[MISSING] = str(problem)
        print(f'The Python SDK cannot be tested: {problem}', file=sys.stderr, flush=True)


def make():
    shutil.rmtree(HOME, ignore_errors=True)
    run('make an environment with python3-venv', sys.executable, '-m', 'venv', HOME)
    run("get tests/sdk-python/requirements.txt from PyPI", interpreter(), '-m', 'pip', 'install',
        '--quiet', '--disable-pip-version-check', '--timeout', '20', '--retries', '2',
        '--requirement', TESTS / 'requirements.txt')
    MADE_FROM.write_text(wanted())


def run(what, *command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False)
    if done.returncode:
        said = (done.stderr + done.stdout).strip().splitlines() or ['it said nothing']
        raise Failed(f'cannot {what}: {said[-1]}')


def reason_missing():
    """Empty when the package is there."""
    if is_ready():
        return ''
    return os.environ.get(MISSING, f'{HOME.relative_to(ROOT)} was not made; tests/run makes it')
