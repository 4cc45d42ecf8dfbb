"""Run by tests/system/test_tls.py against a server with a certificate: the published package, told
nothing but E2B_API_KEY and E2B_DOMAIN, finds api.DOMAIN and PORT-ID.DOMAIN over https by itself."""
import os
import unittest
import urllib.request

from e2b import AsyncSandbox, Sandbox, TimeoutException
from support import Boxed, eventually


def fetch(url):
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read()


class OnlyTheDomain(Boxed):
    def test_that_is_all_there_is(self):
        self.assertEqual({name for name in os.environ if name.startswith('E2B_')},
                         {'E2B_API_KEY', 'E2B_DOMAIN'})
        self.assertTrue(self.box.get_host(1).endswith(os.environ['E2B_DOMAIN']))

    def test_commands_and_files(self):
        data = os.urandom(2 << 20)
        self.box.files.write('data', data)
        self.assertEqual(self.box.files.read('data', format='bytes'), data)
        self.assertEqual(self.box.commands.run('wc -c < data').stdout.strip(), str(len(data)))

    def test_signed_urls_and_servers_inside(self):
        self.box.files.write('signed', 'content')
        self.assertEqual(fetch(self.box.download_url('signed')), b'content')
        self.box.commands.run('python3 -m http.server 8000', background=True, timeout=0)
        def listing():
            try:
                return fetch(f'https://{self.box.get_host(8000)}')
            except OSError:
                return None
        self.assertIn(b'signed', eventually(listing, 'the server inside'))

    def test_a_killed_sandbox_says_so_to_its_commands(self):
        box = Sandbox.create(timeout=60)
        command = box.commands.run('sleep 60', background=True)
        box.kill()
        with self.assertRaisesRegex(TimeoutException, 'killed or reached its end of life'):
            command.wait()


class OnlyTheDomainAsync(unittest.IsolatedAsyncioTestCase):
    async def test_commands_and_their_end(self):
        box = await AsyncSandbox.create(timeout=60)
        self.assertEqual((await box.commands.run('echo hi')).stdout, 'hi\n')
        command = await box.commands.run('sleep 60', background=True)
        await box.kill()
        with self.assertRaisesRegex(TimeoutException, 'killed or reached its end of life'):
            await command.wait()
