"""Snapshots by name and tag: what is listed, what a name without a tag stands for, what is removed."""
import os
import time
import unittest
import urllib.parse
import uuid

from harness.sandbox import Sandbox
from test_plane import Api


class Snapshots(unittest.TestCase):
    def setUp(self):
        self.api = Api(os.environ, **{'X-API-Key': os.environ['E2B_API_KEY']})
        self.box = self.enterContext(Sandbox())
        self.name = f'snap-{time.time_ns()}'

    def take(self, name=None):
        made = self.api.ok('POST', f'/sandboxes/{self.box.id}/snapshots', {} if name is None else {'name': name})
        self.addCleanup(self.remove, made['snapshotID'])
        return made

    def remove(self, which):
        return self.api.status('DELETE', '/templates/' + urllib.parse.quote(which, safe=''))

    def listed(self, **query):
        return [s['snapshotID'] for s in self.api.ok('GET', '/snapshots?' + urllib.parse.urlencode(query))]

    def test_names_are_without_the_tag_and_the_id_with_it(self):
        for asked, names in ((self.name, [self.name]), (f'{self.name}:v1', [self.name]), (None, [])):
            made = self.take(asked)
            self.assertEqual(made['names'], names)
            self.assertTrue(made['snapshotID'].endswith(':v1' if asked and ':' in asked else ':default'))
        self.assertEqual(self.take(f' {self.name.upper()}:V1 ')['snapshotID'], f'{self.name}:v1')

    def test_a_tag_finds_its_own_and_a_bare_name_the_newest(self):
        old, new = self.take(self.name)['snapshotID'], self.take(f'{self.name}:v2')['snapshotID']
        self.assertEqual(self.listed(name=self.name), [new])
        self.assertEqual(self.listed(name=f'{self.name}:default'), [old])
        self.assertEqual(self.listed(name=f'{self.name}:v2'), [new])
        self.assertEqual(self.listed(name=f'{self.name}:v3'), [])
        self.assertEqual(self.listed(sandboxID=self.box.id), [new])
        tags = self.api.ok('GET', f'/templates/{self.name}/tags')
        self.assertEqual({tag['tag'] for tag in tags}, {'default', 'v2'})

    def test_an_unnamed_one_is_found_by_its_id(self):
        made = self.take()['snapshotID']
        self.assertEqual(self.listed(name=made.split(':')[0]), [made])

    def test_a_name_without_a_tag_means_all_of_them(self):
        self.take(f'{self.name}:v1')
        self.take(f'{self.name}:v2')
        self.take(f'{self.name}:v3')
        self.assertEqual(self.remove(f'{self.name}:v2'), 204)
        self.assertEqual(self.listed(name=f'{self.name}:v2'), [])
        self.assertEqual(self.api.ok('GET', f'/templates/aliases/{self.name}')['public'], False)
        status, _, answer = self.api('POST', '/v2/sandboxes', {'templateID': self.name})
        self.assertEqual(status, 404, answer)
        self.assertEqual(self.remove(self.name), 204)
        self.assertEqual(self.listed(name=self.name), [])
        self.assertEqual(self.remove(self.name), 404)

    def test_pages_show_each_name_once(self):
        for name in (f'{self.name}-a', f'{self.name}-b', f'{self.name}-a:x', f'{self.name}-c'):
            self.take(name)
        seen, query = [], {'limit': 1, 'sandboxID': self.box.id}
        for _ in range(5):
            _, headers, page = self.api('GET', '/snapshots?' + urllib.parse.urlencode(query))
            seen += [s['snapshotID'] for s in page]
            if not headers['X-Next-Token']:
                break
            self.remove(seen[-1])  # a page goes on also when its last row is gone
            query['nextToken'] = headers['X-Next-Token']
        self.assertEqual(seen[:2], [f'{self.name}-c:default', f'{self.name}-a:x'])
        self.assertIn(f'{self.name}-b:default', seen)

    def test_bad_names_are_refused(self):
        for name in ('', 'a b', 'ü', 'a/b/c', 'a:', ':a', 'a:b:c', 'a:b c', 'foreign/name', '/a', 'x' * 129):
            self.assertEqual(self.api.status('POST', f'/sandboxes/{self.box.id}/snapshots', {'name': name}),
                             400, name)
            if len(name) < 129:
                self.assertEqual(self.api.status('GET', '/snapshots?' + urllib.parse.urlencode({'name': name})),
                                 400, name)
        # Twenty letters and digits are an id, and a UUID is a build's.
        for name in ('x' * 20, 'X1' * 10, f'{"y" * 20}:v1', f'fine:{uuid.uuid4()}'):
            status, _, answer = self.api('POST', f'/sandboxes/{self.box.id}/snapshots', {'name': name})
            self.assertEqual(status, 400, name)
            self.assertIn('id', answer['message'])
        for query in ('limit=0', 'limit=101', 'limit=x', 'sandboxID=A_B', 'nextToken=garbage', 'nextToken=%25'):
            self.assertEqual(self.api.status('GET', f'/snapshots?{query}'), 400, query)


if __name__ == '__main__':
    unittest.main()
