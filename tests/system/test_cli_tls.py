"""The command line with a server whose certificate a private authority has signed."""
import os

from test_cli_port import RAW, WEB, Forwarded
from test_tls import Served
from harness.certificates import Authority


class Trust(Served, Forwarded):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        env, url = cls.server.env(), f'https://127.0.0.1:{cls.port}'
        cls.more = {'E2B_API_URL': url, 'E2B_SANDBOX_URL': url, 'E2B_API_KEY': env['E2B_API_KEY'],
                    'ATOLL_CA_FILE': str(cls.authority.path)}
        cls.untrusted = {**cls.more, 'ATOLL_CA_FILE': '', 'SSL_CERT_FILE': ''}

    def setUp(self):
        if 'forward' in self.id() or 'streams' in self.id():
            super().setUp()

    def test_nobody_is_trusted_without_being_named(self):
        document = self.json('sbx', 'ls', env=self.untrusted, status=7)
        self.assertEqual(document['code'], 'certificate')
        self.assertIn('--ca-file', document['hint'])
        other = self.home / 'other'
        other.mkdir(exist_ok=True)
        stranger = Authority(other).path
        for words, env in ([['--ca-file', stranger], {}], [[], {'ATOLL_CA_FILE': str(stranger)}],
                           [[], {'SSL_CERT_FILE': str(stranger)}]):
            document = self.json('sbx', 'ls', *words, env={**self.untrusted, **env}, status=7)
            self.assertEqual(document['code'], 'certificate')

    def test_each_way_of_naming_the_authority(self):
        path, nothing = str(self.authority.path), str(self.home / 'no')
        for words, env in ([['--ca-file', path], {}], [[], {'ATOLL_CA_FILE': path}],
                           [[], {'SSL_CERT_FILE': path}],
                           [['--ca-file', path], {'ATOLL_CA_FILE': nothing}],
                           [[], {'ATOLL_CA_FILE': path, 'SSL_CERT_FILE': nothing}]):
            self.ok('sbx', 'ls', *words, env={**self.untrusted, **env})
        for words, env in ([['--ca-file', nothing], {}], [[], {'ATOLL_CA_FILE': nothing}]):
            document = self.json('sbx', 'ls', *words, env={**self.untrusted, **env}, status=2)
            self.assertIn(nothing, document['message'])

    def test_streams_and_files(self):
        self.assertEqual(self.ok('sbx', 'exec', self.box, '--', 'cat', stdin=b'in' * 9000,
                                 env=self.more), b'in' * 9000)
        self.ok('sbx', 'cp', '-', f'{self.box}:there', stdin=os.urandom(1 << 20), env=self.more)
        self.assertEqual(len(self.ok('sbx', 'cp', f'{self.box}:there', '-', env=self.more)), 1 << 20)

    def test_forward_through_tls(self):
        with self.forward(RAW) as (_, local):
            for size in (0, 3_000_000):
                self.assertEqual(self.count(local, size), size)
        with self.forward(WEB) as (_, local):
            self.assertEqual(len(self.get(local, '/big')), 9_000_000)
