"""No setting is taken and not enforced: what a request calls by a name that the server does not know is refused, on both
surfaces and at every depth. Each body below is right; each member of it is then misspelt in every way of `misspelt`."""
import json
import unittest
import urllib.parse
import uuid

from harness.v1 import Api, Shared

ALL = '0.0.0.0/0'
RULES = {'api.example.com': [{'transform': {'headers': {'X-A': 'b'}}}]}
# Objects whose members are names of the caller's own.
MAPS = {'metadata', 'envs', 'envVars', 'secrets', 'headers', 'rules', 'tokens', 'mcp'}


def misspelt(name):
    """Letters of another case, one left out, one twice, one more, the other surface's spelling."""
    words = ''.join('_' + c.lower() if c.isupper() else c for c in name)
    first, *rest = name.split('_')
    wrong = {words, first + ''.join(word.title() for word in rest), name.upper(), name.title(), name.capitalize(),
             name.replace('_', ''), name.replace('_', '-'), name.lower(), name + 's', name + '2', name + '_', '_' + name,
             name + ' ', ' ' + name, name + '\u00e9', name[::-1]}
    for i, letter in enumerate(name):
        wrong |= {name[:i] + name[i + 1:], name[:i] + letter + name[i:], name[:i] + letter.swapcase() + name[i + 1:]}
    return wrong - {name, ''}


def mutations(body, path=()):
    """(misspelt name, the body with it)."""
    if isinstance(body, list):
        for i, item in enumerate(body):
            for name, changed in mutations(item, path):
                yield name, [*body[:i], changed, *body[i + 1:]]
    if not isinstance(body, dict):
        return
    for key, value in body.items():
        if not (path and path[-1] in MAPS):
            for name in misspelt(key) - set(body):
                yield name, {(name if k == key else k): v for k, v in body.items()}
        for name, changed in mutations(value, (*path, key)):
            yield name, {**body, key: changed}


V1_NETWORK = {'allow_out': ['1.1.1.1'], 'deny_out': [ALL], 'rules': RULES, 'allow_public_traffic': False,
              'mask_request_host': 'localhost:${PORT}', 'https_ports': [8443]}
V1_SANDBOX = {
    'agent_id': 'a', 'task_id': 't', 'template': 'base', 'language': 'bash', 'runtime': 'local', 'cpu': 1,
    'memory_mb': 256, 'disk_mb': 128, 'limits': {
        'cpu': 1, 'memory_mb': 256, 'disk_mb': 128, 'max_inodes': 2048, 'max_pids': 64, 'max_files': 128, 'shm_mb': 16,
        'log_lines': 10, 'log_rate': 10, 'max_connections': 16},
    'timeout': 60, 'on_timeout': 'pause', 'idle_timeout': 60, 'max_age': 600, 'auto_resume': True, 'envs': {'A': 'b'},
    'secrets': {'TOKEN': 'fail-closed'}, 'metadata': {'k': 'v'}, 'internet': False, 'network': V1_NETWORK,
    'volumes': [], 'files': [{'path': '/tmp/a', 'content': 'x', 'mode': '0600', 'user': 'root'}], 'wait': 0}
E2B_NETWORK = {'allowOut': ['1.1.1.1'], 'denyOut': [ALL], 'rules': RULES, 'allowPublicTraffic': False,
               'maskRequestHost': 'localhost:${PORT}', 'httpsPorts': [8443]}
E2B_SANDBOX = {
    'templateID': 'base', 'timeout': 60, 'metadata': {'k': 'v'}, 'envVars': {'A': 'b'}, 'secure': True,
    'allow_internet_access': False, 'network': E2B_NETWORK, 'autoPause': True, 'autoPauseMemory': True,
    'autoResume': {'enabled': True}, 'mcp': {'a': {}}, 'iam': {'tokens': {}}, 'volumeMounts': [], 'runtime': 'local',
    'limits': {'cpuCount': 1, 'memoryMB': 256, 'diskSizeMB': 128, 'inodes': 2048, 'processes': 64, 'openFiles': 128,
               'shmSizeMB': 16, 'logLines': 10, 'logLinesPerMinute': 10, 'connections': 16}}
PROXY = {'address': 'proxy.example.com:1080', 'username': 'u', 'password': 'p'}
MOUNT = {'name': 'v', 'path': '/v'}


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.api = Api(Shared())
        cls.api.ask('PUT', '/secrets/fail-closed', {'value': 'nobody sees it'})
        cls.made = []

    @classmethod
    def tearDownClass(cls):
        for box in cls.made:
            cls.api.call('DELETE', f'/sandboxes/{box}')
        cls.api.call('DELETE', '/secrets/fail-closed')

    def send(self, method, path, body):
        return self.api.raw(method, path, json.dumps(body), {'Content-Type': 'application/json'})

    def box(self, path='/api/v1/sandboxes', body=None):
        answer = self.send('POST', path, body or {'timeout': 300})
        self.assertEqual(answer.status, 201, answer.body)
        told = answer.json()
        self.made.append(told.get('id') or told['sandboxID'])
        return self.made[-1]


class Misspelt(Case):
    def refuses(self, method, path, body):
        """Every member of it misspelt; how many requests that were."""
        before = {item['id'] for item in self.api.ask('GET', '/sandboxes')['items']}
        n = 0
        for name, wrong in mutations(body):
            answer = self.send(method, path, wrong)
            self.assertEqual(answer.status, 400, (method, path, name, wrong, answer.body))
            self.assertIn(name, answer.json()['message'], (method, path, wrong))
            n += 1
        left = {item['id'] for item in self.api.ask('GET', '/sandboxes')['items']} - before
        self.assertEqual(left, set())
        self.assertGreater(n, 15, path)
        return n

    def count(self, surface, calls):
        counts = {f'{method} {path}': 0 for method, path, _ in calls}
        for method, path, body in calls:
            counts[f'{method} {path}'] += self.refuses(method, path, body)
        print(f'{surface}: {sum(counts.values())} misspelt members refused in {len(counts)} calls')

    def test_atolls_own_surface(self):
        box = self.box(body=V1_SANDBOX)
        running = self.box()
        at = f'/api/v1/sandboxes/{running}'
        update = {k: V1_NETWORK[k] for k in ('allow_out', 'deny_out', 'rules')} | {'internet': True}
        self.assertEqual(self.send('PUT', f'{at}/network', update).status, 200)
        command = {'cwd': '/', 'user': 'root', 'envs': {'A': 'b'}, 'secrets': {'T': 'fail-closed'},
                   'timeout_ms': 1000, 'max_output_bytes': 10, 'stream': False}
        self.count('/api/v1', [
            ('POST', '/api/v1/sandboxes', V1_SANDBOX),
            ('POST', '/api/v1/sandboxes', {'volumes': [MOUNT]}),
            ('POST', '/api/v1/sandboxes', {'network': {'egress_proxy': PROXY}}),
            ('POST', '/api/v1/run', {**command, 'shell': 'true', 'artifacts': ['/tmp/*'],
                                     'sandbox': {'internet': False, 'network': V1_NETWORK}}),
            ('POST', f'{at}/execute', {**command, 'argv': ['true'], 'stdin': 'x', 'background': False}),
            ('PUT', f'{at}/network', update), ('PATCH', f'{at}/network', update),
            ('POST', '/api/v1/volumes', {'name': 'fail-closed'}), ('PATCH', '/api/v1/snapshots/none', {'name': 'n'}),
            ('POST', f'{at}/pause', {'memory': True}),
            ('POST', f'/api/v1/sandboxes/{box}/resume', {'timeout': 60, 'memory': True}),
            ('POST', f'{at}/extend', {'timeout': 60}), ('POST', f'{at}/extend', {'by': 60, 'timeout': 60}),
            ('POST', f'{at}/fork', {'count': 1, 'timeout': 60}),
            ('POST', f'{at}/snapshot', {'name': 'fail-closed'}),
            ('POST', '/api/v1/keys', {'name': 'k', 'agent_id': 'a', 'scopes': ['files'], 'expires_in': 60}),
            ('POST', f'/api/v1/keys/{uuid.uuid4()}/rotate', {'overlap_s': 0}),
            ('PUT', '/api/v1/secrets/fail-closed', {'value': 'another value', 'metadata': {}}),
            ('PUT', '/api/v1/rules/commands', {'agent_id': 'a', 'programs': ['ls']}),
            ('PUT', '/api/v1/quota', {'sandboxes': 100, 'per_minute': 100, 'memory_mb': 1 << 20, 'disk_mb': 1 << 20}),
        ])

    def test_e2bs_surface(self):
        box = self.box('/v2/sandboxes', E2B_SANDBOX)
        at = f'/sandboxes/{box}'
        update = {k: E2B_NETWORK[k] for k in ('allowOut', 'denyOut', 'rules')} | {'allow_internet_access': True}
        self.assertEqual(self.send('PUT', f'{at}/network', update).status, 204)
        token = {'audience': 'a', 'tokenType': 'JWT-SVID'}
        self.count('E2B', [
            ('POST', '/sandboxes', E2B_SANDBOX), ('POST', '/v2/sandboxes', E2B_SANDBOX),
            ('POST', '/v2/sandboxes', {'templateID': 'base', 'volumeMounts': [MOUNT]}),
            ('POST', '/v2/sandboxes', {'templateID': 'base', 'iam': {'tokens': {'t': token}}}),
            ('POST', '/v2/sandboxes', {'templateID': 'base', 'network': {'egressProxy': PROXY}}),
            ('PUT', f'{at}/network', update), ('PUT', f'{at}/network', {'egressProxy': PROXY}),
            ('POST', f'{at}/timeout', {'timeout': 60}), ('POST', f'{at}/refreshes', {'duration': 60}),
            ('POST', f'{at}/connect', {'timeout': 60, 'memory': True}),
            ('POST', f'/v2{at}/connect', {'timeout': 60, 'memory': True}),
            ('POST', f'{at}/pause', {'memory': True}),
            ('POST', f'{at}/resume', {'timeout': 60, 'memory': True, 'autoPause': True}),
            ('POST', f'{at}/fork', {'count': 1, 'timeout': 60}), ('POST', f'{at}/snapshots', {'name': 'fail-closed'}),
            ('POST', '/api-keys', {'name': 'k'}), ('PATCH', f'/api-keys/{uuid.uuid4()}', {'name': 'k'}),
            ('POST', '/secrets', {'name': 'other', 'value': 'another value', 'metadata': {}}),
            ('POST', '/secrets/fail-closed', {'value': 'another value', 'metadata': {}}),
            ('POST', '/volumes', {'name': 'fail-closed'}),
            ('POST', '/templates/tags', {'target': 'base', 'tags': ['x']}),
            ('DELETE', '/templates/tags', {'name': 'base', 'tags': ['x']}),
            ('PATCH', '/v2/templates/base', {'public': True}),
        ])

    def test_what_a_query_names(self):
        """A mode or a filter that is misspelt would count as not given."""
        at = f'/api/v1/sandboxes/{self.box()}/files'
        n = 0
        for method, path, query in (
                ('PUT', at, {'path': '/tmp/x', 'mode': '0600', 'user': 'root'}),
                ('GET', f'{at}/list', {'path': '/tmp', 'user': 'root', 'depth': '1'}),
                ('GET', '/api/v1/sandboxes', {'agent_id': 'a', 'task_id': 't', 'template': 'base', 'state': 'running',
                                              'metadata': 'k=v', 'limit': '1'}),
                ('GET', '/api/v1/snapshots', {'sandbox_id': 'i1', 'name': 'n', 'limit': '1'}),
                ('GET', '/api/v1/audit', {'agent_id': 'a', 'actor': 'a', 'kind': 'key.', 'from': '0', 'limit': '1'}),
                ('GET', '/api/v1/rules/commands', {'agent_id': 'a'})):
            body = b'x' if method == 'PUT' else None
            right = self.api.raw(method, f'{path}?{urllib.parse.urlencode(query)}', body)
            self.assertEqual(right.status, 200, right.body)
            for name, wrong in mutations(query):
                answer = self.api.raw(method, f'{path}?{urllib.parse.urlencode(wrong)}', body)
                self.assertEqual((answer.status, answer.json()['code']), (400, 'invalid_request'), (path, wrong))
                self.assertIn(name, answer.json()['message'])
                n += 1
            twice = self.api.raw(method, f'{path}?{urllib.parse.urlencode([*query.items(), *query.items()])}', body)
            self.assertIn('given twice', twice.json()['message'])
        self.assertIn('takes no query', self.api.call('GET', '/quota?x=1').json()['message'])
        print(f'/api/v1: {n} misspelt parameters refused')

    def test_what_belongs_to_another_call_is_refused_too(self):
        """Members that are known, of which this call makes nothing."""
        box = self.box()
        for method, path, body in (
                ('POST', '/v2/sandboxes', {'templateID': 'base', 'network': {'allow_internet_access': False}}),
                ('POST', '/v2/sandboxes', {'templateID': 'base', 'internet': False}),
                ('POST', '/v2/sandboxes', {'templateID': 'base', 'network': {'deny_out': [ALL]}}),
                ('PUT', f'/sandboxes/{box}/network', {'allowPublicTraffic': False}),
                ('PUT', f'/sandboxes/{box}/network', {'foo': 1}),
                ('POST', f'/sandboxes/{box}/connect', {'timeout': 5, 'autoPause': True}),
                ('POST', f'/sandboxes/{box}/pause', {'timeout': 5}),
                ('POST', '/api-keys', {'name': 'k', 'scopes': ['files']}),
                ('POST', '/api/v1/sandboxes', {'network': {'denyOut': [ALL]}}),
                ('POST', '/api/v1/sandboxes', {'network': {'internet': False}}),
                ('POST', '/api/v1/sandboxes', {'allow_internet_access': False}),
                ('POST', '/api/v1/sandboxes', {'limits': {'memoryMB': 256}}),
                ('POST', '/api/v1/sandboxes', {'volumes': [{**MOUNT, 'read_only': True}]}),
                ('PUT', f'/api/v1/sandboxes/{box}/network', {'allow_public_traffic': False}),
                ('PUT', f'/api/v1/sandboxes/{box}/network', {'allow_internet_access': False})):
            answer = self.send(method, path, body)
            self.assertEqual(answer.status, 400, (method, path, body, answer.body))
            self.assertIn('unknown key', answer.json()['message'])


class ReadsBack(Case):
    """What was set is what is shown, on both surfaces, whichever it was set on."""

    def views(self, box):
        ours = self.api.ask('GET', f'/sandboxes/{box}')
        theirs = self.api.raw('GET', f'/sandboxes/{box}').json()
        return ours['internet'], ours['network'], theirs['allowInternetAccess'], theirs.get('network')

    def test_a_networks_settings(self):
        box = self.box(body={'internet': False, 'network': V1_NETWORK})
        self.assertEqual(self.views(box), (False, V1_NETWORK, False, E2B_NETWORK))
        box = self.box('/v2/sandboxes', {'templateID': 'base', 'network': E2B_NETWORK})
        self.assertEqual(self.views(box), (True, V1_NETWORK, None, E2B_NETWORK))
        for method, path in (('PUT', f'/sandboxes/{box}/network'), ('PUT', f'/api/v1/sandboxes/{box}/network')):
            self.assertLess(self.send(method, path, {}).status, 300)
            ours = {k: V1_NETWORK[k] for k in ('allow_public_traffic', 'mask_request_host', 'https_ports')}
            self.assertEqual(self.views(box)[:2], (True, ours))
        told = self.api.ask('PUT', f'/sandboxes/{box}/network', {'internet': False, 'allow_out': ['8.8.8.8']})
        self.assertEqual((told['internet'], told['network']), (False, {'allow_out': ['8.8.8.8'], **ours}))

    def test_errors_use_the_words_of_their_surface(self):
        for path, body, says in (
                ('/api/v1/sandboxes', {'memory_mb': 4194304}, 'memory_mb: 4194304 is above'),
                ('/api/v1/sandboxes', {'limits': {'max_pids': 4194304}}, 'max_pids: 4194304 is above'),
                ('/api/v1/sandboxes', {'network': {'allow_out': ['example.com']}}, 'network.allow_out'),
                ('/api/v1/sandboxes', {'network': {'mask_request_host': 'a b'}}, 'network.mask_request_host'),
                ('/api/v1/sandboxes', {'network': {'egress_proxy': PROXY}}, 'egress_proxy is not offered'),
                ('/api/v1/sandboxes', {'network': {'denyOut': [ALL]}}, "did you mean 'deny_out'?"),
                ('/v2/sandboxes', {'templateID': 'base', 'limits': {'processes': 4194304}}, 'limits.processes: 4194304'),
                ('/v2/sandboxes', {'templateID': 'base', 'network': {'allowOut': ['example.com']}}, 'network.allowOut'),
                ('/v2/sandboxes', {'templateID': 'base', 'network': {'deny_out': [ALL]}}, "did you mean 'denyOut'?")):
            answer = self.send('POST', path, body)
            self.assertIn(answer.status, (400, 403))
            self.assertIn(says, answer.json()['message'])


if __name__ == '__main__':
    unittest.main()
