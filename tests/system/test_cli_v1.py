"""The command line and /api/v1: any call, keys of agents, whose a sandbox is, where settings come from."""
import json
import os
import unittest

from test_cli import Cli, atoll


class Api(Cli):
    def test_any_call_prints_the_answer_as_it_is(self):
        self.assertEqual(json.loads(self.ok('api', 'GET', 'quota'))['quota']['per_minute'], None)
        self.assertEqual(json.loads(self.ok('api', 'GET', '/api/v1/quota')), json.loads(self.ok('api', 'GET', 'quota')))
        made = json.loads(self.ok('api', 'POST', 'sandboxes', '-d', '{"timeout": 60}'))
        self.assertEqual(json.loads(self.ok('api', 'GET', f"sandboxes/{made['id']}"))['state'], 'running')
        self.assertEqual(self.ok('api', 'DELETE', f"sandboxes/{made['id']}"), b'')
        self.assertEqual(self.ok('api', 'DELETE', f"sandboxes/{made['id']}", '--json'), b'null\n')

    def test_the_body_from_a_file_and_headers_of_ones_own(self):
        body = self.scratch() / 'body.json'
        body.write_text('{"timeout": 60}')
        words = ('api', 'POST', 'sandboxes', '-d', f'@{body}', '-H', 'Idempotency-Key: from-the-command-line')
        one, two = (json.loads(self.ok(*words)) for _ in range(2))
        self.assertEqual(one['id'], two['id'])
        self.ok('api', 'DELETE', f"sandboxes/{one['id']}")

    def test_errors_are_told_with_their_hint(self):
        said = self.fails(3, 'api', 'GET', 'sandboxes/i00000000000000000000').stderr.decode()
        self.assertIn('does not exist', said)
        told = json.loads(self.fails(1, 'api', 'POST', 'sandboxes', '-d', '{"cpu": 0}', '--json').stdout)
        self.assertIn('cpu', told['message'])
        self.assertTrue(told['hint'])
        for words in (('api', 'FETCH', 'x'), ('api', 'GET', 'a b'), ('api', 'GET', 'x', '-H', 'nothing'),
                      ('api', 'GET', 'x', '-d', '@/nowhere/at/all')):
            self.assertNotEqual(atoll(*words).returncode, 0)


class Keys(Cli):
    def test_an_agents_key_is_made_listed_rotated_and_revoked(self):
        made = json.loads(self.ok('key', 'create', 'cli agent', '--agent', 'a7', '--scope', 'sandboxes:read', '--scope',
                                  'sandboxes:write', '--expires', '1h', '--json'))
        self.assertEqual((made['agentId'], made['scopes']), ('a7', ['sandboxes:read', 'sandboxes:write']))
        rows = [row.split('\t') for row in self.ok('key', 'ls').decode().splitlines()]
        row = next(row for row in rows if row[0] == made['id'])
        self.assertEqual((row[5], row[6]), ('a7', 'live'))
        new = self.ok('key', 'rotate', made['id'], '--overlap', '0').decode().strip()
        self.assertNotEqual(new, made['key'])
        env = {**os.environ, 'E2B_API_KEY': made['key']}
        self.assertIn('time is up', self.fails(4, 'api', 'GET', 'sandboxes', env=env).stderr.decode())
        env['E2B_API_KEY'] = new
        self.ok('api', 'GET', 'sandboxes', env=env)
        self.fails(4, 'key', 'ls', env=env)  # no such scope
        self.fails(1, 'key', 'create', 'x', '--scope', 'fly')
        self.ok('key', 'revoke', made['id'])


class Volumes(Cli):
    def test_a_token_is_replaced(self):
        made = json.loads(self.ok('api', 'POST', '/volumes', '-d', '{"name": "cli-volume"}'))
        self.addCleanup(self.ok, 'api', 'DELETE', f"/volumes/{made['volumeID']}")
        rows = [row.split('\t')[:2] for row in self.ok('volume', 'ls').decode().splitlines()]
        self.assertIn([made['volumeID'], 'cli-volume'], rows)
        new = self.ok('volume', 'rotate-token', 'cli-volume').decode().strip()
        self.assertNotEqual(new, made['token'])
        self.assertEqual(json.loads(self.ok('api', 'GET', f"/volumes/{made['volumeID']}"))['token'], new)
        told = json.loads(self.ok('volume', 'rotate-token', made['volumeID'][:8], '--json'))
        self.assertEqual((told['id'], told['name'], len(told['token'])), (made['volumeID'], 'cli-volume', 64))
        self.fails(3, 'volume', 'rotate-token', 'no-such')


class Owner(Cli):
    def test_run_says_whose_it_is_and_what_for(self):
        self.assertEqual(self.ok('run', 'base', '--agent', 'a8', '--task', 'cli-t8', '--', 'echo', 'hi'), b'hi\n')
        listed = json.loads(self.ok('api', 'GET', 'sandboxes?task_id=cli-t8&state=ended'))['items']
        self.assertEqual([(box['agent_id'], box['ended_by']) for box in listed], [('a8', 'user')])


class Config(Cli):
    def test_every_setting_says_where_it_comes_from_and_no_key_is_shown(self):
        told = json.loads(self.ok('config', 'show', '--json'))
        self.assertEqual((told['api_url']['value'], told['api_url']['source']),
                         (os.environ['E2B_API_URL'].rstrip('/'), 'E2B_API_URL'))
        self.assertEqual(told['api_key']['source'], 'E2B_API_KEY')
        for text in (json.dumps(told), self.ok('config', 'show').decode()):
            self.assertNotIn(os.environ['E2B_API_KEY'], text)
            self.assertIn(os.environ['E2B_API_KEY'][:8], text)

    def test_a_data_directory_is_named_by_its_env_file(self):
        data = self.scratch()
        (data / 'env').write_text("E2B_API_KEY='e2b_" + '1' * 40 + "'\nE2B_API_URL='http://127.0.0.1:1'\n")
        told = json.loads(self.ok('config', 'show', '--json', '--data', str(data)))
        self.assertEqual((told['data'], told['api_url']), (
            {'value': str(data), 'source': '--data'}, {'value': 'http://127.0.0.1:1', 'source': 'the env file'}))
        self.assertEqual(self.ok('config', 'path', '--data', str(data)).decode().strip(), f'{data}/env')
        self.fails(3, 'config', 'path')


if __name__ == '__main__':
    unittest.main()
