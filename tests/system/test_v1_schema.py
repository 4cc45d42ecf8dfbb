"""Requests made from the OpenAPI document, right ones and wrong ones, against a server of its own: no answer is a
server's fault, and every answer is what the document says. What was found is shrunk and printed with its request."""
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

from harness.environment import SCHEMATHESIS
from harness.server import ROOT, Server
from harness.v1 import Api

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
SECONDS = int(os.environ.get('ATOLL_TEST_SCHEMA_SECONDS', '40'))
# What it may complain of. Whether wrong data is refused is left to the server's own words (a number in the place of a
# string in a query is a string there), and a method that no path has is answered by 405 in other tests.
CHECKS = ('not_a_server_error', 'status_code_conformance', 'content_type_conformance', 'response_schema_conformance',
          'ignored_auth')


class Schema(unittest.TestCase):
    def test_what_the_document_allows_and_what_it_does_not(self):
        missing = SCHEMATHESIS.reason_missing()
        if missing:
            self.skipTest(missing)
        with tempfile.TemporaryDirectory(prefix='atoll-schema-') as name:
            pathlib.Path(name).chmod(0o755)
            server = Server(BUILD, name, '--pool', '2', '--stop-sandboxes', '--quota', 'sandboxes=4,disk_mb=65536')
            with server:
                self.fuzz(server, Api(server), name)
                self.assertTrue(server.healthy(), server.tail())
            self.assertEqual(server.sanitizer_findings(), '')

    def fuzz(self, server, api, scratch):
        key = api.ask('POST', '/keys', {'name': 'fuzz', 'scopes': [
            'sandboxes:read', 'sandboxes:write', 'execute', 'files', 'secrets', 'audit', 'usage', 'keys']})['key']
        box = api.ask('POST', '/sandboxes', {'timeout': 3600})['id']
        self.assertEqual(api.call('GET', f'/sandboxes/{box}').status, 200)
        began = time.monotonic()
        run = subprocess.run(
            [SCHEMATHESIS.program('schemathesis'), 'run', ROOT / 'src/api/v1/openapi.json', '--url',
             f'http://{server.host}:{server.port}/api/v1', '--header', f'X-API-Key: {key}', '--header',
             'Accept: application/json', '--checks', ','.join(CHECKS), '--max-time', str(SECONDS), '--request-timeout',
             '30', '--phases', 'coverage,fuzzing', '--seed', '7', '--suppress-health-check', 'all', '--warnings', 'off',
             '--exclude-path-regex', '/stream$', '--no-color'],
            cwd=scratch, capture_output=True, text=True, errors='replace', timeout=SECONDS * 6 + 120, check=False,
            env={**os.environ, 'HOME': scratch})
        self.assertEqual(run.returncode, 0,
                         f'after {time.monotonic() - began:.0f} s\n{run.stdout[-6000:]}{run.stderr[-2000:]}')


if __name__ == '__main__':
    unittest.main()
