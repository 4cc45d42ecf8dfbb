"""PyPI's schemathesis, in an environment of its own below build/: requests made from the OpenAPI document."""
import os
import shutil
import sys

from .python_sdk import run
from .server import ROOT, Failed

HOME = ROOT / 'build/schemathesis'
MADE_FROM = HOME / 'made-from'  # written last: an environment without it is half made
MISSING = 'ATOLL_TEST_NO_SCHEMATHESIS'  # why there is none; passed on into the run's namespaces
PACKAGE = 'schemathesis>=4,<5'


def program():
    return HOME / 'bin/schemathesis'


def wanted():
    return f'{sys.version}\n{PACKAGE}'


def is_ready():
    return MADE_FROM.exists() and MADE_FROM.read_text() == wanted()


def prepare():
    """Needs the network. Without it nothing fails: the test skips, and says why."""
    os.environ.pop(MISSING, None)
    if is_ready():
        return
    try:
        shutil.rmtree(HOME, ignore_errors=True)
        run('make an environment with python3-venv', sys.executable, '-m', 'venv', HOME)
        run(f'get {PACKAGE} from PyPI', HOME / 'bin/python', '-m', 'pip', 'install', '--quiet',
            '--disable-pip-version-check', '--timeout', '20', '--retries', '2', PACKAGE)
        MADE_FROM.write_text(wanted())
    except (Failed, OSError) as problem:
        os.environ[MISSING] = str(problem)
        print(f'The API cannot be fuzzed by its document: {problem}', file=sys.stderr, flush=True)


def reason_missing():
    """Empty when the program is there."""
    if is_ready():
        return ''
    return os.environ.get(MISSING, f'{HOME.relative_to(ROOT)} was not made; tests/run makes it')
