"""What sandboxes start from and are given, on /api/v1: templates, snapshots, volumes, and what they may reach."""
import concurrent.futures
import os
import pathlib
import tempfile
import unittest
import urllib.parse
import uuid

from harness.server import Server
from harness.v1 import Api, Shared

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
ALL = '0.0.0.0/0'


class Case(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.api = Api(Shared())

    def box(self, api=None, **body):
        api = api or self.api
        made = api.ask('POST', '/sandboxes', {'timeout': 300, **body})['id']
        self.addCleanup(api.call, 'DELETE', f'/sandboxes/{made}')
        return made

    def name(self):
        return f'res-{uuid.uuid4().hex[:12]}'

    def refused(self, status, code, method, path, body=None, api=None):
        answer = (api or self.api).call(method, path, body)
        self.assertEqual((answer.status, answer.json()['code']), (status, code), answer.body)
        return answer.json()

    def pages(self, path, **query):
        """All of it, one item a page."""
        found, cursor = [], {}
        while True:
            page = self.api.get(path, limit=1, **query, **cursor).json()
            self.assertLessEqual(len(page['items']), 1)
            found += page['items']
            if not page['next_cursor']:
                return found
            cursor = {'cursor': page['next_cursor']}


class Templates(Case):
    def test_those_of_the_server_are_listed_and_shown(self):
        listed = {t['name']: t for t in self.api.ask('GET', '/templates')['items']}
        base = listed['base']
        self.assertEqual((base['kind'], base['limits']['memory_mb'], base['tags'][0]), ('directory', 1024, 'default'))
        self.assertEqual([t['name'] for t in self.pages('/templates')], sorted(listed))
        for name in ('base', base['id'], 'BASE', 'base:default'):
            shown = self.api.ask('GET', f'/templates/{urllib.parse.quote(name)}')
            self.assertEqual((shown['id'], shown['name'], shown['limits']), (base['id'], 'base', base['limits']))

    def test_how_often_it_was_used_is_the_teams_business(self):
        self.box()
        self.assertGreater(self.api.ask('GET', '/templates/base')['uses'], 0)
        agent, _ = self.api.key_for(agent_id='templates', scopes=['sandboxes:read'])
        self.assertEqual((agent.ask('GET', '/templates/base')['uses'], agent.ask('GET', '/templates/base')['last_used_at']),
                         (None, None))

    def test_a_directory_is_not_removed_and_a_snapshot_is(self):
        told = self.refused(409, 'template_is_directory', 'DELETE', '/templates/base')
        self.assertIn('operator', told['hint'])
        self.refused(404, 'template_not_found', 'GET', '/templates/no-such')
        self.refused(404, 'template_not_found', 'DELETE', '/templates/no%20name')
        name = self.name()
        box = self.box()
        for tag in ('v1', 'v2'):
            self.api.ask('POST', f'/sandboxes/{box}/snapshot', {'name': f'{name}:{tag}'})
        shown = self.api.ask('GET', f'/templates/{name}')
        self.assertEqual((shown['kind'], set(shown['tags'])), ('snapshot', {'v1', 'v2'}))
        self.assertEqual(shown['limits'], {'cpu': 2, 'memory_mb': 1024, 'disk_mb': shown['limits']['disk_mb']})
        reads, _ = self.api.key_for(scopes=['sandboxes:read', 'sandboxes:write'])
        self.refused(403, 'missing_scope', 'DELETE', f'/templates/{name}', api=reads)
        self.api.ask('DELETE', f'/templates/{name}')
        self.refused(404, 'template_not_found', 'GET', f'/templates/{name}')


class Snapshots(Case):
    def test_they_are_listed_with_size_and_date_and_removed_by_tag(self):
        name = self.name()
        box = self.box(memory_mb=512)
        made = [self.api.ask('POST', f'/sandboxes/{box}/snapshot', {'name': f'{name}:{tag}'}) for tag in ('a', 'b', 'c')]
        self.assertEqual(self.pages('/snapshots', sandbox_id=box), made[::-1])
        self.assertEqual(self.pages('/snapshots', name=name), made[::-1])
        self.assertEqual(self.pages('/snapshots', name=f'{name}:b'), [made[1]])
        first = made[0]
        self.assertEqual((first['base_template'], first['limits']['memory_mb'], first['tag']), ('base', 512, 'a'))
        self.assertGreater(first['size_mb'], 0)
        self.assertEqual(self.api.ask('GET', f'/snapshots/{name}:a'), first)
        self.assertEqual(self.api.ask('GET', f'/snapshots/{name}')['tag'], 'c')
        self.assertEqual(self.api.ask('GET', f"/snapshots/{first['template_id']}:b")['tag'], 'b')
        self.api.ask('DELETE', f'/snapshots/{name}:b')
        self.refused(404, 'snapshot_not_found', 'GET', f'/snapshots/{name}:b')
        self.refused(404, 'snapshot_not_found', 'DELETE', f'/snapshots/{name}:b')
        self.assertEqual([s['tag'] for s in self.pages('/snapshots', name=name)], ['c', 'a'])
        self.api.ask('DELETE', f'/snapshots/{name}')
        self.assertEqual(self.pages('/snapshots', name=name), [])
        for path in ('/snapshots/base', '/snapshots/a%20b', '/snapshots/%2e%2e'):
            self.assertEqual(self.api.call('GET', path).status, 404)
        self.assertEqual(self.api.get('/snapshots', cursor='bm8').status, 400)

    def test_an_agent_sees_its_own_and_the_teams(self):
        agents = [self.api.key_for(agent_id=f'snap-{i}')[0] for i in range(2)]
        name = self.name()
        own = agents[0].ask('POST', f'/sandboxes/{self.box(agents[0])}/snapshot', {'name': name})
        teams = self.api.ask('POST', f'/sandboxes/{self.box()}/snapshot', {'name': f'{name}-team'})
        self.addCleanup(self.api.call, 'DELETE', f"/snapshots/{teams['snapshot']}")
        seen = [{s['template_id'] for s in agent.ask('GET', '/snapshots?limit=200')['items']} for agent in agents]
        self.assertIn(own['template_id'], seen[0])
        self.assertNotIn(own['template_id'], seen[1])
        for agent, ids in zip(agents, seen):
            self.assertIn(teams['template_id'], ids)
            self.refused(404, 'snapshot_not_found', 'DELETE', f'/snapshots/{name}-team', api=agent)
        self.refused(404, 'snapshot_not_found', 'GET', f"/snapshots/{own['template_id']}", api=agents[1])
        agents[0].ask('DELETE', f'/snapshots/{name}')


    def test_another_name_is_given_and_none_is_taken_away(self):
        name, box = self.name(), self.box()
        made = self.api.ask('POST', f'/sandboxes/{box}/snapshot')
        other = self.api.ask('POST', f'/sandboxes/{box}/snapshot', {'name': f'{name}:b'})
        named = self.api.ask('PATCH', f"/snapshots/{made['snapshot']}", {'name': f'{name}:a'})
        self.addCleanup(self.api.call, 'DELETE', f'/snapshots/{name}')
        self.assertEqual((named['snapshot'], named['template_id']), (f'{name}:a', other['template_id']))
        same = ('sandbox_id', 'size_mb', 'created_at', 'limits', 'agent_id')
        self.assertEqual([named[key] for key in same], [made[key] for key in same])
        self.refused(404, 'snapshot_not_found', 'GET', f"/snapshots/{made['snapshot']}")
        self.assertEqual(self.pages('/snapshots', name=name), [other, named])
        copy = self.box(template=f'{name}:a')
        self.assertEqual(self.api.ask('GET', f'/sandboxes/{copy}')['template_id'], other['template_id'])
        told = self.refused(409, 'name_taken', 'PATCH', f'/snapshots/{name}:a', {'name': f'{name}:b'})
        self.assertIn(f'{name}:b', told['message'])
        for wrong in ({}, {'name': ''}, {'name': 'a b'}, {'name': 'a:b:c'}, {'name': 'a' * 129}, {'name': 'i' * 20}, {'name': 5}):
            self.assertEqual(self.api.call('PATCH', f'/snapshots/{name}:a', wrong).status, 400, wrong)
        self.refused(404, 'snapshot_not_found', 'PATCH', '/snapshots/base', {'name': 'mine'})
        [event] = self.api.events(kind='snapshot.named', subject=box)
        self.assertEqual(event['data'], {'name': f'{name}:a'})

    def test_of_many_that_want_a_name_one_has_it(self):
        name, box = self.name(), self.box()
        made = [self.api.ask('POST', f'/sandboxes/{box}/snapshot')['snapshot'] for _ in range(6)]
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda one: self.api.call('PATCH', f'/snapshots/{one}', {'name': name}), made))
        self.assertEqual(sorted(answer.status for answer in answers), [200] + [409] * 5)
        self.assertEqual(len(self.pages('/snapshots', name=name)), 1)
        self.assertEqual(len(self.pages('/snapshots', sandbox_id=box)), 6)
        for one in self.pages('/snapshots', sandbox_id=box):
            self.api.ask('DELETE', f"/snapshots/{one['snapshot']}")

    def test_an_agent_names_its_own(self):
        agents = [self.api.key_for(agent_id=f'names-{i}')[0] for i in range(2)]
        name = self.name()
        own = agents[0].ask('POST', f'/sandboxes/{self.box(agents[0])}/snapshot')
        teams = self.api.ask('POST', f'/sandboxes/{self.box()}/snapshot', {'name': f'{name}-team'})
        self.addCleanup(self.api.call, 'DELETE', f'/snapshots/{name}-team')
        self.refused(404, 'snapshot_not_found', 'PATCH', f"/snapshots/{own['snapshot']}", {'name': name}, agents[1])
        self.refused(404, 'snapshot_not_found', 'PATCH', f"/snapshots/{teams['snapshot']}", {'name': name}, agents[0])
        self.refused(409, 'name_taken', 'PATCH', f"/snapshots/{own['snapshot']}", {'name': 'base'}, agents[0])
        self.assertEqual(agents[0].ask('PATCH', f"/snapshots/{own['snapshot']}", {'name': name})['name'], name)
        self.refused(404, 'snapshot_not_found', 'GET', f'/snapshots/{name}')  # a name of the agent's alone
        agents[0].ask('DELETE', f'/snapshots/{name}')


class Restarted(Case):
    def test_a_name_is_still_there(self):
        with tempfile.TemporaryDirectory(prefix='atoll-names-') as scratch:
            pathlib.Path(scratch).chmod(0o755)
            with Server(BUILD, scratch, '--stop-sandboxes') as server:
                api = Api(server)
                box = api.ask('POST', '/sandboxes', {'timeout': 300})['id']
                made = api.ask('POST', f'/sandboxes/{box}/snapshot', {'name': 'first'})
                named = api.ask('PATCH', '/snapshots/first', {'name': 'second:v2'})
                server.stop()
                server.start()
                self.assertEqual(api.ask('GET', '/snapshots')['items'], [named])
                self.assertNotEqual(named['template_id'], made['template_id'])
                self.assertEqual(api.call('GET', '/snapshots/first').status, 404)
            self.assertEqual(server.sanitizer_findings(), '')


class Volumes(Case):
    def test_their_life(self):
        names = [self.name() for _ in range(3)]
        made = [self.api.ask('POST', '/volumes', {'name': name}) for name in names]
        self.assertEqual(len({v['token'] for v in made}), 3)
        listed = [v for v in self.pages('/volumes') if v['name'] in names]
        self.assertEqual([v['name'] for v in listed], names[::-1])
        self.assertNotIn('token', listed[0])
        one = self.api.ask('GET', f"/volumes/{made[0]['id']}")
        self.assertEqual((one['token'], one['name'], one['agent_id']), (made[0]['token'], names[0], None))
        self.assertGreater(one['size_limit_mb'], 0)
        self.assertEqual(self.api.call('POST', '/volumes', {'name': names[0]}).status, 400)
        for wrong in ({}, {'name': ''}, {'name': 'a b'}, {'name': 'a' * 129}, {'name': 5}):
            self.assertEqual(self.api.call('POST', '/volumes', wrong).status, 400, wrong)
        box = self.box(volumes=[{'name': names[0], 'path': '/v'}])
        self.assertEqual(self.api.ask('GET', f'/sandboxes/{box}')['volumes'], [{'name': names[0], 'path': '/v'}])
        self.api.ask('DELETE', f'/sandboxes/{box}')
        turned = self.api.ask('POST', f"/volumes/{made[0]['id']}/rotate-token")
        self.assertEqual(self.api.ask('GET', f"/volumes/{made[0]['id']}")['token'], turned['token'])
        for volume in made:
            self.api.ask('DELETE', f"/volumes/{volume['id']}")
            self.refused(404, 'not_found', 'DELETE', f"/volumes/{volume['id']}")
        self.refused(404, 'not_found', 'GET', '/volumes/x')
        self.refused(404, 'not_found', 'POST', f"/volumes/{made[0]['id']}/rotate-token")

    def test_scopes_and_agents(self):
        none, _ = self.api.key_for(scopes=['sandboxes:read', 'sandboxes:write', 'files'])
        for method, path in (('GET', '/volumes'), ('POST', '/volumes'), ('GET', '/volumes/x'), ('DELETE', '/volumes/x')):
            self.refused(403, 'missing_scope', method, path, {'name': 'x'} if method == 'POST' else None, none)
        agents = [self.api.key_for(agent_id=f'vol-{i}', scopes=['volumes'])[0] for i in range(2)]
        mine = agents[0].ask('POST', '/volumes', {'name': self.name()})
        self.assertEqual(mine['agent_id'], 'vol-0')
        self.assertEqual(agents[1].ask('GET', '/volumes')['items'], [])
        for method in ('GET', 'DELETE'):
            self.refused(404, 'not_found', method, f"/volumes/{mine['id']}", api=agents[1])
        agents[0].ask('DELETE', f"/volumes/{mine['id']}")


class Network(Case):
    def test_a_part_is_changed_and_the_rest_stays(self):
        box = self.box(network={'deny_out': [ALL], 'allow_out': ['1.1.1.1'], 'https_ports': [8443]})
        at = f'/sandboxes/{box}/network'
        shown = self.api.ask('GET', at)
        nothing = {'packets': 0, 'names_asked': 0, 'names_dialled': 0, 'addresses': 0}
        self.assertEqual(shown, {
            'internet': True, 'allow_out': ['1.1.1.1'], 'deny_out': [ALL], 'rules': None, 'allow_public_traffic': None,
            'mask_request_host': None, 'https_ports': [8443], 'denied': nothing})
        told = self.api.ask('PATCH', at, {'allow_out': ['example.com']})
        self.assertEqual(told['network'], {'allow_out': ['example.com'], 'deny_out': [ALL], 'https_ports': [8443]})
        told = self.api.ask('PATCH', at, {'internet': False, 'deny_out': None})
        self.assertEqual((told['internet'], told['network']), (False, {'allow_out': ['example.com'], 'https_ports': [8443]}))
        told = self.api.ask('PATCH', at, {'allow_out': None, 'internet': None})
        self.assertEqual((told['internet'], told['network']), (True, {'https_ports': [8443]}))
        self.assertEqual(self.api.ask('PATCH', at, {})['network'], {'https_ports': [8443]})

    def test_changes_at_the_same_time_all_count(self):
        box = self.box()
        at = f'/sandboxes/{box}/network'
        parts = ({'internet': False}, {'allow_out': ['1.1.1.1']}, {'deny_out': ['9.9.9.9']})
        with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
            for _ in range(25):
                self.api.ask('PUT', at, {})
                self.assertEqual({answer.status for answer in pool.map(lambda part: self.api.call('PATCH', at, part), parts)},
                                 {200})
                shown = self.api.ask('GET', at)
                self.assertEqual([{name: shown[name]} for part in parts for name in part], list(parts))

    def test_what_would_not_hold_is_refused_and_changes_nothing(self):
        box = self.box(network={'deny_out': [ALL], 'allow_out': ['example.com']})
        at = f'/sandboxes/{box}/network'
        before = self.api.ask('GET', at)
        for wrong in ({'deny_out': None}, {'deny_out': ['1.1.1.1']},  # a name is allowed still
                      {'allow_out': 'x'}, {'allow_out': [5]}, {'internet': 'no'}, {'allowOut': []},
                      {'allow_public_traffic': False}, {'rules': []}, 5, [], None):
            answer = self.api.call('PATCH', at, wrong) if wrong is not None else self.api.raw('PATCH', f'/api/v1{at}')
            self.assertEqual(answer.status, 400, (wrong, answer.body))
        proxy = {'egress_proxy': {'address': 'proxy.example.com:1080'}}
        self.refused(403, 'not_supported', 'PATCH', at, proxy)
        self.assertEqual(self.api.ask('GET', at), before)

    def test_rules_with_secrets_need_their_scope(self):
        rules = {'api.example.com': [{'transform': {'headers': {'X-A': '${e2b.secrets.none}'}}}]}
        box = self.box(network={'rules': rules})
        plain, _ = self.api.key_for(scopes=['sandboxes:read', 'sandboxes:write'])
        at = f'/sandboxes/{box}/network'
        self.assertEqual(plain.ask('GET', at)['rules'], rules)
        self.refused(403, 'missing_scope', 'PATCH', at, {'deny_out': ['1.1.1.1']}, plain)
        plain.ask('PATCH', at, {'rules': None})
        self.assertEqual(plain.ask('PATCH', at, {'deny_out': ['1.1.1.1']})['network'], {'deny_out': ['1.1.1.1']})

    def test_one_that_is_paused_is_shown_and_not_changed(self):
        box = self.box(network={'deny_out': ['1.1.1.1']})
        self.api.ask('POST', f'/sandboxes/{box}/pause')
        self.assertEqual(self.api.ask('GET', f'/sandboxes/{box}/network')['deny_out'], ['1.1.1.1'])
        self.refused(409, 'sandbox_paused', 'PATCH', f'/sandboxes/{box}/network', {'internet': False})
        self.refused(404, 'sandbox_not_found', 'GET', '/sandboxes/i00000000000000000000/network')


if __name__ == '__main__':
    unittest.main()
