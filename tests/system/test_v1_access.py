"""Who may what over both surfaces: scopes, agents that see only their own, rotation, quotas and the queue.
Each class has a server of its own."""
import concurrent.futures
import http.client
import json
import os
import pathlib
import socket
import tempfile
import time
import unittest
import uuid

from harness.server import Server
from harness.v1 import Api

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
TOKEN = 'the-operator-of-this-test'
SCOPES = ['sandboxes:read', 'sandboxes:write', 'execute', 'files', 'templates', 'volumes', 'secrets:use',
          'secrets', 'keys', 'audit', 'usage', 'admin']


class Case(unittest.TestCase):
    OPTIONS = ()

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-access-')
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)
        cls.scratch.chmod(0o755)
        (cls.scratch / 'token').write_text(TOKEN)
        cls.server = Server(BUILD, cls.scratch, '--pool', '2', '--stop-sandboxes', '--admin-token-file',
                            cls.scratch / 'token', *cls.OPTIONS)
        cls.addClassCleanup(cls.server.stop)
        cls.server.start()
        cls.api = Api(cls.server)
        cls.operator = Api(cls.server, operator=TOKEN)

    def tearDown(self):
        self.assertEqual(self.server.sanitizer_findings(), '')

    def make(self, api=None, **body):
        made = (api or self.api).ask('POST', '/sandboxes', body)
        self.addCleanup(self.api.call, 'DELETE', f"/sandboxes/{made['id']}")
        return made['id']

    def told(self, api, *call, **more):
        answer = api.call(*call, **more)
        return answer.status, (answer.json() if answer.body else {}).get('code')


class Scopes(Case):
    def test_every_route_asks_for_its_scope_and_for_nothing_else(self):
        """As the document says: with that scope it is not 403, with all others it is."""
        document = self.api.ask('GET', '/openapi.json')
        keys = {}

        def key_with(scopes):
            if scopes not in keys:
                keys[scopes] = self.api.key_for(scopes=sorted(scopes))[0]
            return keys[scopes]

        checked = 0
        for path, item in document['paths'].items():
            for method, operation in item.items():
                if operation.get('security') == []:
                    continue
                scopes = frozenset(operation['x-scope'].split())
                where = path.replace('{id}', 'i' + '0' * 20).replace('{name}', 'none').replace('{n}', '1')
                if path == '/events':
                    where += '?format=json'
                without = key_with(frozenset(SCOPES) - scopes)
                self.assertEqual(self.told(without, method.upper(), where), (403, 'missing_scope'), (method, path))
                with_it = key_with(scopes).call(method.upper(), where)
                self.assertNotEqual(with_it.status, 403, (method, path, with_it.body))
                checked += 1
        self.assertGreater(checked, 20)

    def test_e2bs_routes_ask_too(self):
        reader = self.api.key_for(scopes=['sandboxes:read'])[0]
        writer = self.api.key_for(scopes=['sandboxes:write'])[0]
        box = self.make()
        for api, method, path, body, status in (
                (reader, 'GET', '/v2/sandboxes', None, 200), (reader, 'GET', f'/sandboxes/{box}', None, 200),
                (reader, 'POST', '/v2/sandboxes', {'templateID': 'base'}, 403),
                (reader, 'DELETE', f'/sandboxes/{box}', None, 403), (reader, 'GET', '/api-keys', None, 403),
                (reader, 'GET', '/secrets', None, 403), (reader, 'GET', '/volumes', None, 403),
                (reader, 'POST', f'/sandboxes/{box}/pause', {}, 403),
                (reader, 'PUT', f'/sandboxes/{box}/network', {}, 403),
                (writer, 'GET', '/v2/sandboxes', None, 403),
                (writer, 'POST', f'/sandboxes/{box}/timeout', {'timeout': 300}, 204)):
            answer = api.raw(method, path, None if body is None else json.dumps(body),
                             {'Content-Type': 'application/json'})
            self.assertEqual(answer.status, status, (method, path, answer.body))

    def test_what_opens_a_sandbox_is_not_shown_to_who_may_not_use_it(self):
        box = self.make()
        for scopes, sees in ((['sandboxes:read'], False), (['sandboxes:read', 'execute'], False),
                             (['sandboxes:read', 'execute', 'files'], True)):
            api = self.api.key_for(scopes=scopes)[0]
            self.assertEqual(api.ask('GET', f'/sandboxes/{box}')['access'] is not None, sees)
            self.assertEqual('envdAccessToken' in api.raw('GET', f'/sandboxes/{box}').json(), sees)

    def test_secrets_are_used_only_with_their_scope(self):
        self.api.ask('PUT', '/secrets/scoped', {'value': 'some-value'})
        api = self.api.key_for(scopes=['sandboxes:write', 'files'])[0]
        self.assertEqual(self.told(api, 'POST', '/sandboxes', {'secrets': {'A': 'scoped'}}), (403, 'missing_scope'))
        rules = {'rules': {'example.com': [{'transform': {'headers': {'X': '${e2b.secrets.scoped}'}}}]},
                 'allow_out': ['example.com'], 'deny_out': ['0.0.0.0/0']}
        self.assertEqual(self.told(api, 'POST', '/sandboxes', {'network': rules}), (403, 'missing_scope'))
        box = self.make(api)
        self.assertEqual(self.told(api, 'PUT', f'/sandboxes/{box}/network', rules), (403, 'missing_scope'))
        rules = {'rules': rules['rules'], 'allowOut': ['example.com'], 'denyOut': ['0.0.0.0/0']}
        hidden = json.dumps(rules).replace('${', '\\u0024{')
        self.assertEqual(api.raw('PUT', f'/sandboxes/{box}/network', hidden).status, 403)

    def test_volumes_are_mounted_only_with_their_scope(self):
        volume = self.api.raw('POST', '/volumes', json.dumps({'name': 'scoped'})).json()
        self.addCleanup(self.api.raw, 'DELETE', f"/volumes/{volume['volumeID']}")
        agent = self.api.key_for(agent_id='no-volumes')[0]
        self.assertEqual(self.told(agent, 'POST', '/sandboxes', {'volumes': [{'name': 'scoped', 'path': '/v'}]}),
                         (403, 'missing_scope'))
        self.make(volumes=[{'name': 'scoped', 'path': '/v'}])

    def test_a_key_gives_away_no_more_than_it_has(self):
        maker, made = self.api.key_for(scopes=['keys', 'files'], expires_in=1000)
        self.assertEqual(self.told(maker, 'POST', '/keys', {'name': 'x', 'scopes': ['execute']}),
                         (403, 'missing_scope'))
        self.assertEqual(self.told(maker, 'POST', '/keys', {'name': 'x', 'scopes': ['files'], 'expires_in': 5000}),
                         (403, 'outlives_its_maker'))
        lasting = self.api.key_for(scopes=['files'])[1]['id']
        self.assertEqual(self.told(maker, 'POST', f'/keys/{lasting}/rotate', {}), (403, 'outlives_its_maker'))
        child = maker.ask('POST', '/keys', {'name': 'x'})
        self.assertEqual((sorted(child['scopes']), child['expires_at']), (['files', 'keys'], made['expires_at']))
        e2b = maker.raw('POST', '/api-keys', json.dumps({'name': 'y'})).json()
        mine = {key['id']: key for key in self.api.ask('GET', '/keys')['items']}[e2b['id']]
        self.assertEqual((sorted(mine['scopes']), mine['expires_at']), (['files', 'keys'], made['expires_at']))
        first = [key for key in self.api.ask('GET', '/keys')['items'] if key['name'] == 'first'][0]
        self.assertEqual(self.told(maker, 'POST', f"/keys/{first['id']}/rotate"), (403, 'missing_scope'))

    def test_no_spelling_of_an_id_gives_more(self):
        """What begins with an id, and is longer, is no key; else its scopes would not be looked at."""
        maker = self.api.key_for(scopes=['keys'])[0]
        first = [key for key in self.api.ask('GET', '/keys')['items'] if key['name'] == 'first'][0]['id']
        for tail in ('x', '/', '%20', '-', '0' * 40):
            for method, path, body in (('POST', f'/api/v1/keys/{first}{tail}/rotate', '{}'),
                                       ('DELETE', f'/api/v1/keys/{first}{tail}', None),
                                       ('DELETE', f'/api-keys/{first}{tail}', None),
                                       ('PATCH', f'/api-keys/{first}{tail}', '{"name": "stolen"}')):
                answer = maker.raw(method, path.replace(f'{first}/', f'{first}%2f'), body)
                self.assertEqual(answer.status, 404, (method, path, answer.body))
        now = [key for key in self.api.ask('GET', '/keys')['items'] if key['id'] == first][0]
        self.assertEqual((now['name'], now['state']), ('first', 'live'))

    def test_an_agents_key_has_no_scope_that_its_maker_has_not(self):
        maker = self.api.key_for(scopes=['keys'])[0]
        self.assertEqual(self.told(maker, 'POST', '/keys', {'name': 'x', 'agent_id': 'a'}), (403, 'missing_scope'))
        filer = self.api.key_for(scopes=['keys', 'files'])[0]
        self.assertEqual(filer.ask('POST', '/keys', {'name': 'x', 'agent_id': 'a'})['scopes'], ['files'])

    def test_a_key_that_is_rotated_does_not_outlive_who_asked(self):
        """As long a life as the old one had would be longer; and a key that renews itself would have no end."""
        old = self.api.key_for(scopes=['files'], expires_in=300)[1]
        time.sleep(1.1)
        maker, made = self.api.key_for(scopes=['keys', 'files'], expires_in=300)
        for which in (old, made):
            new = maker.ask('POST', f"/keys/{which['id']}/rotate")
            self.assertLessEqual(new['expires_at'], made['expires_at'])
        time.sleep(1.1)
        again = self.api.ask('POST', f"/keys/{new['id']}/rotate")  # who has no end gives it its whole life anew
        self.assertGreater(again['expires_at'], new['expires_at'])

    def test_who_may_not_act_inside_leaves_no_sandbox_open(self):
        """E2B's first create makes one that needs no token, unless it is asked for."""
        for scopes, open_one in ((['sandboxes:write'], False), (['sandboxes:write', 'execute'], False),
                                 (['sandboxes:write', 'execute', 'files'], True)):
            api = self.api.key_for(scopes=scopes)[0]
            for more in ({}, {'secure': False}):
                made = api.raw('POST', '/sandboxes', json.dumps({'templateID': 'base', **more})).json()['sandboxID']
                self.addCleanup(self.api.call, 'DELETE', f'/sandboxes/{made}')
                token = self.api.ask('GET', f'/sandboxes/{made}')['access']['token']
                self.assertEqual(token is None, open_one, (scopes, more))

    def test_what_a_key_may_not_see_is_not_repeated_to_it(self):
        """The answer that an Idempotency-Key remembers was written for who had asked."""
        body, headers = {'timeout': 60}, {'Idempotency-Key': 'the same'.replace(' ', '-')}
        answer = self.api.call('POST', '/sandboxes', body, headers=headers)
        self.addCleanup(self.api.call, 'DELETE', f"/sandboxes/{answer.json()['id']}")
        self.assertTrue(answer.json()['access']['token'])
        lesser = self.api.key_for(scopes=['sandboxes:write'])[0].call('POST', '/sandboxes', body, headers=headers)
        self.addCleanup(self.api.call, 'DELETE', f"/sandboxes/{lesser.json()['id']}")
        self.assertEqual((lesser.status, lesser.json()['access']), (201, None), lesser.body)

    def test_what_is_no_key(self):
        for body, status in (({}, 400), ({'name': ''}, 400), ({'name': 'x', 'scopes': ['fly']}, 400),
                             ({'name': 'x', 'agent_id': 'a b'}, 400), ({'name': 'x', 'scopes': []}, 400),
                             ({'name': 'x', 'expires_in': 0}, 400),
                             ({'name': 'x', 'agent_id': 'a', 'scopes': ['keys']}, 422),
                             ({'name': 'x', 'agent_id': 'a', 'scopes': ['admin', 'files']}, 422)):
            self.assertEqual(self.api.call('POST', '/keys', body).status, status, body)


class Keys(Case):
    def test_rotated_with_an_overlap_both_work_then_only_the_new_one(self):
        old, made = self.api.key_for(agent_id='rotated', scopes=['sandboxes:read'])
        answer = self.api.call('POST', f"/keys/{made['id']}/rotate", {'overlap_s': 8})
        self.assertEqual((answer.status, answer.headers['Cache-Control']), (201, 'no-store'), answer.body)
        new = Api(self.server, answer.json()['key'])
        self.assertEqual((answer.json()['agent_id'], answer.json()['scopes']), ('rotated', ['sandboxes:read']))
        self.assertEqual([api.call('GET', '/sandboxes').status for api in (old, new)], [200, 200])
        listed = {key['id']: key for key in self.api.ask('GET', '/keys')['items']}
        self.assertEqual((listed[made['id']]['state'], listed[made['id']]['replaced_by']),
                         ('rotated', answer.json()['id']))
        self.assertEqual(self.told(self.api, 'POST', f"/keys/{made['id']}/rotate"), (409, 'conflict'))
        time.sleep(8.2)
        self.assertEqual(self.told(old, 'GET', '/sandboxes'), (401, 'key_expired'))
        self.assertEqual(old.raw('GET', '/v2/sandboxes').status, 401)
        self.assertEqual(new.call('GET', '/sandboxes').status, 200)
        listed = {key['id']: key for key in self.api.ask('GET', '/keys')['items']}
        self.assertEqual(listed[made['id']]['state'], 'expired')

    def test_a_key_ends_by_itself_also_over_a_restart(self):
        short, _ = self.api.key_for(expires_in=8)
        self.assertEqual(short.call('GET', '/sandboxes').status, 200)
        self.server.stop()
        self.server.start()
        time.sleep(8)
        self.assertEqual(self.told(short, 'GET', '/sandboxes'), (401, 'key_expired'))

    def test_revoked_at_once(self):
        key, made = self.api.key_for()
        self.assertEqual(self.api.call('DELETE', f"/keys/{made['id']}").status, 204)
        self.assertEqual(self.told(key, 'GET', '/sandboxes'), (401, 'unauthorized'))
        self.assertEqual(self.told(self.api, 'DELETE', f"/keys/{made['id']}"), (404, 'not_found'))
        self.assertEqual(self.told(self.api, 'POST', f'/keys/{uuid.uuid4()}/rotate'), (404, 'not_found'))

    def test_no_key_stands_in_the_log_or_on_the_disk(self):
        made = self.api.ask('POST', '/keys', {'name': 'planted'})
        new = self.api.ask('POST', f"/keys/{made['id']}/rotate", {'overlap_s': 0})
        for text in (made['key'], new['key']):
            self.assertNotIn(text, self.server.log.read_text(errors='replace'))
            for path in self.server.data.rglob('state/*'):
                if path.is_file():
                    self.assertNotIn(text.encode(), path.read_bytes(), path)


class Revoked(Case):
    """What was opened with a key or a token ends with it."""

    def follow(self, api, box):
        """The stream of a command that goes on printing; what it said so far was read."""
        made = self.api.ask('POST', f'/sandboxes/{box}/execute', {'shell': 'while :; do date; sleep 0.1; done',
                                                                  'background': True})
        link = http.client.HTTPConnection(self.server.host, self.server.port, timeout=60)
        self.addCleanup(link.close)
        link.request('GET', f"/api/v1/sandboxes/{box}/executions/{made['execution']}/stream",
                     headers=api.headers({}))
        answer = link.getresponse()
        while b'stdout' not in answer.readline():
            pass
        return answer

    def test_streams_end_with_their_key(self):
        box = self.make()
        ways = {'revoke': lambda made: self.api.ask('DELETE', f"/keys/{made['id']}"),
                'rotate': lambda made: self.api.ask('POST', f"/keys/{made['id']}/rotate", {'overlap_s': 1}),
                'expire': lambda made: None}
        for name, end in ways.items():
            api, made = self.api.key_for(**({'expires_in': 3} if name == 'expire' else {}))
            streams = [self.follow(api, box) for _ in range(2)]
            other = self.follow(self.api, box)
            end(made)
            for stream in streams:
                stream.read()  # to a clean end
            self.assertIn(b'data', b''.join(other.readline() for _ in range(40)), name)  # goes on
            self.assertEqual(api.call('GET', '/sandboxes').status, 401)

    def test_who_waits_for_an_answer_gets_none(self):
        box = self.make()
        api, made = self.api.key_for()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            waits = pool.submit(api.call, 'POST', f'/sandboxes/{box}/execute', {'shell': 'touch /tmp/on; sleep 60'})
            until = time.monotonic() + 60
            there = f'/sandboxes/{box}/files?path=/tmp/on'
            while self.api.call('GET', there).status != 200 and time.monotonic() < until:
                time.sleep(0.05)
            self.api.ask('DELETE', f"/keys/{made['id']}")
            with self.assertRaises((OSError, http.client.HTTPException)):
                waits.result(60)

    def test_a_key_that_revokes_itself_is_answered(self):
        api, made = self.api.key_for()
        self.assertEqual(api.call('DELETE', f"/keys/{made['id']}").status, 204)
        self.assertEqual(api.call('GET', '/keys').status, 401)

    def test_an_agent_has_its_own_volumes_alone(self):
        scopes = [scope for scope in SCOPES if scope not in ('keys', 'admin')]
        agent, other = (self.api.key_for(agent_id=name, scopes=scopes)[0] for name in ('keeper', 'looker'))
        teams, its = (asked.raw('POST', '/volumes', json.dumps({'name': name})).json()
                      for asked, name in ((self.api, 'of-the-team'), (agent, 'of-the-keeper')))
        for volume in (teams, its):
            self.addCleanup(self.api.raw, 'DELETE', f"/volumes/{volume['volumeID']}")
        for asked, volume in ((agent, teams), (other, teams), (other, its)):
            where = f"/volumes/{volume['volumeID']}"
            self.assertEqual(asked.raw('GET', where).status, 404)
            self.assertEqual(asked.raw('POST', f'{where}/rotate-token').status, 404)
            self.assertEqual(asked.call('POST', f'{where}/rotate-token').status, 404)
            self.assertEqual(asked.raw('DELETE', where).status, 404)
            answer = asked.call('POST', '/sandboxes', {'volumes': [{'name': volume['name'], 'path': '/v'}]})
            self.assertEqual(answer.status, 400, answer.body)
        self.assertEqual([[item['name'] for item in asked.raw('GET', '/volumes').json()] for asked in (agent, other)],
                         [['of-the-keeper'], []])
        self.assertEqual(self.content(teams['volumeID'], teams['token'], 'PUT', b'kept'), 201)
        self.assertEqual([event['agent_id'] for event in agent.events(subject=its['volumeID'])], ['keeper'])
        # The team has both; and what it mounts for an agent, the agent may use.
        made = self.make(agent_id='looker', volumes=[{'name': name, 'path': f'/{name}'}
                                                     for name in ('of-the-team', 'of-the-keeper')])
        got = other.ask('POST', f'/sandboxes/{made}/execute', {'shell': 'cat /of-the-team/f'})
        self.assertEqual(got['stdout'], 'kept')
        self.assertEqual(agent.raw('DELETE', f"/volumes/{its['volumeID']}").status, 204)

    def content(self, volume, token, method='GET', body=None):
        return self.api.raw(method, f'/volumecontent/{volume}/file?path=/f&force=true', body,
                            {'Authorization': f'Bearer {token}'}).status

    def test_a_volumes_token_is_replaced(self):
        made = self.api.raw('POST', '/volumes', '{"name": "rotated"}').json()
        volume, first = made['volumeID'], made['token']
        self.assertEqual(self.content(volume, first, 'PUT', b'kept'), 201)
        second = self.api.ask('POST', f'/volumes/{volume}/rotate-token')['token']
        third = self.api.raw('POST', f'/volumes/{volume}/rotate-token').json()['token']
        self.assertEqual(self.api.raw('GET', f'/volumes/{volume}').json()['token'], third)
        self.assertEqual(len({first, second, third}), 3)
        for _ in range(2):
            self.assertEqual([self.content(volume, token) for token in (first, second, third)], [401, 401, 200])
            self.server.stop()
            self.server.start()
        kinds = [event['kind'] for event in self.api.events(subject=volume)]
        self.assertEqual(kinds.count('volume.token_rotated'), 2)
        self.assertEqual(self.told(self.api, 'POST', f'/volumes/{uuid.uuid4()}/rotate-token'), (404, 'not_found'))

    def test_what_an_old_token_has_open_is_cut(self):
        made = self.api.raw('POST', '/volumes', '{"name": "cut"}').json()
        self.assertEqual(self.content(made['volumeID'], made['token'], 'PUT', b'there'), 201)
        for method, what, half, rest in (('PUT', 'file', b'half', b' more!'), ('PATCH', 'path', b'{"mod', b'e":0}')):
            made = self.api.raw('GET', f"/volumes/{made['volumeID']}").json()
            link = http.client.HTTPConnection(self.server.host, self.server.port, timeout=60)
            self.addCleanup(link.close)
            link.putrequest(method, f"/volumecontent/{made['volumeID']}/{what}?path=/f&force=true")
            link.putheader('Authorization', f"Bearer {made['token']}")
            link.putheader('Content-Type', 'application/json')
            link.putheader('Content-Length', str(len(half + rest)))
            link.endheaders(half)
            time.sleep(0.2)
            self.api.ask('POST', f"/volumes/{made['volumeID']}/rotate-token")
            with self.subTest(method), self.assertRaises((OSError, http.client.HTTPException)):
                link.send(rest)
                link.getresponse()

    def test_the_operators_token_reaches_no_service(self):
        box = self.make()
        code = ('import http.server as h\nclass E(h.BaseHTTPRequestHandler):\n def do_GET(s):\n  '
                's.send_response(200); s.end_headers(); s.wfile.write(str(s.headers).encode())\n'
                "h.HTTPServer(('127.0.0.1', 8000), E).serve_forever()\n")
        self.api.ask('POST', f'/sandboxes/{box}/execute', {'argv': ['python3', '-c', code], 'background': True})
        for token, passes in ((TOKEN, False), (TOKEN[:-1], True)):
            until, answer = time.monotonic() + 60, None
            while (not answer or answer.status == 502) and time.monotonic() < until:
                answer = self.operator.raw('GET', '/', headers={
                    'E2b-Sandbox-Id': box, 'E2b-Sandbox-Port': '8000', 'X-Admin-Token': token,
                    'Authorization': f'Bearer {token}'})
            self.assertEqual((answer.status, token.encode() + b'\n' in answer.body), (200, passes), answer.body)


class Log(Case):
    OPTIONS = ('--log-level', 'debug')

    def test_every_answer_stands_in_the_finest_log_by_its_request_id(self):
        agent, _ = self.api.key_for(agent_id='logged')
        agent.call('GET', '/sandboxes', headers={'X-Request-Id': 'find-me-again'})
        deadline = time.monotonic() + 30
        while 'request_id=find-me-again' not in self.server.log.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        line = [text for text in self.server.log.read_text().splitlines() if 'request_id=find-me-again' in text]
        self.assertEqual(len(line), 1)
        for word in ('method=GET', 'status=200', 'agent_id=logged', 'path=/api/v1/sandboxes'):
            self.assertIn(word, line[0].replace('"', ''))


class Agents(Case):
    """What one agent's key finds of another's: nothing, on every route of both surfaces."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.mine, _ = cls.api.key_for(agent_id='mine')
        cls.other, _ = cls.api.key_for(agent_id='other', scopes=[
            'sandboxes:read', 'sandboxes:write', 'execute', 'files', 'secrets:use', 'audit', 'usage', 'templates'])

    def test_sandboxes_are_the_keys_agents_on_both_surfaces(self):
        v1 = self.make(self.mine)
        e2b = self.mine.raw('POST', '/v2/sandboxes', json.dumps({'templateID': 'base'})).json()['sandboxID']
        self.addCleanup(self.api.call, 'DELETE', f'/sandboxes/{e2b}')
        for box in (v1, e2b):
            self.assertEqual(self.api.ask('GET', f'/sandboxes/{box}')['agent_id'], 'mine')
        self.assertEqual({b['id'] for b in self.mine.ask('GET', '/sandboxes')['items']}, {v1, e2b})
        self.assertEqual({b['sandboxID'] for b in self.mine.raw('GET', '/v2/sandboxes').json()}, {v1, e2b})
        self.assertEqual(self.other.ask('GET', '/sandboxes')['items'], [])
        self.assertEqual(self.other.raw('GET', '/v2/sandboxes').json(), [])
        self.assertEqual(self.other.raw('GET', '/sandboxes').json(), [])
        self.assertEqual(self.other.ask('GET', '/sandboxes?agent_id=mine&state=ended,running,paused')['items'], [])
        self.assertEqual(self.told(self.other, 'POST', '/sandboxes', {'agent_id': 'mine'}), (403, 'not_your_agent'))
        body = {'templateID': 'base', 'metadata': {'atoll.agent_id': 'mine'}}
        self.assertEqual(self.other.raw('POST', '/v2/sandboxes', json.dumps(body)).status, 403)

    def test_e2bs_metadata_names_agent_and_task(self):
        body = {'templateID': 'base', 'metadata': {'atoll.agent_id': 'told', 'atoll.task_id': 't9', 'k': 'v'}}
        box = self.api.raw('POST', '/sandboxes', json.dumps(body)).json()['sandboxID']
        self.addCleanup(self.api.call, 'DELETE', f'/sandboxes/{box}')
        told = self.api.ask('GET', f'/sandboxes/{box}')
        self.assertEqual((told['agent_id'], told['task_id'], told['metadata']['k']), ('told', 't9', 'v'))
        body['metadata']['atoll.agent_id'] = 'no name'
        self.assertEqual(self.api.raw('POST', '/sandboxes', json.dumps(body)).status, 400)

    def routes(self, document, box):
        for path, item in document['paths'].items():
            for method, operation in item.items():
                if '/sandboxes/{id}' in path and operation.get('security') != []:
                    yield method.upper(), path.replace('{id}', box).replace('{n}', '1')

    def test_anothers_sandbox_does_not_exist_on_any_route(self):
        box = self.make(self.mine, files=[{'path': '/tmp/mine', 'content': 'private'}])
        ended = self.make(self.mine)
        self.mine.call('DELETE', f'/sandboxes/{ended}')
        bodies = {'extend': {'by': 5}, 'execute': {'shell': 'id'}, 'timeout': {'timeout': 5},
                  'connect': {'timeout': 5}, 'network': {}, 'refreshes': {}}
        checked = 0
        for surface, prefix in ((self.api.ask('GET', '/openapi.json'), '/api/v1'),
                                (self.api.raw('GET', '/openapi.json').json(), '')):
            for target in (box, ended):
                for method, path in self.routes(surface, target):
                    if prefix == '' and target == ended and 'metrics' in path:
                        continue
                    query = '?path=/tmp/mine' if '/files' in path else ''
                    body = json.dumps(bodies.get(path.rsplit('/', 1)[-1], {})) if method in ('POST', 'PUT') else None
                    answer = self.other.raw(method, f'{prefix}{path}{query}', body,
                                            {'Content-Type': 'application/json'})
                    self.assertEqual(answer.status, 404, (method, prefix + path, answer.body))
                    self.assertNotIn(b'private', answer.body)
                    checked += 1
        self.assertGreater(checked, 30)
        metrics = self.other.raw('GET', f'/sandboxes/metrics?sandbox_ids={box}')
        self.assertNotIn(box.encode(), metrics.body)
        self.assertEqual(self.mine.ask('GET', f'/sandboxes/{box}')['state'], 'running')
        self.assertEqual(self.mine.raw('GET', f'/api/v1/sandboxes/{box}/files?path=/tmp/mine').body, b'private')

    def test_anothers_snapshot_cannot_be_started_deleted_or_taken_over(self):
        box = self.make(self.mine)
        name = f'mine{uuid.uuid4().hex[:6]}'
        snap = self.mine.ask('POST', f'/sandboxes/{box}/snapshot', {'name': name})
        self.addCleanup(self.api.raw, 'DELETE', f"/templates/{snap['template_id']}")
        for which in (name, snap['snapshot'], snap['template_id']):
            self.assertEqual(self.other.call('POST', '/sandboxes', {'template': which}).status, 404, which)
            self.assertEqual(self.other.raw('DELETE', f'/templates/{which}').status, 404, which)
        self.assertNotIn(name.encode(), self.other.raw('GET', '/snapshots').body)
        self.assertIn(name.encode(), self.mine.raw('GET', '/snapshots').body)
        own = self.make(self.other)  # whose names are its own: it does not learn that there is such a one
        same = self.other.ask('POST', f'/sandboxes/{own}/snapshot', {'name': name})
        self.addCleanup(self.api.raw, 'DELETE', f"/templates/{same['template_id']}")
        for api, meant in ((self.mine, snap), (self.other, same)):
            made = api.ask('GET', f'/sandboxes/{self.make(api, template=name)}')
            self.assertEqual((same['snapshot'], made['template_id']), (snap['snapshot'], meant['template_id']))
        team = self.make()
        shared = f'team{uuid.uuid4().hex[:6]}'
        self.api.ask('POST', f'/sandboxes/{team}/snapshot', {'name': shared})
        self.make(self.other, template=shared)
        self.assertEqual(self.other.raw('DELETE', f'/templates/{shared}').status, 404)
        self.assertEqual(self.api.raw('DELETE', f'/templates/{shared}').status, 204)

    def marked(self, api, word, name=None):
        """A snapshot whose files say whose it is."""
        box = self.make(api, files=[{'path': '/home/user/whose', 'content': word}])
        snap = api.ask('POST', f'/sandboxes/{box}/snapshot', {'name': name} if name else {})
        self.addCleanup(self.api.raw, 'DELETE', f"/templates/{snap['template_id']}")
        return snap

    def whose(self, api, template):
        made = api.call('POST', '/sandboxes', {'template': template, 'timeout': 60})
        if made.status != 201:
            return made.status
        box = made.json()['id']
        self.addCleanup(self.api.call, 'DELETE', f'/sandboxes/{box}')
        return self.api.raw('GET', f'/api/v1/sandboxes/{box}/files?path=/home/user/whose').body.decode()

    def test_an_agents_name_never_stands_for_what_the_team_means(self):
        team = self.marked(self.api, 'team')
        agents = self.make(self.mine)
        for path in (f'/api/v1/sandboxes/{agents}/snapshot', f'/sandboxes/{agents}/snapshots'):
            for name in (team['template_id'], team['template_id'].upper(), f"{team['template_id']}:default",
                         self.api.raw('GET', '/templates').json()[0]['templateID']):
                answer = self.mine.raw('POST', path, json.dumps({'name': name}))
                self.assertEqual(answer.status, 400, (name, answer.body))
        self.assertEqual(self.whose(self.api, team['template_id']), 'team')
        name = f'both{uuid.uuid4().hex[:6]}'
        theirs = self.marked(self.mine, 'agent', name)
        # The team has nothing of that name yet: it finds it by its id alone, and is shown that.
        quoted = theirs['template_id'] + '%3Adefault'
        self.assertEqual(self.whose(self.api, name), 404)
        for path in (f'/templates/{name}', f'/templates/{name}/tags', f'/templates/aliases/{name}'):
            self.assertEqual(self.api.raw('GET', path).status, 404, path)
            self.assertEqual(self.mine.raw('GET', path).status, 200, path)
        self.assertEqual(self.api.raw('GET', f'/v2/sandboxes?template={name}').json(), [])
        self.assertEqual(self.api.raw('DELETE', f'/templates/{name}').status, 404)
        listed = {s['snapshotID']: s['names'] for s in self.api.raw('GET', '/snapshots').json()}
        self.assertEqual(listed[f"{theirs['template_id']}:default"], [name])
        self.assertEqual(self.api.raw('GET', f'/templates/{quoted}').status, 200)
        # Then it has, and each means its own.
        ours = self.marked(self.api, 'team', name)
        self.assertNotEqual(ours['template_id'], theirs['template_id'])
        self.assertEqual([self.whose(self.api, which) for which in (name, f'{name}:default', theirs['template_id'])],
                         ['team', 'team', 'agent'])
        self.assertEqual((self.whose(self.mine, name), self.whose(self.other, name)), ('agent', 'team'))
        self.assertEqual(self.mine.raw('DELETE', f'/templates/{name}').status, 204)
        self.assertEqual((self.whose(self.mine, name), self.whose(self.api, name)), ('team', 'team'))

    def test_an_agent_cannot_put_its_snapshot_in_a_templates_place(self):
        box = self.make(self.mine)
        for api, path in ((self.mine, f'/api/v1/sandboxes/{box}/snapshot'), (self.mine, f'/sandboxes/{box}/snapshots')):
            for name in ('base', 'BASE', 'base:default', 'base:mine'):
                answer = api.raw('POST', path, json.dumps({'name': name}))
                self.assertEqual(answer.status, 409, (name, answer.body))
        # The team may name it so; but what is an agent's still does not stand for the server's own.
        snap = self.api.ask('POST', f'/sandboxes/{box}/snapshot', {'name': 'base'})
        self.addCleanup(self.api.raw, 'DELETE', f"/templates/{snap['template_id']}")
        for made in (self.make(), self.make(template='base'), self.make(self.mine, template='base')):
            self.assertNotEqual(self.api.ask('GET', f'/sandboxes/{made}')['template_id'], snap['template_id'])
        by_id = self.make(template=snap['template_id'])
        self.assertEqual(self.api.ask('GET', f'/sandboxes/{by_id}')['template_id'], snap['template_id'])

    def test_the_team_and_the_operator_see_all_and_another_team_would_not(self):
        box = self.make(self.mine)
        self.assertEqual(self.api.ask('GET', f'/sandboxes/{box}')['agent_id'], 'mine')
        self.assertIn(box, {b['id'] for b in self.operator.ask('GET', '/sandboxes')['items']})
        self.assertEqual(self.operator.ask('GET', f'/sandboxes/{box}')['id'], box)
        team = self.api.ask('GET', '/quota')['team_id']
        as_team = {'X-Team-ID': team}
        self.assertEqual(self.operator.call('GET', '/quota', headers=as_team).status, 200)
        self.assertEqual(self.operator.call('GET', '/quota').status, 400)
        self.assertEqual(self.operator.call('POST', '/sandboxes', {}).status, 400)
        self.assertEqual(self.operator.call('GET', '/sandboxes', headers={'X-Team-ID': 'nobody'}).status, 400)
        self.assertEqual(Api(self.server, operator='wrong-token-of-a-length').call('GET', '/sandboxes').status, 401)
        self.assertEqual(self.operator.call('DELETE', f'/sandboxes/{box}').status, 204)


class Quota(Case):
    OPTIONS = ('--quota', 'disk_mb=4096')

    def setUp(self):
        self.addCleanup(self.api.call, 'PUT', '/quota', {})
        self.addCleanup(self.nobody_waits)

    def nobody_waits(self):
        """A client that has gone is given a second by the server, and some may have been served meanwhile."""
        deadline = time.monotonic() + 90
        while (used := self.api.ask('GET', '/quota')['used'])['waiting'] or used['sandboxes'] or used['paused']:
            self.assertLess(time.monotonic(), deadline, used)
            for box in self.api.ask('GET', '/sandboxes')['items']:
                self.api.call('DELETE', f"/sandboxes/{box['id']}")
            time.sleep(0.05)

    def refused(self, says, **body):
        answer = self.api.call('POST', '/sandboxes', body)
        self.assertEqual((answer.status, answer.json()['code']), (429, 'quota_exceeded'), answer.body)
        self.assertIn(says, answer.json()['message'])
        self.assertGreaterEqual(int(answer.headers['Retry-After']), 1)
        return answer

    def test_each_kind_says_its_number(self):
        self.api.ask('PUT', '/quota', {'sandboxes': 2, 'memory_mb': 700})
        for _ in range(2):
            self.make(memory_mb=256, disk_mb=256)
        used = self.api.ask('GET', '/quota')
        self.assertEqual(used['quota'], {'sandboxes': 2, 'per_minute': None, 'memory_mb': 700, 'disk_mb': 4096})
        self.assertEqual((used['used']['sandboxes'], used['used']['memory_mb'], used['used']['disk_mb']), (2, 512, 512))
        self.refused('2 sandboxes at once')
        e2b = self.api.raw('POST', '/v2/sandboxes', json.dumps({'templateID': 'base'}))
        self.assertEqual(e2b.status, 429, e2b.body)
        self.api.ask('PUT', '/quota', {'memory_mb': 700})
        self.refused('700 MiB of memory', memory_mb=256, disk_mb=256)
        self.make(memory_mb=128, disk_mb=256)
        self.api.ask('PUT', '/quota', {})
        self.refused('4096 MiB of disk', memory_mb=128, disk_mb=4096)

    def test_starts_in_a_minute(self):
        before = self.api.ask('GET', '/quota')['used']['per_minute']
        self.make(disk_mb=128)
        self.assertGreater(self.api.ask('GET', '/quota')['used']['per_minute'], 0)  # counted before there is a quota
        most = before + 3
        self.api.ask('PUT', '/quota', {'per_minute': most})
        made = 0
        while (answer := self.api.call('POST', '/sandboxes', {'disk_mb': 128})).status == 201:
            made += 1
            self.assertLess(made, 200)
        self.assertGreaterEqual(made, 2)
        self.assertEqual(answer.json()['code'], 'quota_exceeded', answer.body)
        self.assertIn(f'{most} new sandboxes a minute', answer.json()['message'])
        self.assertLessEqual(int(answer.headers['Retry-After']), 60)

    def test_forks_and_resumes_count(self):
        box = self.make(disk_mb=128)
        self.api.ask('POST', f'/sandboxes/{box}/pause')
        self.api.ask('PUT', '/quota', {'sandboxes': 1})
        other = self.make(disk_mb=128)
        self.assertEqual(self.told(self.api, 'POST', f'/sandboxes/{box}/resume'), (429, 'quota_exceeded'))
        self.assertEqual(self.api.call('POST', f'/sandboxes/{other}/fork').status, 429)

    def test_a_fork_is_held_to_the_ceilings_of_now(self):
        box = self.make(disk_mb=128, memory_mb=512)
        path = f"/admin/teams/{self.api.ask('GET', '/quota')['team_id']}/limits"
        self.addCleanup(self.operator.raw, 'PATCH', path, json.dumps({'memoryMB': None}))
        self.assertEqual(self.operator.raw('PATCH', path, json.dumps({'memoryMB': 256})).status, 204)
        [fork] = self.api.ask('POST', f'/sandboxes/{box}/fork')['items']
        self.assertEqual(fork['limits']['memory_mb'], 256)

    def test_those_that_are_brought_back_at_once_count_for_each_other(self):
        boxes = [self.make(disk_mb=128, memory_mb=256) for _ in range(4)]
        for box in boxes:
            self.api.ask('POST', f'/sandboxes/{box}/pause', {'memory': False})
        self.assertEqual(self.api.ask('GET', '/quota')['used']['memory_mb'], 0)
        self.api.ask('PUT', '/quota', {'memory_mb': 512})
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            told = list(pool.map(lambda box: self.api.call('POST', f'/sandboxes/{box}/resume').status, boxes))
        self.assertEqual(sorted(told), [200, 200, 429, 429])

    def test_who_waits_is_served_in_the_order_of_coming(self):
        self.api.ask('PUT', '/quota', {'sandboxes': 1})
        first = self.make(disk_mb=128)
        order = []

        def wait(n):
            answer = self.api.call('POST', '/sandboxes', {'wait': 120, 'disk_mb': 128}, timeout=150)
            if answer.status == 201:
                order.append(n)
                self.api.call('DELETE', f"/sandboxes/{answer.json()['id']}")
            return answer.status

        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            waiting = []
            for n in range(5):
                waiting.append(pool.submit(wait, n))
                deadline = time.monotonic() + 60
                while self.api.ask('GET', '/quota')['used']['waiting'] != n + 1:
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.01)
            self.refused('others wait already', disk_mb=128)  # nobody goes before them
            self.assertEqual(self.api.call('DELETE', f'/sandboxes/{first}').status, 204)
            self.assertEqual([w.result() for w in waiting], [201] * 5)
        self.assertEqual(order, sorted(order))

    def test_waiting_ends_with_its_time_or_its_client(self):
        self.api.ask('PUT', '/quota', {'sandboxes': 1})
        first = self.make(disk_mb=128)
        began = time.monotonic()
        self.refused('1 sandboxes at once', wait=1, disk_mb=128)
        self.assertGreaterEqual(time.monotonic() - began, 0.9)
        body = json.dumps({'wait': 60, 'disk_mb': 128}).encode()
        link = socket.create_connection((self.server.host, self.server.port))
        link.sendall(b'POST /api/v1/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Key: ' + self.api.key.encode() +
                     b'\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
        deadline = time.monotonic() + 60
        while self.api.ask('GET', '/quota')['used']['waiting'] != 1:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        link.close()
        while self.api.ask('GET', '/quota')['used']['waiting'] != 0:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        self.api.call('DELETE', f'/sandboxes/{first}')
        self.assertEqual(self.api.ask('GET', '/sandboxes')['items'], [])

    def test_who_waited_under_an_idempotency_key_and_left_can_come_again(self):
        self.api.ask('PUT', '/quota', {'sandboxes': 1})
        first = self.make(disk_mb=128)
        body = {'wait': 60, 'disk_mb': 128}
        text = json.dumps(body).encode()
        with socket.create_connection((self.server.host, self.server.port)) as link:
            link.sendall(b'POST /api/v1/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Key: ' + self.api.key.encode() +
                         b'\r\nIdempotency-Key: left\r\nContent-Length: %d\r\n\r\n' % len(text) + text)
            self.until_waiting(1)
        self.until_waiting(0)
        self.assertEqual(self.operator.raw('GET', '/nodes').json()[0]['sandboxStartingCount'], 0)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            again = pool.submit(self.api.call, 'POST', '/sandboxes', body, {'Idempotency-Key': 'left'}, 90)
            self.until_waiting(1)
            self.api.call('DELETE', f'/sandboxes/{first}')
            self.assertEqual(again.result().status, 201, again.result().body)

    def test_who_comes_again_while_its_first_request_waits_keeps_its_place(self):
        self.api.ask('PUT', '/quota', {'sandboxes': 1})
        first = self.make(disk_mb=128)
        body = {'wait': 60, 'disk_mb': 128}
        text = json.dumps(body).encode()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            with socket.create_connection((self.server.host, self.server.port)) as link:
                link.sendall(b'POST /api/v1/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Key: ' + self.api.key.encode() +
                             b'\r\nIdempotency-Key: stays\r\nContent-Length: %d\r\n\r\n' % len(text) + text)
                self.until_waiting(1)
                again = pool.submit(self.api.call, 'POST', '/sandboxes', body, {'Idempotency-Key': 'stays'}, 90)
                time.sleep(0.5)
            time.sleep(2)
            self.assertEqual(self.api.ask('GET', '/quota')['used']['waiting'], 1)
            self.api.call('DELETE', f'/sandboxes/{first}')
            self.assertEqual(again.result().status, 201, again.result().body)

    def until_waiting(self, n):
        deadline = time.monotonic() + 60
        while self.api.ask('GET', '/quota')['used']['waiting'] != n:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def test_the_queue_is_bounded_and_others_are_not_held_up(self):
        self.api.ask('PUT', '/quota', {'sandboxes': 1})
        self.make(disk_mb=128)
        links = []
        self.addCleanup(lambda: [link.close() for link in links])
        body = json.dumps({'wait': 60, 'disk_mb': 128}).encode()
        for _ in range(105):
            link = socket.create_connection((self.server.host, self.server.port))
            link.sendall(b'POST /api/v1/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Key: ' + self.api.key.encode() +
                         b'\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
            links.append(link)
        deadline = time.monotonic() + 60
        while self.api.ask('GET', '/quota')['used']['waiting'] != 100:
            self.assertLess(time.monotonic(), deadline, self.api.ask('GET', '/quota'))
            time.sleep(0.05)
        began = time.monotonic()
        self.assertEqual(self.api.call('GET', '/sandboxes').status, 200)
        self.assertLess(time.monotonic() - began, 20)

    def test_what_is_no_quota(self):
        for body in ([], {'sandboxes': 0}, {'sandboxes': 'x'}, {'boxes': 1}, {'disk_mb': 10 ** 12}):
            self.assertEqual(self.api.call('PUT', '/quota', body).status, 400, body)
        lower = self.api.key_for(scopes=['sandboxes:read', 'sandboxes:write'])[0]
        self.assertEqual(self.told(lower, 'PUT', '/quota', {}), (403, 'missing_scope'))

    def test_it_holds_after_a_restart(self):
        self.api.ask('PUT', '/quota', {'sandboxes': 7})
        self.server.stop()
        self.server.start()
        self.assertEqual(self.api.ask('GET', '/quota')['quota']['sandboxes'], 7)


if __name__ == '__main__':
    unittest.main()
