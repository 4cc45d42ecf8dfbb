"""Every operation of both OpenAPI documents, asked by another agent of the team and by another team about what is not
theirs: it is not there (404), or not for them (401, 403), nothing of it is in an answer, and nothing has changed. An
operation that the table does not have fails the test, so that nobody adds one without saying whose it is."""
import concurrent.futures
import json
import os
import pathlib
import tempfile
import time
import unittest
import urllib.parse

from harness.server import Server
from harness.v1 import Api, another_team

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
TOKEN = 'the-operator-of-two-teams'
MARK = 'xq7private'  # in all that is the victim's
OWN = {200, 201, 204, 404, 409}  # about the caller's own, whatever there is of it

# What the other agent and the other team are told.
GONE = ({404}, {404})
THEIRS = (OWN, OWN)
OPEN = ({200}, {200})
OPERATORS = ({401}, {401})
NO_AGENTS = ({403}, OWN)  # the team's, which an agent's key has nothing to do with
NOT_YOURS = ({403}, {404})
TABLE = {
    'GET /api/v1/openapi.json': OPEN, 'GET /api/v1/health': OPEN, 'GET /api/v1/ready': OPEN,
    'GET /api/v1/events': THEIRS, 'GET /api/v1/audit': THEIRS, 'GET /api/v1/usage': THEIRS,
    'GET /api/v1/metrics': NO_AGENTS, 'GET /api/v1/quota': THEIRS, 'PUT /api/v1/quota': ({403}, {403}),
    'GET /api/v1/sandboxes': THEIRS, 'POST /api/v1/sandboxes': GONE, 'POST /api/v1/run': GONE,
    'GET /api/v1/sandboxes/{id}': GONE, 'DELETE /api/v1/sandboxes/{id}': GONE,
    'POST /api/v1/sandboxes/{id}/pause': GONE, 'POST /api/v1/sandboxes/{id}/resume': GONE,
    'POST /api/v1/sandboxes/{id}/extend': GONE, 'PUT /api/v1/sandboxes/{id}/network': GONE,
    'POST /api/v1/sandboxes/{id}/snapshot': GONE,
    'POST /api/v1/sandboxes/{id}/fork': GONE, 'GET /api/v1/sandboxes/{id}/files': GONE,
    'PUT /api/v1/sandboxes/{id}/files': GONE, 'DELETE /api/v1/sandboxes/{id}/files': GONE,
    'GET /api/v1/sandboxes/{id}/files/list': GONE, 'POST /api/v1/sandboxes/{id}/execute': GONE,
    'GET /api/v1/sandboxes/{id}/executions': GONE, 'GET /api/v1/sandboxes/{id}/executions/{n}': GONE,
    'GET /api/v1/sandboxes/{id}/executions/{n}/logs': GONE, 'GET /api/v1/sandboxes/{id}/executions/{n}/stream': GONE,
    'POST /api/v1/sandboxes/{id}/executions/{n}/cancel': GONE,
    'GET /api/v1/artifacts': THEIRS, 'GET /api/v1/artifacts/{id}': GONE, 'DELETE /api/v1/artifacts/{id}': GONE,
    'GET /api/v1/rules/commands': NO_AGENTS, 'PUT /api/v1/rules/commands': NO_AGENTS,
    'GET /api/v1/keys': NO_AGENTS, 'POST /api/v1/keys': NO_AGENTS, 'POST /api/v1/keys/{id}/rotate': NOT_YOURS,
    'DELETE /api/v1/keys/{id}': NOT_YOURS, 'GET /api/v1/secrets': NO_AGENTS,
    'PUT /api/v1/secrets/{name}': NO_AGENTS, 'DELETE /api/v1/secrets/{name}': NO_AGENTS,
    'POST /api/v1/volumes/{id}/rotate-token': NOT_YOURS,
    'GET /api/v1/sandboxes/{id}/network': GONE, 'PATCH /api/v1/sandboxes/{id}/network': GONE,
    'GET /api/v1/templates': THEIRS, 'GET /api/v1/templates/{id}': GONE, 'DELETE /api/v1/templates/{id}': GONE,
    'GET /api/v1/snapshots': THEIRS, 'GET /api/v1/snapshots/{id}': GONE, 'DELETE /api/v1/snapshots/{id}': GONE,
    'PATCH /api/v1/snapshots/{id}': GONE,
    'GET /api/v1/volumes': NO_AGENTS, 'POST /api/v1/volumes': NO_AGENTS, 'GET /api/v1/volumes/{id}': NOT_YOURS,
    'DELETE /api/v1/volumes/{id}': NOT_YOURS,

    'GET /health': OPEN, 'GET /openapi.json': OPEN,
    'POST /sandboxes': GONE, 'POST /v2/sandboxes': GONE, 'GET /sandboxes': THEIRS, 'GET /v2/sandboxes': THEIRS,
    'GET /sandboxes/metrics': THEIRS, 'GET /sandboxes/{id}': GONE, 'DELETE /sandboxes/{id}': GONE,
    'POST /sandboxes/{id}/timeout': GONE, 'POST /sandboxes/{id}/refreshes': GONE,
    'POST /sandboxes/{id}/connect': GONE, 'POST /v2/sandboxes/{id}/connect': GONE,
    'POST /sandboxes/{id}/pause': GONE, 'POST /sandboxes/{id}/resume': GONE, 'POST /sandboxes/{id}/fork': GONE,
    'PUT /sandboxes/{id}/network': GONE, 'GET /sandboxes/{id}/metrics': GONE, 'GET /sandboxes/{id}/logs': GONE,
    'GET /v2/sandboxes/{id}/logs': GONE, 'GET /events/sandboxes/{id}': GONE,
    'POST /sandboxes/{id}/snapshots': GONE, 'GET /snapshots': THEIRS,
    'GET /teams': THEIRS, 'GET /teams/{id}/limits': ({200}, {403}), 'GET /teams/{id}/metrics': ({403}, {403}),
    'GET /teams/{id}/metrics/max': ({403}, {403}),
    'GET /api-keys': NO_AGENTS, 'POST /api-keys': NO_AGENTS, 'PATCH /api-keys/{id}': NOT_YOURS,
    'DELETE /api-keys/{id}': NOT_YOURS, 'POST /access-tokens': ({403}, {410}), 'DELETE /access-tokens/{id}': NOT_YOURS,
    'GET /templates': THEIRS, 'GET /v2/templates': THEIRS, 'GET /templates/{id}': GONE, 'DELETE /templates/{id}': GONE,
    'PATCH /templates/{id}': GONE, 'PATCH /v2/templates/{id}': GONE, 'GET /templates/{id}/tags': GONE,
    'GET /templates/aliases/{alias}': GONE, 'POST /templates/tags': GONE, 'DELETE /templates/tags': GONE,
    'GET /secrets': NO_AGENTS, 'POST /secrets': NO_AGENTS, 'GET /secrets/{id}': NOT_YOURS,
    'POST /secrets/{id}': NOT_YOURS, 'DELETE /secrets/{id}': NOT_YOURS,
    'GET /volumes': NO_AGENTS, 'POST /volumes': NO_AGENTS, 'GET /volumes/{id}': NOT_YOURS,
    'DELETE /volumes/{id}': NOT_YOURS, 'POST /volumes/{id}/rotate-token': NOT_YOURS,
    **{f'{method} /volumecontent/{{id}}/{what}': OPERATORS for method, what in (
        ('GET', 'path'), ('PATCH', 'path'), ('DELETE', 'path'), ('GET', 'dir'), ('POST', 'dir'), ('GET', 'file'),
        ('PUT', 'file'))},
    **{operation: OPERATORS for operation in (
        'GET /nodes', 'GET /nodes/{id}', 'POST /nodes/{id}', 'GET /admin/sandboxes/running-counts',
        'POST /admin/teams/{id}/sandboxes/kill', 'POST /admin/teams/{id}/builds/cancel', 'GET /admin/teams',
        'GET /admin/teams/{id}/limits', 'PUT /admin/teams/{id}/limits', 'PATCH /admin/teams/{id}/limits',
        'GET /admin/teams/{id}/activity', 'PUT /admin/teams/{id}/activity',
        'GET /admin/teams/{id}/environment', 'PUT /admin/teams/{id}/environment',
        'POST /admin/teams/{id}/api-keys', 'DELETE /admin/teams/{id}/api-keys/{key}')},
}


class Tenants(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-tenants-')
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)
        cls.scratch.chmod(0o755)
        (cls.scratch / 'token').write_text(TOKEN)
        cls.server = Server(BUILD, cls.scratch, '--pool', '2', '--stop-sandboxes', '--admin-token-file',
                            cls.scratch / 'token')
        cls.addClassCleanup(cls.server.stop)
        cls.server.start()
        cls.api = Api(cls.server)
        cls.operator = Api(cls.server, operator=TOKEN)
        cls.team = cls.api.ask('GET', '/quota')['team_id']
        cls.stranger = another_team(cls.server, cls.operator)
        cls.mine, cls.my_key = cls.api.key_for(agent_id='mine', name=MARK)
        cls.other, _ = cls.api.key_for(agent_id='other', scopes=[
            'sandboxes:read', 'sandboxes:write', 'execute', 'files', 'secrets:use', 'audit', 'usage', 'templates'])
        cls.make_victim()

    def tearDown(self):
        self.assertEqual(self.server.sanitizer_findings(), '')

    @classmethod
    def make_victim(cls):
        """One of everything, with the mark in it."""
        box = cls.mine.ask('POST', '/sandboxes', {
            'task_id': MARK, 'metadata': {'k': MARK}, 'timeout': 3600,
            'files': [{'path': f'/tmp/{MARK}', 'content': MARK}]})['id']
        ran = cls.mine.ask('POST', f'/sandboxes/{box}/execute', {'shell': f'echo {MARK}'})
        ended = cls.mine.ask('POST', '/sandboxes', {'metadata': {'k': MARK}})['id']
        cls.mine.ask('POST', f'/sandboxes/{ended}/execute', {'shell': f'echo {MARK}'})
        cls.mine.ask('DELETE', f'/sandboxes/{ended}')
        paused = cls.mine.ask('POST', '/sandboxes', {'metadata': {'k': MARK}, 'timeout': 3600})['id']
        cls.mine.ask('POST', f'/sandboxes/{paused}/execute', {'shell': f'echo {MARK}'})
        cls.mine.ask('POST', f'/sandboxes/{paused}/pause')
        snap = cls.mine.ask('POST', f'/sandboxes/{box}/snapshot', {'name': MARK})
        run = cls.mine.ask('POST', '/run', {'shell': f'echo {MARK} > out', 'artifacts': ['out']})
        secret = cls.api.raw('POST', '/secrets', json.dumps({'name': MARK, 'value': MARK * 2})).json()
        volume = cls.api.raw('POST', '/volumes', json.dumps({'name': MARK})).json()
        cls.theirs = cls.stranger.raw('POST', '/volumes', json.dumps({'name': 'theirs'})).json()
        cls.api.ask('PUT', '/rules/commands', {'agent_id': 'nobody', 'programs': [MARK]})
        cls.boxes = {'running': box, 'paused': paused, 'ended': ended}
        cls.volume = volume
        cls.names = {
            'box': box, 'n': str(ran['execution']), 'snap': snap['template_id'], 'alias': MARK,
            'artifact': run['artifacts'][0]['id'], 'secret': secret['secretID'], 'volume': volume['volumeID'],
            'key': cls.my_key['id'], 'team': cls.team}
        assert cls.content('PUT', 'file', body=MARK).status == 201

    @classmethod
    def content(cls, method, what, body=None, token=None, path=f'/{MARK}'):
        """In the volume, by its own token unless said."""
        query = urllib.parse.urlencode({'path': path})
        return cls.api.raw(method, f"/volumecontent/{cls.volume['volumeID']}/{what}?{query}", body,
                           {'X-API-Key': 'none', 'Authorization': f"Bearer {token or cls.volume['token']}"})

    # ---- what is asked ----

    def operations(self):
        for prefix, document in (('/api/v1', self.api.ask('GET', '/openapi.json')),
                                 ('', self.api.raw('GET', '/openapi.json').json())):
            for path, item in document['paths'].items():
                for method in item:
                    yield method.upper(), prefix + path

    def place(self, method, path, box):
        """With the victim's names in it, and a query that would find something."""
        which = {'/sandboxes/{id}': box, '/artifacts': self.names['artifact'], '/keys': self.names['key'],
                 '/api-keys': self.names['key'], '/access-tokens': self.names['key'], '/teams': self.names['team'],
                 '/templates': self.names['snap'], '/snapshots/': self.names['snap'], '/secrets': self.names['secret'],
                 '/volume': self.names['volume'], '/nodes': 'local'}
        for part, name in which.items():
            if part in path:
                path = path.replace('{id}', name)
        path = path.replace('{n}', self.names['n']).replace('{alias}', MARK).replace('{name}', MARK)
        path = path.replace('{key}', self.names['key'])
        query = {'path': '/tmp' if path.endswith('/list') else f'/tmp/{MARK}'} if '/files' in path else {}
        if 'volumecontent' in path:
            query = {'path': f'/{MARK}'}
        if path == '/sandboxes/metrics':
            query = {'sandbox_ids': ','.join(self.boxes.values())}
        if path.startswith('/api/v1/') and path.rsplit('/', 1)[1] in ('events', 'audit', 'usage'):
            query = {'format': 'json', 'team_id': self.team, 'task_id': MARK}
        if (method, path) == ('GET', '/api/v1/sandboxes'):
            query = {'state': 'running,paused,ended', 'task_id': MARK}
        if path.endswith('/metrics/max'):
            query = {'metric': 'concurrent_sandboxes'}
        return f'{path}?{urllib.parse.urlencode(query)}' if query else path

    BODIES = {
        'POST /api/v1/sandboxes': {'template': MARK},
        'POST /api/v1/run': {'shell': 'true', 'sandbox': {'template': MARK}},
        'POST /sandboxes': {'templateID': MARK}, 'POST /v2/sandboxes': {'templateID': MARK},
        'POST /api/v1/keys': {'name': 'new'}, 'POST /api-keys': {'name': 'new'},
        'PATCH /api-keys/{id}': {'name': 'new'},
        'PUT /api/v1/secrets/{name}': {'value': 'theirs'}, 'POST /secrets': {'name': 'own', 'value': 'theirs'},
        'POST /secrets/{id}': {'value': 'theirs'}, 'POST /volumes': {'name': 'own'},
        'POST /api/v1/volumes': {'name': 'own-too'}, 'PATCH /api/v1/snapshots/{id}': {'name': 'stolen'},
        'POST /templates/tags': {'target': MARK, 'tags': ['stolen']},
        'DELETE /templates/tags': {'name': MARK, 'tags': ['stolen']},
        'PUT /api/v1/rules/commands': {'agent_id': 'nobody', 'programs': ['ls']},
        'POST /nodes/{id}': {'status': 'draining'},
        'extend': {'by': 5}, 'execute': {'shell': 'id'}, 'timeout': {'timeout': 5}, 'connect': {'timeout': 5},
    }

    def ask(self, who, method, path, box):
        body = self.BODIES.get(f'{method} {path}', self.BODIES.get(path.rsplit('/', 1)[-1], {}))
        more = {'Content-Type': 'application/json', 'X-Team-ID': self.team}
        if 'volumecontent' in path and who is self.stranger:
            more['Authorization'] = f"Bearer {self.theirs['token']}"
        return who.raw(method, self.place(method, path, box), None if method == 'GET' else json.dumps(body), more)

    # ---- what there is ----

    def boxes_now(self):
        volatile = ('usage', 'used', 'health', 'health_since', 'health_why', 'state')
        now = []
        for item in self.api.ask('GET', '/sandboxes?state=running,paused,ended')['items']:
            if item['agent_id'] == 'mine':
                now.append({name: value for name, value in item.items() if name not in volatile} |
                           {'ended': item['state'] == 'ended', 'paused': item['state'] == 'paused'})
        return now

    def state(self):
        """All that could have been changed, as its owners see it."""
        box = self.names['box']
        key = [item for item in self.api.ask('GET', '/keys')['items'] if item['id'] == self.names['key']]
        return {
            'boxes': self.boxes_now(),
            'executions': self.mine.ask('GET', f'/sandboxes/{box}/executions'),
            'file': self.mine.raw('GET', f'/api/v1/sandboxes/{box}/files?path=/tmp/{MARK}').body,
            'artifacts': self.mine.ask('GET', '/artifacts'),
            'snapshots': self.mine.raw('GET', '/snapshots').json(),
            'tags': [tag['tag'] for tag in self.mine.raw('GET', f'/templates/{MARK}/tags').json()],
            'secrets': self.api.raw('GET', '/secrets').json(), 'volumes': self.api.raw('GET', '/volumes').json(),
            'content': self.content('GET', 'file').body,
            'key': [(item['name'], item['state'], item['replaced_by'], item['expires_at']) for item in key],
            'rules': self.api.ask('GET', '/rules/commands?agent_id=nobody'),
            'quota': self.api.ask('GET', '/quota')['quota'],
            'node': self.operator.raw('GET', '/nodes').json()[0]['status'],
        }

    # ---- the tests ----

    def check(self, who, index, operation, box, before):
        method, path = operation
        name = f'{method} {path}'
        answer = self.ask(who, method, path, box)
        told = (name, index, box, answer.status, answer.body[:300])
        self.assertIn(answer.status, TABLE[name][index], told)
        body = answer.body.replace(f"'{MARK}".encode(), b'').replace(f' {MARK}'.encode(), b'')  # the name that was sent
        if name == 'PUT /api/v1/secrets/{name}' and answer.status == 201:  # one's own, of the same name
            who.ask('DELETE', f'/secrets/{MARK}')
        else:
            self.assertNotIn(MARK.encode(), body, told)
        if method != 'GET':
            self.assertEqual(self.state(), before, told)

    def test_requests_are_remembered_for_each_team(self):
        """Of the memory for answers, 64 MiB, each has an eighth."""
        body, key = json.dumps({'shell': 'date +%N'}), {'Idempotency-Key': 'once'}
        first = self.api.raw('POST', '/api/v1/run', body, key)
        self.assertEqual(first.status, 200, first.body)
        wide = json.dumps({'shell': "head -c 40000 /dev/zero | tr '\\0' '\\1'"})  # 240 KB in JSON

        def flood(i):
            answer = self.stranger.raw('POST', '/api/v1/run', wide, {'Idempotency-Key': f'flood-{i}'})
            self.assertEqual(answer.status, 200, answer.body)
            return answer.headers['Idempotent-Replayed']
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            self.assertEqual(set(pool.map(flood, range(40))), {None})
        self.assertEqual((flood(39), flood(0)), ('true', None))
        again = self.api.raw('POST', '/api/v1/run', body, key)
        self.assertEqual((again.headers['Idempotent-Replayed'], again.body), ('true', first.body))

    def test_metrics_are_of_ones_own_team(self):
        def counts(api, **headers):
            text = api.call('GET', '/metrics', headers=headers).body.decode()
            return dict(line.rsplit(' ', 1) for line in text.splitlines() if not line.startswith('#'))

        deadline = time.monotonic() + 60
        made = 'atoll_sandboxes_created_total{template="base"}'
        while float(counts(self.operator).get(made, 0)) < 4 and time.monotonic() < deadline:
            time.sleep(0.1)
        mine, theirs, all_of = counts(self.api), counts(self.stranger), counts(self.operator)
        self.assertGreaterEqual(float(mine[made]), 4)
        self.assertGreaterEqual(float(mine['atoll_sandboxes{state="running"}']), 1)
        self.assertEqual((theirs.get(made), theirs['atoll_sandboxes{state="running"}']), (None, '0'))
        self.assertFalse([name for name in theirs if 'execut' in name and 'count' in name])
        self.assertFalse([name for name in theirs if 'sandboxes/{id}/execute' in name])
        for of_server in ('atoll_store_seconds_count', 'atoll_feed_readers', 'atoll_event_head',
                          'atoll_breaker_state{runtime="local"}'):
            self.assertIn(of_server, all_of)
            self.assertNotIn(of_server, mine)
        self.assertEqual(counts(self.operator, **{'X-Team-ID': self.team})['atoll_sandboxes{state="paused"}'], '1')

    def test_what_is_anothers_is_not_there_on_any_operation(self):
        operations = list(self.operations())
        self.assertEqual({f'{method} {path}' for method, path in operations} ^ set(TABLE), set(),
                         'say in the table whose it is')
        before = self.state()
        self.assertIn(MARK, json.dumps({k: v for k, v in before.items() if not isinstance(v, bytes)}))
        for index, who in enumerate((self.other, self.stranger)):
            for operation in operations:
                boxes = self.boxes.values() if '/sandboxes/{id}' in operation[1] else [self.names['box']]
                for box in boxes:
                    if box == self.boxes['running'] or 'metrics' not in operation[1]:
                        self.check(who, index, operation, box, before)
        self.assertEqual(self.state(), before)

    def test_its_owner_finds_it_with_the_same_words(self):
        """Else the other test would be about misspelt names."""
        found = 0
        for name, (told, _) in TABLE.items():
            method, path = name.split()
            if method != 'GET' or told != {404} or path.endswith('/stream'):
                continue
            answer = self.ask(self.mine, method, path, self.names['box'])
            self.assertEqual(answer.status, 200, (name, answer.body[:300]))
            found += 1
        self.assertGreater(found, 12)

    def test_nothing_of_it_stands_in_the_victims_log(self):
        """Who was refused has done nothing there."""
        for who in (self.other, self.stranger):
            self.ask(who, 'DELETE', '/api/v1/sandboxes/{id}', self.names['box'])
            self.ask(who, 'POST', '/api/v1/sandboxes/{id}/execute', self.names['box'])
        mine = [event for event in self.mine.events() if not event['kind'].startswith('key.')]
        self.assertEqual({event['actor'] for event in mine}, {self.names['key'], 'system'})


if __name__ == '__main__':
    unittest.main()
