"""The pages say what is: the coverage table, the API reference, and commands that are run as they stand."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOC = ROOT / 'docs/e2b.md'


class Coverage(unittest.TestCase):
    def test_every_route_stands_in_the_table_and_nothing_else_is_claimed(self):
        with urllib.request.urlopen(os.environ['E2B_API_URL'] + '/openapi.json', timeout=10) as answer:
            paths = json.load(answer)['paths']
        methods = {'get', 'post', 'put', 'patch', 'delete'}
        served = {f'{method.upper()} {path}' for path, item in paths.items() for method in item
                  if method in methods}
        rows = re.findall(r'^\| `([A-Z]+ /[^`]*)` \| (\w+) \|', DOC.read_text(), re.MULTILINE)
        self.assertEqual({state for _, state in rows}, {'same', 'differs', 'absent'})
        self.assertEqual(len(rows), len({route for route, _ in rows}), 'a route stands twice')
        self.assertEqual({route for route, state in rows if state != 'absent'}, served)
        absent = {route for route, state in rows if state == 'absent'}
        self.assertFalse(absent & served)
        for route in absent:
            method, path = re.sub(r'\{\w+\}', 'base', route).split()
            with self.assertRaises(urllib.error.HTTPError) as said:
                urllib.request.urlopen(urllib.request.Request(os.environ['E2B_API_URL'] + path, method=method,
                                                              headers={'X-API-Key': os.environ['E2B_API_KEY']}), timeout=60)
            with said.exception as answer:
                told = json.load(answer)
            self.assertEqual((answer.code, told['code']), (501, 501), route)
            [page] = re.findall(r'docs/\w+\.md', told['message'])
            self.assertTrue((ROOT / page).exists())


class Reference(unittest.TestCase):
    def test_the_api_page_is_what_the_document_says(self):
        run = subprocess.run([ROOT / 'tools/api-docs', '--check'], capture_output=True, text=True, check=False)
        self.assertEqual((run.returncode, run.stderr), (0, ''))

    def test_what_is_served_is_the_document(self):
        with urllib.request.urlopen(os.environ['E2B_API_URL'] + '/api/v1/openapi.json', timeout=10) as answer:
            self.assertEqual(json.load(answer), json.loads((ROOT / 'src/api/v1/openapi.json').read_text()))


class Shared(unittest.TestCase):
    """docs/shared-resources.md names where each bound is enforced and which test shows it."""

    TEXT = (ROOT / 'docs/shared-resources.md').read_text()

    def test_every_file_and_test_that_is_named_is_there(self):
        for path in re.findall(r'`((?:src|tests)/[^`\s]+)`', self.TEXT):
            self.assertTrue((ROOT / path).exists(), path)
        modules = {path.stem: path.read_text() for path in (ROOT / 'tests/system').glob('test_*.py')}
        everything = '\n'.join(modules.values())
        for module, method in re.findall(r'`(test_\w+)(?:\.(test_\w+))?`', self.TEXT):
            text = modules.get(module, everything)
            self.assertTrue(not method and module in modules or f'def {method or module}(' in text, (module, method))

    def test_every_row_is_whole(self):
        rows = [line for line in self.TEXT.splitlines() if line.startswith('|')]
        self.assertGreater(len(rows), 50)
        for row in rows:
            self.assertEqual(row.count('|'), 6, row)


class Commands(unittest.TestCase):
    """Every block marked `sh` of these pages, in one shell, in order. The key and address are the suite's."""

    BEFORE = '''
set -eu -o pipefail
url=$E2B_API_URL/api/v1
api() { curl -sS --fail-with-body -H "X-API-Key: $E2B_API_KEY" "$@"; echo; }
atoll() { "$ATOLL_TEST_BIN" "$@"; }
'''

    def run_page(self, name):
        if not shutil.which('jq') or not shutil.which('curl'):
            self.skipTest('curl and jq are needed to run the pages')
        blocks = re.findall(r'^```sh\n(.*?)^```', (ROOT / 'docs' / name).read_text(), re.MULTILINE | re.DOTALL)
        self.assertGreater(len(blocks), 0)
        script = self.BEFORE + ''.join(f'echo "--- block {i}" >&2\n{block}' for i, block in enumerate(blocks))
        run = subprocess.run(['bash', '-c', script], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(run.returncode, 0, f'{run.stdout[-2000:]}\n{run.stderr[-2000:]}')
        return run.stdout

    def test_the_quick_start(self):
        said = self.run_page('quickstart.md')
        self.assertIn('42', said)
        self.assertIn('have it', said)
        self.assertNotIn('s3cr3t-value', said)

    def test_the_page_of_commands(self):
        said = self.run_page('executions.md')
        self.assertIn('token is [secret:deploy]', said)
        self.assertNotIn('not-for-your-eyes', said)

    def test_the_page_of_agents(self):
        self.assertRegex(self.run_page('agents.md'), r'(?m)^ +1 .* ps ax$')

    def test_the_page_of_events(self):
        said = self.run_page('events.md')
        self.assertIn('data: {"seq":', said)
        self.assertIn(' sandbox.removed', said)
        self.assertIn('"agent": "builder"', said)
        self.assertIn('atoll_sandboxes{state="running"}', said)
        self.assertIn('ready', said)


if __name__ == '__main__':
    unittest.main()
