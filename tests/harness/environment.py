"""Packages of PyPI, in a Python environment of their own below build/."""
import os
import shutil
import subprocess
import sys

from .server import ROOT, Failed


class Environment:
    """Made once, by prepare(), with the network; made again when what it was made from has changed."""

    def __init__(self, name, wants, what):
        self.home = ROOT / 'build' / name
        self.wants, self.what = wants, what  # words for pip; what cannot be tested without them
        self.made_from = self.home / 'made-from'  # written last: an environment without it is half made
        self.missing = f"ATOLL_TEST_NO_{name.upper().replace('-', '_')}"  # why; passed on to the run's lanes

    def program(self, name='python'):
        return self.home / 'bin' / name

    def source(self):
        files = [word.read_text() for word in self.wants if hasattr(word, 'read_text')]
        return '\n'.join([sys.version, *map(str, self.wants), *files])

    def is_ready(self):
        return self.made_from.exists() and self.made_from.read_text() == self.source()

    def prepare(self):
        """Without the network nothing fails: what wants the packages skips, and says why."""
        os.environ.pop(self.missing, None)
        if self.is_ready():
            return
        try:
            self.make()
        except (Failed, OSError) as problem:
            os.environ[self.missing] = str(problem)
            print(f'{self.what} cannot be tested: {problem}', file=sys.stderr, flush=True)

    def make(self):
        shutil.rmtree(self.home, ignore_errors=True)
        run('make an environment with python3-venv', sys.executable, '-m', 'venv', self.home)
        run(f"get {self.wants[-1]} from PyPI", self.program(), '-m', 'pip', 'install', '--quiet',
            '--disable-pip-version-check', '--timeout', '20', '--retries', '2', *self.wants)
        self.made_from.write_text(self.source())

    def reason_missing(self):
        """Empty when it is there."""
        if self.is_ready():
            return ''
        return os.environ.get(self.missing, f'{self.home.relative_to(ROOT)} was not made; tests/run makes it')


def run(what, *command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr + done.stdout).strip().splitlines() or ['it said nothing']
        raise Failed(f'cannot {what}: {said[-1]}')


PYTHON_SDK_TESTS = ROOT / 'tests/sdk-python'
PYTHON_SDK = Environment('python-sdk', ['--requirement', PYTHON_SDK_TESTS / 'requirements.txt'], 'The Python SDK')
# Requests made from the OpenAPI document.
SCHEMATHESIS = Environment('schemathesis', ['schemathesis>=4,<5'], "The API's document")
