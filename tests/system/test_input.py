"""Every field with the wrong type, range, length or encoding is refused, by the field's name and never by
a failure of ours; and what belongs to another team is not there."""
import os
import sqlite3
import time
import unittest
import urllib.parse
import uuid

from harness.sandbox import Sandbox
from test_plane import Api, OwnServer

HUGE = 10 ** 30
ANY = (5, 1.5, 'x', True, [], {}, [1], {'a': 1})


def other_than(*kinds):
    """Values that are of none of these types."""
    return [v for v in ANY if type(v) not in kinds]


class Create(unittest.TestCase):
    def setUp(self):
        self.api = Api(os.environ, **{'X-API-Key': os.environ['E2B_API_KEY']})

    def refused(self, path, body):
        status, _, answer = self.api('POST', path, body)
        self.assertEqual((status, answer['code']), (400, 400), (path, body, answer))

    def test_fields_of_create(self):
        token = {'audience': 'a', 'tokenType': 'JWT-SVID'}
        wrong = {
            'templateID': [*other_than(str), '', 'a b', 'base:', 'ü', 'x' * 300, None],
            'timeout': [*other_than(int), '60', 0, -1, HUGE, 10 ** 9],
            'metadata': [*other_than(dict), {'k': 1}, {'k': None}],
            'envVars': [*other_than(dict), {'k': 1}, {'': 'v'}, {'a=b': 'v'}],
            'secure': other_than(bool), 'allow_internet_access': other_than(bool),
            'autoPause': other_than(bool), 'autoPauseMemory': [*other_than(bool), False],
            'autoResume': [*other_than(dict), {}, {'enabled': 'yes'}, {'enabled': None}],
            'network': [*other_than(dict), {'denyOut': ['example.com']}, {'denyOut': 'x'}, {'denyOut': ['::']},
                        {'allowOut': ['example.com']}, {'allowPublicTraffic': 'no'},
                        {'maskRequestHost': 'a\r\nb'}, {'maskRequestHost': 'ü'}, {'rules': 5},
                        {'httpsPorts': 'x'}, {'httpsPorts': [0]}, {'httpsPorts': [65536]},
                        {'httpsPorts': ['80']}, {'httpsPorts': [49983]}, {'httpsPorts': list(range(1, 200))}],
            'iam': [*other_than(dict), {'tokens': 5}, {'tokens': {'t': 5}}, {'tokens': {'t': {}}},
                    {'tokens': {'': token}}, {'tokens': {'t': {**token, 'audience': ''}}},
                    {'tokens': {'t': {**token, 'tokenType': 'JWT'}}},
                    {'tokens': {str(n): token for n in range(6)}}],
            'volumeMounts': [*other_than(list), [5], [{}], [{'name': 'x'}]],
        }
        for path in ('/sandboxes', '/v2/sandboxes'):
            for field, values in wrong.items():
                for value in values:
                    if value == {} and field in ('metadata', 'envVars', 'network', 'iam'):
                        continue
                    self.refused(path, {'templateID': 'base', field: value})

    def test_iam_is_checked_first_and_then_not_offered(self):
        token = {'audience': 'a', 'tokenType': 'JWT-SVID'}
        for tokens, says in (({str(n): token for n in range(6)}, 'too many tokens: 6 (max 5)'),
                             ({'t': {'tokenType': 'JWT-SVID'}}, 'iam.tokens.t.audience: audience is required'),
                             ({'t': {'audience': 'a', 'tokenType': 'x'}}, 'iam.tokens.t.tokenType'),
                             ({'t': token}, 'not available')):
            status, _, answer = self.api('POST', '/v2/sandboxes', {'templateID': 'base', 'iam': {'tokens': tokens}})
            self.assertEqual(status, 400)
            self.assertIn(says, answer['message'])
        for iam in (None, {}, {'tokens': {}}, {'tokens': None}):
            with Sandbox(iam=iam):
                pass

    def test_bodies_that_are_no_object(self):
        for raw in ('', '{', '[]', 'null', '"x"', '{"templateID":"base"}x', '{"templateID":"base","templateID":"base"}',
                    '{"templateID":"\\ud800"}', '{"templateID":"a\\u0000"}', '[' * 100):
            status, _, _ = self.api('POST', '/v2/sandboxes', raw=raw)
            self.assertEqual(status, 400, raw)
        self.assertEqual(self.api('POST', '/v2/sandboxes', raw=b'{"templateID":"\xff"}')[0], 400)
        self.assertEqual(self.api('POST', '/v2/sandboxes', raw=' ' * (17 << 20))[0], 413)


class One(unittest.TestCase):
    """Calls that name a sandbox."""

    @classmethod
    def setUpClass(cls):
        cls.api = Api(os.environ, **{'X-API-Key': os.environ['E2B_API_KEY']})
        cls.box = cls.enterClassContext(Sandbox())

    def test_bodies(self):
        for call, wrong in {
                'timeout': [{}, {'timeout': None}, *({'timeout': v} for v in (*other_than(int), '5', HUGE))],
                'refreshes': [{'duration': v} for v in (*other_than(int), -1, 3601, '5')],
                'connect': [{}, *({'timeout': v} for v in (*other_than(int), -1, HUGE, 10 ** 9)),
                            {'timeout': 5, 'memory': 'x'}],
                'pause': [{'memory': v} for v in other_than(bool)],
                'fork': [{'count': v} for v in (*other_than(int), 0, -1, 101, HUGE)] +
                        [{'timeout': v} for v in (*other_than(int), 0, -1, 10 ** 9)],
                'snapshots': [{'name': v} for v in other_than(str)]}.items():
            for body in wrong:
                status, _, answer = self.api('POST', f'/sandboxes/{self.box.id}/{call}', body)
                self.assertEqual((status, answer['code']), (400, 400), (call, body, answer))
        self.assertEqual(self.api.ok('GET', f'/sandboxes/{self.box.id}')['state'], 'running')

    def test_queries(self):
        for path, wrong in {
                f'/sandboxes/{self.box.id}/metrics': ('start=x', 'end=-1', 'start=5&end=4', f'start={HUGE}', 'start='),
                f'/sandboxes/{self.box.id}/logs': ('start=x', 'start=-1', 'limit=-1', 'limit=1001', f'start={HUGE}'),
                f'/v2/sandboxes/{self.box.id}/logs': ('cursor=x', 'cursor=-1', 'limit=1001', 'direction=up',
                                                      'level=loud', 'search=' + 'x' * 257),
                '/sandboxes/metrics': ('', 'sandbox_ids=A_B', 'sandbox_ids=' + 'a,' * 100 + 'a', 'sandbox_ids=a,,b'),
                '/sandboxes': ('metadata=a', 'metadata=a%3D%25zz'),
                '/v2/sandboxes': ('limit=0', 'limit=101', 'limit=x', 'limit=1.5', 'state=gone', 'state=', 'order=up',
                                  'startedAfter=yesterday', 'template=base%3Adefault', 'template=a%20b',
                                  'nextToken=garbage', 'metadata=a%3Db%3Dc', 'limit=%zz')}.items():
            for query in wrong:
                self.assertEqual(self.api.status('GET', f'{path}?{query}'), 400, (path, query))

    def test_ids(self):
        for bad in ('A', 'a_b', 'a-b-c', '%C3%BC', 'a%2Fb', '..', '%20'):
            self.assertEqual(self.api.status('GET', f'/sandboxes/{bad}'), 400, bad)
            self.assertEqual(self.api.status('POST', f'/sandboxes/{bad}/pause', {}), 400, bad)
        for bad in ('a%00', '%ff', '%zz'):
            self.assertIn(self.api.status('GET', f'/sandboxes/{bad}'), (400, 404), bad)
        self.assertEqual(self.api.ok('GET', f'/sandboxes/{self.box.id}-6532622b')['sandboxID'], self.box.id)
        self.assertEqual(self.api.status('GET', '/sandboxes/' + 'a' * 5000), 404)

    def test_logs_in_both_directions(self):
        path = f'/v2/sandboxes/{self.box.id}/logs'
        for _ in range(2):
            self.api.ok('POST', f'/sandboxes/{self.box.id}/pause', {})
            self.api.ok('POST', f'/sandboxes/{self.box.id}/resume', {'timeout': 300})
        back = [e['message'] for e in self.api.ok('GET', path)['logs']]
        self.assertEqual(back[-1], 'sandbox.created')
        self.assertEqual([e['message'] for e in self.api.ok('GET', path + '?direction=forward')['logs']], back[::-1])
        self.assertEqual(self.api.ok('GET', path + '?limit=1')['logs'][0]['message'], 'sandbox.resumed')
        self.assertEqual(self.api.ok('GET', path + '?limit=0')['logs'], [])
        self.assertEqual(self.api.ok('GET', path + '?level=warn')['logs'], [])
        found = self.api.ok('GET', path + '?search=paused&limit=1&direction=forward')['logs']
        self.assertEqual([e['message'] for e in found], ['sandbox.paused'])
        self.assertEqual(self.api.ok('GET', path + '?cursor=1')['logs'], [])
        now = int(time.time() * 1000) + 60_000
        self.assertEqual(self.api.ok('GET', f'{path}?direction=forward&cursor={now}')['logs'], [])

    def test_logs_outlive_the_sandbox(self):
        with Sandbox() as box:
            pass
        last = self.api.ok('GET', f'/v2/sandboxes/{box.id}/logs')['logs'][0]
        self.assertEqual(last['message'], 'sandbox.ended')
        self.assertIn('killed through the API', last['fields']['data'])
        self.assertEqual(self.api.status('GET', f'/v2/sandboxes/i{"z" * 20}/logs'), 404)

    def test_network_replaces_the_way_out_and_keeps_the_way_in(self):
        with Sandbox(network={'allowPublicTraffic': False, 'maskRequestHost': 'h:${PORT}',
                              'denyOut': ['1.2.3.4']}) as box:
            path = f'/sandboxes/{box.id}/network'
            self.assertEqual(self.api.status('PUT', path, {'allowOut': ['8.8.8.8'], 'denyOut': ['0.0.0.0/0']}), 204)
            network = self.api.ok('GET', f'/sandboxes/{box.id}')['network']
            self.assertEqual(network, {'allowPublicTraffic': False, 'maskRequestHost': 'h:${PORT}',
                                       'allowOut': ['8.8.8.8'], 'denyOut': ['0.0.0.0/0']})
            self.assertEqual(self.api.status('PUT', path, {}), 204)
            network = self.api.ok('GET', f'/sandboxes/{box.id}')['network']
            self.assertEqual(network, {'allowPublicTraffic': False, 'maskRequestHost': 'h:${PORT}'})
            for body in ({'denyOut': ['example.com']}, {'allowOut': ['a.example.com']}, [], {'allowOut': 'x'},
                         {'foo': 1}, {'allowPublicTraffic': True}, {'httpsPorts': [9]}):
                self.assertEqual(self.api.status('PUT', path, body), 400, body)


class Foreign(OwnServer):
    """Two teams: nothing of the one exists for the other."""

    def setUp(self):
        super().setUp()
        team = str(uuid.uuid4())
        self.server.stop()
        [base] = (self.server.data / 'state').glob('*.db')
        with sqlite3.connect(base) as link:
            link.execute('INSERT INTO teams (id, name, created_us) VALUES (?, ?, 1)', (team, 'others'))
        link.close()
        self.server.start()
        key = self.admin.ok('POST', f'/admin/teams/{team}/api-keys', {'name': 'theirs'})['key']
        self.theirs = Api(self.env, **{'X-API-Key': key})

    def test_ids_of_others_are_not_there(self):
        box = Sandbox(env=self.env)
        named = self.api.ok('POST', f'/sandboxes/{box.id}/snapshots', {'name': 'mine'})['snapshotID']
        secret = self.api.ok('POST', '/secrets', {'name': 'mine', 'value': 'v'})['secretID']
        volume = self.api.ok('POST', '/volumes', {'name': 'mine'})['volumeID']
        key = self.api.ok('POST', '/api-keys', {'name': 'mine'})['id']
        quoted = urllib.parse.quote(named, safe='')
        for method, path, body in (
                ('GET', f'/sandboxes/{box.id}', None), ('DELETE', f'/sandboxes/{box.id}', None),
                ('POST', f'/sandboxes/{box.id}/timeout', {'timeout': 1}),
                ('POST', f'/sandboxes/{box.id}/refreshes', {}), ('POST', f'/sandboxes/{box.id}/pause', {}),
                ('POST', f'/sandboxes/{box.id}/resume', {}), ('POST', f'/sandboxes/{box.id}/connect', {'timeout': 1}),
                ('POST', f'/v2/sandboxes/{box.id}/connect', {}), ('POST', f'/sandboxes/{box.id}/fork', {}),
                ('POST', f'/sandboxes/{box.id}/snapshots', {}), ('PUT', f'/sandboxes/{box.id}/network', {}),
                ('GET', f'/sandboxes/{box.id}/metrics', None), ('GET', f'/sandboxes/{box.id}/logs', None),
                ('GET', f'/v2/sandboxes/{box.id}/logs', None),
                ('POST', '/v2/sandboxes', {'templateID': named}), ('POST', '/v2/sandboxes', {'templateID': 'mine'}),
                ('GET', f'/templates/{quoted}', None), ('DELETE', f'/templates/{quoted}', None),
                ('GET', '/templates/aliases/mine', None), ('GET', '/templates/mine/tags', None),
                ('GET', f'/secrets/{secret}', None), ('GET', '/secrets/mine', None),
                ('POST', f'/secrets/{secret}', {'value': 'x'}), ('DELETE', '/secrets/mine', None),
                ('GET', f'/volumes/{volume}', None), ('DELETE', f'/volumes/{volume}', None),
                ('PATCH', f'/api-keys/{key}', {'name': 'x'}), ('DELETE', f'/api-keys/{key}', None)):
            status, _, answer = self.theirs(method, path, body)
            self.assertEqual((status, answer['code']), (404, 404), (method, path, answer))
        for path in ('/sandboxes', '/v2/sandboxes', '/snapshots', '/secrets', '/volumes', '/snapshots?name=mine',
                     f'/snapshots?sandboxID={box.id}'):
            self.assertEqual(self.theirs.ok('GET', path), [], path)
        self.assertEqual(self.theirs.ok('GET', f'/sandboxes/metrics?sandbox_ids={box.id}'), {'sandboxes': {}})
        self.assertEqual(box.run('echo untouched').text(), 'untouched\n')
        self.assertEqual(self.api.ok('GET', '/secrets/mine')['currentVersion'], 1)


if __name__ == '__main__':
    unittest.main()
