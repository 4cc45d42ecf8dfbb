"""Completions in the shells themselves, and what `make install` puts where."""
import json
import os
import pathlib
import pty
import select
import shutil
import subprocess
import time
import unittest

from test_cli import ATOLL, Cli
from harness.server import ROOT


class Shells(Cli):
    """The scripts lie where an installation has them, and `atoll` is in the PATH."""

    def setUp(self):
        self.home = self.scratch()
        self.share = self.home / 'share'
        for shell, place in (('bash', 'bash-completion/completions/atoll'),
                             ('zsh', 'zsh/site-functions/_atoll'),
                             ('fish', 'fish/vendor_completions.d/atoll.fish')):
            path = self.share / place
            path.parent.mkdir(parents=True)
            path.write_bytes(self.ok('completion', shell))
        self.env = {**os.environ, 'HOME': str(self.home), 'XDG_DATA_DIRS': str(self.share),
                    'PATH': f'{pathlib.Path(ATOLL).resolve().parent}:{os.environ["PATH"]}'}

    def of_group(self, group):
        return {command['name'] for command in json.loads(self.ok('help', '--json'))['commands']
                if command['group'] == group}

    @unittest.skipUnless(shutil.which('fish'), 'fish is not installed')
    def test_fish_offers_what_the_table_has(self):
        box = self.sandbox()

        def offers(line):
            done = subprocess.run(['fish', '-c', f"complete -C '{line}'"], env=self.env, timeout=60,
                                  cwd=self.home, capture_output=True, check=True)
            return {row.split('\t')[0] for row in done.stdout.decode().splitlines()}

        self.assertEqual(offers('atoll sandbox '), self.of_group('sandbox'))
        self.assertEqual(offers('atoll key '), self.of_group('key'))
        for _ in range(100):  # the server may be too busy to be waited for
            known = offers(f'atoll sbx info {box[:8]}')
            if box in known:
                break
        self.assertEqual(known, {box})
        self.assertEqual(offers('atoll sbx exec --us'), {'--user'})
        self.assertEqual(offers('atoll completion '), {'bash', 'zsh', 'fish'})
        self.assertEqual(offers('atoll run --runtime '), {'crun', 'gvisor', 'local', 'runc'})
        for _ in range(100):
            known = offers('atoll sandbox create ba')
            if known == {'base'}:
                break
        self.assertEqual(known, {'base'})
        (self.home / 'notes.txt').touch()
        self.assertIn('notes.txt', offers('atoll sbx cp not'))  # where nothing is known: files

    @unittest.skipUnless(shutil.which('zsh'), 'zsh is not installed')
    def test_zsh_completes_at_the_prompt(self):
        box = self.sandbox()
        (self.home / 'notes.txt').touch()
        with Zsh(self.env, self.home) as zsh:
            zsh.send('fpath=($XDG_DATA_DIRS/zsh/site-functions $fpath)\n')
            zsh.send('autoload -Uz compinit; compinit -u -D; echo rea""dy\n')
            zsh.expect('\nready')
            for typed, becomes in (('atoll sandbox snap', 'atoll sandbox snapshot '),
                                   ('atoll k', 'atoll key '),
                                   (f'atoll sbx info {box[:9]}', f'atoll sbx info {box} '),
                                   ('atoll sbx exec --us', 'atoll sbx exec --user '),
                                   ('atoll run --runtime gv', 'atoll run --runtime gvisor '),
                                   ('atoll sandbox create bas', 'atoll sandbox create base '),
                                   ('atoll sbx cp not', 'atoll sbx cp notes.txt ')):
                for _ in range(20):  # the server may be too busy to be waited for
                    zsh.send(f'\x15{typed}\t')
                    if zsh.shows(becomes, 3):
                        break
                zsh.expect(becomes)
            zsh.send('\x15atoll sandbox \t')
            shown = zsh.expect('\nsnapshot  keep what')  # the last of them, with its summary
            self.assertEqual({name for name in self.of_group('sandbox') if f'\n{name}  ' in shown},
                             self.of_group('sandbox'))

    def test_bash_completes_from_the_installed_file(self):
        script = ('source "$XDG_DATA_DIRS/bash-completion/completions/atoll"\n'
                  'COMP_WORDS=(atoll sandbox ""); COMP_CWORD=2; _atoll; printf "%s\\n" "${COMPREPLY[@]}"\n'
                  'complete -p atoll >&2')
        done = subprocess.run(['bash', '-c', script], env=self.env, capture_output=True, check=True,
                              timeout=60)
        self.assertEqual(set(done.stdout.decode().split()), self.of_group('sandbox'))
        self.assertIn(b'_atoll atoll', done.stderr)

    def test_bash_completes_templates_and_values_of_options(self):
        script = ('source "$XDG_DATA_DIRS/bash-completion/completions/atoll"\n'
                  'try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _atoll; echo "${COMPREPLY[*]}"; }\n'
                  'try atoll run --runtime gv; try atoll sandbox create bas; try atoll --vers\n')
        for _ in range(100):  # the server may be too busy to be waited for
            done = subprocess.run(['bash', '-c', script], env=self.env, capture_output=True, check=True, timeout=60)
            if b'base' in done.stdout:
                break
        self.assertEqual(done.stdout.decode().split(), ['gvisor', 'base', '--version'])


class Zsh:
    """A person at its prompt."""

    def __init__(self, env, cwd):
        self.process, self.fd = pty.fork()
        if self.process == 0:
            os.chdir(cwd)
            os.execvpe('zsh', ['zsh', '-f', '-i'], {**env, 'TERM': 'dumb', 'PS1': '$ '})
        self.seen = ''

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)
        os.waitpid(self.process, 0)

    def send(self, text):
        self.seen = ''
        os.write(self.fd, text.encode())

    def shows(self, text, seconds):
        end = time.monotonic() + seconds
        while text not in self.seen and time.monotonic() < end:
            if select.select([self.fd], [], [], 0.2)[0]:
                self.seen += os.read(self.fd, 65536).decode(errors='replace').replace('\r', '\n')
        return text in self.seen

    def expect(self, text, seconds=60):
        if not self.shows(text, seconds):
            raise AssertionError(f'no {text!r} in {self.seen!r}')
        return self.seen


class Install(Cli):
    def test_pages_and_completions_are_installed(self):
        build = next((path for path in (pathlib.Path(ATOLL).resolve().parent, ROOT / 'build')
                      if (path / 'src/cli/install').is_dir()), None)
        if build is None or not shutil.which('meson'):
            self.skipTest('no release build here: manual pages are not made by a sanitizer build')
        files = json.loads(subprocess.run(['meson', 'introspect', '--installed', build],
                                          capture_output=True, check=True).stdout)
        places = [path.split('/share/', 1)[1] for path in files.values() if '/share/' in path]
        groups = {command['group'] for command in json.loads(self.ok('help', '--json'))['commands']}
        wanted = {f'man/man1/atoll-{group}.1' for group in groups if group} | {
            'man/man1/atoll.1', 'bash-completion/completions/atoll', 'zsh/site-functions/_atoll',
            'fish/vendor_completions.d/atoll.fish'}
        self.assertEqual(wanted, {place for place in places if not place.startswith('atoll/')})


if __name__ == '__main__':
    unittest.main()
