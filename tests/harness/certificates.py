"""A throwaway authority and certificates of it, made by the openssl program."""
import os
import pathlib
import subprocess


def openssl(*arguments):
    subprocess.run(['openssl', *map(str, arguments)], check=True, capture_output=True)


class Authority:
    """Its certificate is at `path`: what a client must trust."""

    def __init__(self, home):
        self.home = pathlib.Path(home)
        self.path, self.key = self.home / 'ca.pem', self.home / 'ca-key.pem'
        openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes',
                '-keyout', self.key, '-out', self.path, '-days', '2', '-subj', '/CN=throwaway',
                '-addext', 'basicConstraints=critical,CA:TRUE', '-addext', 'keyUsage=keyCertSign')
        self.made = 0

    def issue(self, certificate, key, *names):
        """Writes both files by renaming, as programs that renew certificates do; only their owner may
        read the key."""
        self.made += 1
        work = self.home / f'issue-{self.made}'
        work.mkdir()
        openssl('req', '-new', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes',
                '-keyout', work / 'key', '-out', work / 'request', '-subj', f'/CN={names[0]}')
        (work / 'names').write_text('subjectAltName=' + ','.join(
            ('IP:' if name[0].isdigit() else 'DNS:') + name for name in names) + '\n')
        openssl('x509', '-req', '-in', work / 'request', '-CA', self.path, '-CAkey', self.key,
                '-set_serial', str(self.made), '-days', '2', '-out', work / 'certificate',
                '-extfile', work / 'names')
        os.chmod(work / 'key', 0o600)
        os.replace(work / 'certificate', certificate)
        os.replace(work / 'key', key)
