"""The control plane beside sandboxes: keys, teams, templates, secrets, volumes, the operator's calls."""
import http.client
import json
import os
import pathlib
import tempfile
import time
import unittest
import urllib.parse
import uuid

from harness import volumes
from harness.sandbox import Sandbox
from harness.server import Server

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
UUID = r'^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$'


class Api:
    """Calls with a key: status, headers and decoded answer."""

    def __init__(self, env, **headers):
        self.url = urllib.parse.urlsplit(env['E2B_API_URL'])
        self.headers = headers

    def __call__(self, method, path, body=None, raw=None, headers=None):
        link = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=60)
        link.request(method, path, raw if body is None else json.dumps(body),
                     {'Content-Type': 'application/json', **self.headers, **(headers or {})})
        answer = link.getresponse()
        text = answer.read()
        link.close()
        is_json = answer.headers.get('Content-Type', '').startswith('application/json')
        return answer.status, answer.headers, json.loads(text) if is_json else text

    def ok(self, *args, **more):
        status, _, answer = self(*args, **more)
        if status >= 300:
            raise AssertionError(f'{args}: {status} {answer}')
        return answer

    def status(self, *args, **more):
        return self(*args, **more)[0]


class Plane(unittest.TestCase):
    def setUp(self):
        self.api = Api(os.environ, **{'X-API-Key': os.environ['E2B_API_KEY']})

    def refused(self, status, says, *args, **more):
        got, _, answer = self.api(*args, **more)
        self.assertEqual((got, answer['code']), (status, status), answer)
        self.assertIn(says, answer['message'])


class Keys(Plane):
    def test_key_has_a_maker_a_name_and_a_last_use(self):
        made = self.api.ok('POST', '/api-keys', {'name': 'one'})
        mine = Api(os.environ, **{'X-API-Key': made['key']})
        self.assertRegex(made['createdBy']['id'], UUID)
        self.assertIsNone(made['lastUsed'])
        self.assertEqual(mine('PATCH', f"/api-keys/{made['id']}", {'name': 'two'})[0], 200)
        listed = {key['id']: key for key in mine.ok('GET', '/api-keys')}
        self.assertEqual(listed[made['id']]['name'], 'two')
        self.assertIsNotNone(listed[made['id']]['lastUsed'])
        self.assertNotIn('key', listed[made['id']])
        self.assertEqual(mine.status('DELETE', f"/api-keys/{made['id']}"), 204)
        self.assertEqual(mine.status('GET', '/api-keys'), 401)
        self.refused(404, 'not found', 'PATCH', f"/api-keys/{made['id']}", {'name': 'x'})

    def test_bad_names_are_refused(self):
        for body in ({}, {'name': ''}, {'name': 5}, {'name': 'x' * 101}, []):
            self.assertEqual(self.api.status('POST', '/api-keys', body), 400, body)

    def test_access_tokens_are_gone(self):
        self.refused(410, 'API key', 'POST', '/access-tokens', {'name': 'x'})
        self.refused(404, 'not found', 'DELETE', f'/access-tokens/{uuid.uuid4()}')


class Teams(Plane):
    def test_team_repeats_the_key_that_was_sent_and_makes_none(self):
        before = len(self.api.ok('GET', '/api-keys'))
        bearer = Api(os.environ, Authorization='Bearer ' + os.environ['E2B_API_KEY'])
        for api in (self.api, bearer):
            [team] = api.ok('GET', '/teams')
            self.assertEqual(team['apiKey'], os.environ['E2B_API_KEY'])
            self.assertTrue(team['isDefault'])
            self.assertRegex(team['teamID'], UUID)
        self.assertEqual(len(self.api.ok('GET', '/api-keys')), before)

    def test_metrics_count_sandboxes(self):
        team = self.api.ok('GET', '/teams')[0]['teamID']
        with Sandbox():
            points = self.api.ok('GET', f'/teams/{team}/metrics?start={int(time.time()) - 60}')
            self.assertGreaterEqual(points[-1]['concurrentSandboxes'], 1)
            self.assertGreater(max(point['sandboxStartRate'] for point in points), 0)
            most = self.api.ok('GET', f'/teams/{team}/metrics/max?metric=concurrent_sandboxes')
            self.assertGreaterEqual(most['value'], 1)

    def test_bad_ranges_and_other_teams_are_refused(self):
        team = self.api.ok('GET', '/teams')[0]['teamID']
        self.refused(403, 'no access', 'GET', f'/teams/{uuid.uuid4()}/metrics')
        for query in ('start=9&end=3', 'start=x', 'end=-1', 'start=99999999999999999999'):
            self.assertEqual(self.api.status('GET', f'/teams/{team}/metrics?{query}'), 400, query)
        self.assertEqual(self.api.status('GET', f'/teams/{team}/metrics/max?metric=x'), 400)
        self.assertEqual(self.api.ok('GET', f'/teams/{team}/metrics?start=2147483646&end=2147483647'), [])


class Templates(Plane):
    def test_base_is_shown_everywhere_the_same(self):
        with Sandbox() as sandbox:
            wanted = sandbox.made['templateID']
        base = {t['names'][0]: t for t in self.api.ok('GET', '/templates')}['base']
        self.assertEqual(base['templateID'], wanted)
        self.assertGreaterEqual(base['spawnCount'], 1)
        self.assertIsNotNone(base['lastSpawnedAt'])
        for name in ('base', wanted, 'base:default', 'team%2Fbase'):
            one = self.api.ok('GET', f'/templates/{name}')
            self.assertEqual(one['templateID'], wanted)
            self.assertEqual(one['builds'][0]['buildID'], base['buildID'])
            self.assertEqual(self.api.ok('GET', f'/templates/aliases/{name}')['templateID'], wanted)

    def test_pages_hold_every_template_once(self):
        def lasting(page):  # what another lane tries to do harm with comes and goes
            return [t['names'][0] for t in page if not t['names'][0].startswith('attack-')]
        everything = lasting(self.api.ok('GET', '/templates'))
        seen, token = [], None
        for _ in range(len(everything) + 100):
            query = {'limit': 1, **({'nextToken': token} if token else {})}
            _, headers, page = self.api('GET', '/v2/templates?' + urllib.parse.urlencode(query))
            seen += lasting(page)
            token = headers['X-Next-Token']
            if not token:
                break
        self.assertEqual(seen, everything)
        self.assertEqual(self.api.status('GET', '/v2/templates?limit=0'), 400)
        self.assertEqual(self.api.status('GET', f'/templates?teamID={uuid.uuid4()}'), 400)

    def test_directory_is_not_the_servers_to_delete(self):
        self.refused(404, 'not found', 'DELETE', '/templates/nope')
        with Sandbox():
            self.refused(400, 'based on it', 'DELETE', '/templates/base')

    def test_visibility_follows_from_the_place(self):
        self.assertEqual(self.api.ok('PATCH', '/v2/templates/base', {'public': True}), {'names': ['base']})
        self.refused(400, 'every team', 'PATCH', '/v2/templates/base', {'public': False})

    def test_sandbox_starts_from_a_tag(self):
        tag = f'v{time.time_ns()}'
        self.api.ok('POST', '/templates/tags', {'target': 'base', 'tags': [tag, tag.upper()]})
        with Sandbox(f'base:{tag}'):
            pass
        self.api.ok('POST', '/templates/tags', {'target': f'base:{tag}', 'tags': [tag + '.b']})
        self.assertEqual(self.api.status('DELETE', '/templates/tags',
                                         {'name': 'base', 'tags': [tag, tag + '.b']}), 204)
        self.refused(404, 'does not exist', 'POST', '/v2/sandboxes', {'templateID': f'base:{tag}'})
        self.refused(404, 'does not exist', 'DELETE', '/templates/tags', {'name': 'base', 'tags': [tag]})

    def test_bad_tags_are_refused(self):
        for tags in ([], ['a b'], [''], [str(uuid.uuid4())], ['x' * 65], [5], 'v1', [f'a{n}' for n in range(101)]):
            self.assertEqual(self.api.status('POST', '/templates/tags', {'target': 'base', 'tags': tags}),
                             400, tags)
        self.assertEqual(self.api.status('POST', '/templates/tags', {'target': 'nope', 'tags': ['x']}), 404)
        self.refused(400, 'without a tag', 'DELETE', '/templates/tags', {'name': 'base:v', 'tags': ['x']})


class Secrets(Plane):
    def test_pages_and_metadata(self):
        mark = f'p{time.time_ns()}'
        names = [f'{mark}-{n}' for n in range(3)]
        for name in names:
            self.assertEqual(self.api.status('POST', '/secrets', {'name': name, 'value': 'v'}), 201)
        _, headers, first = self.api('GET', f'/secrets?limit=2&nextToken={mark}')
        self.assertEqual([s['name'] for s in first], names[:2])
        _, headers, rest = self.api('GET', f"/secrets?limit=2&nextToken={headers['X-Next-Token']}")
        self.assertEqual(rest[0]['name'], names[2])
        changed = self.api.ok('POST', f'/secrets/{names[0]}', {'value': 'w', 'metadata': {}})
        self.assertEqual((changed['currentVersion'], changed['metadata']), (2, {}))
        for name in names:
            self.assertEqual(self.api.status('DELETE', f'/secrets/{name.upper()}'), 204)

    def test_limits_are_named(self):
        name = f'l{time.time_ns()}'
        for says, body in (
                ('name', {'value': 'v'}), ('value', {'name': name}), ('value', {'name': name, 'value': ''}),
                ('letters', {'name': 'ü', 'value': 'v'}), ('sec_', {'name': 'sec_a', 'value': 'v'}),
                ('128', {'name': 'n' * 129, 'value': 'v'}),
                ('entries', {'name': name, 'value': 'v', 'metadata': {str(n): '' for n in range(33)}}),
                ('metadata', {'name': name, 'value': 'v', 'metadata': {'k': 'v' * 1025}}),
                ('metadata', {'name': name, 'value': 'v', 'metadata': {'k': 5}})):
            self.refused(400, says, 'POST', '/secrets', body)
        self.refused(404, 'not found', 'POST', f'/secrets/{name}', {'value': 'v'})

    def test_value_stays_out_of_answers_log_and_database(self):
        value = 'never-shown-' + uuid.uuid4().hex
        name = f's{time.time_ns()}'
        made = self.api.ok('POST', '/secrets', {'name': name, 'value': value})
        self.assertNotIn(value, json.dumps(made))
        data = pathlib.Path(os.environ['ATOLL_TEST_DATA'])
        for path in [*(data / 'state').iterdir(), data.parent / 'server.log']:
            if path.is_file():
                self.assertNotIn(value.encode(), path.read_bytes(), path)
        self.assertEqual(self.api.status('DELETE', f"/secrets/{made['secretID']}"), 204)


class Volumes(Plane):
    def setUp(self):
        super().setUp()
        self.volume = self.api.ok('POST', '/volumes', {'name': f'v{time.time_ns()}'})
        self.addCleanup(self.api.status, 'DELETE', f"/volumes/{self.volume['volumeID']}")
        self.open = Api(os.environ, Authorization='Bearer ' + self.volume['token'])
        self.base = f"/volumecontent/{self.volume['volumeID']}"

    def at(self, kind, path, **more):
        return f'{self.base}/{kind}?' + urllib.parse.urlencode({'path': path, **more})

    def on_host(self):
        self.assertEqual(self.open.status('GET', self.at('path', '/')), 200)  # it is in use
        return volumes.on_host(os.environ['ATOLL_TEST_DATA'], self.volume['volumeID'])

    def test_token_is_needed_and_is_the_volumes_own(self):
        for headers in ({}, {'Authorization': 'Bearer ' + 'a' * 64}, {'X-API-Key': os.environ['E2B_API_KEY']},
                        {'Authorization': 'Basic ' + self.volume['token']}):
            self.assertEqual(Api(os.environ, **headers).status('GET', self.at('path', '/')), 401, headers)
        other = f'/volumecontent/{uuid.uuid4()}/path?path=/'
        self.assertEqual(self.open.status('GET', other), 401)
        self.assertEqual(self.api.status('GET', '/volumes/not-a-uuid'), 400)
        self.assertEqual(self.api.status('GET', f'/volumes/{uuid.uuid4()}'), 404)

    def test_links_never_lead_out(self):
        secret = pathlib.Path(tempfile.mkdtemp()) / 'outside'
        secret.write_text('outside')
        secret.parent.chmod(0o755)
        with self.on_host() as root:
            for name, target in (('abs', secret), ('up', '../../../../../..' + str(secret)),
                                 ('proc', '/proc/self/root' + str(secret)), ('dir', secret.parent)):
                (root / name).symlink_to(target)
        for path in ('abs', 'up', 'proc', 'dir/outside', '../../seed', '/../../env'):
            self.assertIn(self.open.status('GET', self.at('file', path)), (400, 404), path)
        self.assertEqual(self.open.status('PUT', self.at('file', 'dir/planted', force='true'), raw='x'), 404)
        self.assertEqual(self.open.status('PUT', self.at('file', 'abs', force='true'), raw='mine'), 201)
        self.assertEqual(secret.read_text(), 'outside')
        self.assertFalse((secret.parent / 'planted').exists())
        entry = self.open.ok('GET', self.at('path', 'up'))
        self.assertEqual((entry['type'], entry['target'][:5]), ('symlink', '../..'))

    def test_half_an_upload_changes_nothing(self):
        url = urllib.parse.urlsplit(os.environ['E2B_API_URL'])
        link = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
        link.putrequest('PUT', self.at('file', '/half'))
        link.putheader('Authorization', 'Bearer ' + self.volume['token'])
        link.putheader('Content-Length', '10000000')
        link.endheaders()
        link.send(b'x' * 2_000_000)
        link.close()
        with self.on_host() as root:
            incoming = root.parent / 'incoming'
            deadline = time.monotonic() + 60
            while list(incoming.iterdir()) and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertEqual(list(incoming.iterdir()), [])
        self.assertEqual(self.open.status('GET', self.at('path', '/half')), 404)

    def test_bad_input_is_refused(self):
        for path in (self.base + '/path', self.at('dir', '/', depth=0), self.at('dir', '/', depth='x'),
                     self.at('path', 'n' * 300), self.base + '/path?path=%00', self.base + '/path?path=%ff'):
            self.assertEqual(self.open.status('GET', path), 400, path)
        for more in ({'mode': 0o4755}, {'mode': -1}, {'uid': 65536}, {'gid': 'x'}, {'force': 'maybe'}):
            self.assertEqual(self.open.status('POST', self.at('dir', '/d', **more)), 400, more)
        self.assertEqual(self.open.status('DELETE', self.at('path', '/')), 400)
        self.assertEqual(self.open.status('PATCH', self.at('path', '/'), raw='{'), 400)

    def test_volume_survives_a_locked_tree(self):
        self.open.ok('POST', self.at('dir', '/locked/in', force='true'))
        self.open.ok('PUT', self.at('file', '/locked/in/f'), raw='x')
        self.open.ok('PATCH', self.at('path', '/locked/in'), {'mode': 0})
        self.assertEqual(self.open.status('GET', self.at('file', '/locked/in/f')), 200)  # as root would
        self.assertEqual(self.open.status('DELETE', self.at('path', '/locked')), 204)
        self.assertEqual(self.open.ok('GET', self.at('dir', '/')), [])


class Document(Plane):
    def test_openapi_is_served_and_every_reference_resolves(self):
        document = Api(os.environ).ok('GET', '/openapi.json')
        schemas = document['components']['schemas']

        def walk(node):
            if isinstance(node, dict):
                if '$ref' in node:
                    self.assertIn(node['$ref'].rsplit('/', 1)[1], schemas)
                for value in node.values():
                    walk(value)
            elif isinstance(node, list):
                for value in node:
                    walk(value)
        walk(document)
        self.assertIn('/v2/sandboxes', document['paths'])

    def test_every_closed_path_wants_a_key(self):
        document = Api(os.environ).ok('GET', '/openapi.json')
        for path, methods in document['paths'].items():
            for method, operation in methods.items():
                if operation['security']:
                    bare = path.replace('{', '').replace('}', '')
                    self.assertEqual(Api(os.environ).status(method.upper(), bare + '?path=/'), 401, (method, path))


class OwnServer(unittest.TestCase):
    """A server of its own, whose operator has a token."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-plane-')
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.scratch.chmod(0o755)
        token = self.scratch / 'token'
        token.write_text('the-operators-own-token\n')
        self.server = Server(BUILD, self.scratch, '--pool', '2', '--stop-sandboxes', '--admin-token-file', token)
        self.addCleanup(self.server.stop)
        self.server.start()
        self.env = self.server.env()
        self.api = Api(self.env, **{'X-API-Key': self.env['E2B_API_KEY']})
        self.admin = Api(self.env, **{'X-Admin-Token': 'the-operators-own-token'})
        self.team = self.api.ok('GET', '/teams')[0]['teamID']


class Operator(OwnServer):
    def test_draining_starts_nothing_and_ends_nothing(self):
        [node] = self.admin.ok('GET', '/nodes')
        self.assertEqual(node['status'], 'ready')
        with Sandbox(env=self.env) as sandbox:
            self.assertEqual(self.admin.status('POST', f"/nodes/{node['id']}", {'status': 'draining'}), 204)
            self.assertEqual(self.api.status('POST', '/v2/sandboxes', {'templateID': 'base'}), 503)
            self.assertEqual(self.api.status('GET', '/health'), 503)
            self.assertEqual(sandbox.run('echo alive').text(), 'alive\n')
            one = self.admin.ok('GET', f"/nodes/{node['id']}")
            self.assertEqual((one['status'], one['sandboxCount'], one['createSuccesses']), ('draining', 1, 1))
            self.assertEqual(self.admin.status('POST', f"/nodes/{node['id']}", {'status': 'asleep'}), 400)
            self.assertEqual(self.admin.status('POST', f"/nodes/{node['id']}", {'status': 'ready'}), 204)
        with Sandbox(env=self.env):
            pass
        self.assertEqual(self.admin.status('GET', '/nodes/nope'), 404)
        self.assertEqual(self.admin.ok('GET', f'/nodes?clusterID={uuid.uuid4()}'), [])

    def test_counts_and_kills_of_a_team(self):
        made = [Sandbox(env=self.env) for _ in range(3)]
        self.assertEqual(self.admin.ok('GET', '/admin/sandboxes/running-counts'), {self.team: 3})
        self.assertEqual(self.admin.ok('POST', f'/admin/teams/{self.team}/sandboxes/kill'),
                         {'killedCount': 3, 'failedCount': 0})
        self.assertEqual(self.api.status('GET', f'/sandboxes/{made[0].id}'), 404)
        self.assertEqual(self.admin.ok('GET', '/admin/sandboxes/running-counts'), {})
        self.assertEqual(self.admin.ok('POST', f'/admin/teams/{self.team}/builds/cancel'),
                         {'cancelledCount': 0, 'failedCount': 0})
        self.assertEqual(self.admin.status('POST', f'/admin/teams/{uuid.uuid4()}/sandboxes/kill'), 404)

    def test_operator_makes_keys_and_acts_for_a_team(self):
        made = self.admin.ok('POST', f'/admin/teams/{self.team}/api-keys', {'name': 'by the operator'})
        self.assertIsNone(made['createdBy'])
        self.assertEqual(Api(self.env, **{'X-API-Key': made['key']}).status('GET', '/volumes'), 200)
        self.assertEqual(self.admin.status('DELETE', f"/admin/teams/{self.team}/api-keys/{made['id']}"), 204)
        self.assertEqual(Api(self.env, **{'X-API-Key': made['key']}).status('GET', '/volumes'), 401)
        self.assertEqual(self.admin.status('GET', '/volumes', headers={'X-Team-ID': self.team}), 200)
        self.assertEqual(self.admin.status('GET', '/volumes', headers={'X-Team-ID': str(uuid.uuid4())}), 401)
        self.assertEqual(self.admin.status('GET', '/volumes'), 401)

    def test_without_the_token_there_is_no_operator(self):
        for headers in ({}, {'X-Admin-Token': ''}, {'X-Admin-Token': 'the-operators-own-toke'},
                        {'X-API-Key': self.env['E2B_API_KEY']}):
            self.assertEqual(Api(self.env, **headers).status('GET', '/nodes'), 401, headers)

    def test_state_outlives_the_server(self):
        volume = self.api.ok('POST', '/volumes', {'name': 'kept'})
        inside = Api(self.env, Authorization='Bearer ' + volume['token'])
        path = f"/volumecontent/{volume['volumeID']}/file?path=/f"
        inside.ok('PUT', path, raw='kept')
        self.api.ok('POST', '/secrets', {'name': 'kept', 'value': 'v'})
        self.api.ok('POST', '/templates/tags', {'target': 'base', 'tags': ['kept']})
        orphan = self.server.data / 'volumes' / str(uuid.uuid4())
        self.server.kill()
        orphan.mkdir()
        (orphan / 'f').write_text('x')
        os.chown(orphan, self.server.data.joinpath('volumes').stat().st_uid, -1)
        self.server.start()
        self.assertEqual(inside.ok('GET', path), b'kept')
        self.assertEqual(self.api.ok('GET', '/secrets/kept')['currentVersion'], 1)
        self.assertIn('kept', [t['tag'] for t in self.api.ok('GET', '/templates/base/tags')])
        deadline = time.monotonic() + 60
        while orphan.exists():
            self.assertLess(time.monotonic(), deadline, 'it is still there')
            time.sleep(0.05)


if __name__ == '__main__':
    unittest.main()
