"""The coverage table of docs/e2b.md says what the server's routes say."""
import json
import os
import pathlib
import re
import unittest
import urllib.request

DOC = pathlib.Path(__file__).resolve().parents[2] / 'docs/e2b.md'


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
        self.assertFalse({route for route, state in rows if state == 'absent'} & served)


if __name__ == '__main__':
    unittest.main()
