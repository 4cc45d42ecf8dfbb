"""What a team may keep: snapshots and volumes, in number and size. Crossed for real; who runs into it is told
the limit, and the cause is an event."""
import concurrent.futures
import os
import pathlib
import shutil
import tempfile
import time
import unittest
import urllib.parse

from harness.sandbox import Sandbox
from harness.server import Server
from test_limits import events, wait_for
from test_plane import Api

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
TOKEN = 'the-operators-own-token'
MIB = 1 << 20


class TeamServer(unittest.TestCase):
    """A server whose operator allows three snapshots, unless a team has other ceilings."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = pathlib.Path(tempfile.mkdtemp(prefix='atoll-team-'))
        cls.scratch.chmod(0o755)
        cls.token = cls.scratch / 'token'
        cls.token.write_text(TOKEN + '\n')
        cls.server = Server(BUILD, cls.scratch, '--pool', '2', '--stop-sandboxes', '--admin-token-file', cls.token,
                            '--ceilings', 'snapshots=3,memoryMB=2048', '--default-limits', 'logLines=77').start()
        cls.env = cls.server.env()
        cls.api = Api(cls.env, **{'X-API-Key': cls.env['E2B_API_KEY']})
        cls.admin = Api(cls.env, **{'X-Admin-Token': TOKEN})
        cls.team = cls.api.ok('GET', '/teams')[0]['teamID']
        cls.path = f'/admin/teams/{cls.team}/limits'

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        shutil.rmtree(cls.scratch, ignore_errors=True)

    def tearDown(self):
        self.assertEqual(self.admin.status('PUT', self.path, {}), 204)

    def change(self, **ceilings):
        self.assertEqual(self.admin.status('PATCH', self.path, ceilings), 204)

    def seen(self):
        return self.api.ok('GET', f'/teams/{self.team}/limits')


class Ceilings(TeamServer):
    def test_a_teams_own_are_before_the_servers_and_those_before_the_usual(self):
        ceilings = self.seen()['ceilings']
        self.assertEqual((ceilings['snapshots'], ceilings['memoryMB'], ceilings['volumes']), (3, 2048, 1000))
        self.assertEqual(len(ceilings), 23)
        self.change(snapshots=5, cpuCount=4)
        self.change(volumes=7, cpuCount=None)
        self.assertEqual(self.admin.ok('GET', self.path), {'snapshots': 5, 'volumes': 7})
        ceilings = self.seen()['ceilings']
        self.assertEqual((ceilings['snapshots'], ceilings['memoryMB'], ceilings['volumes'], ceilings['cpuCount']),
                         (5, 2048, 7, 8))
        [team] = self.admin.ok('GET', '/admin/teams')
        self.assertEqual((team['teamID'], team['limits']), (self.team, {'snapshots': 5, 'volumes': 7}))
        self.assertEqual(team['ceilings'], ceilings)

    def test_a_change_that_makes_no_sense_changes_nothing(self):
        for wrong in ({'snapshots': 0}, {'snapshots': 'many'}, {'colour': 1}, {'volumes': 5, 'memoryMB': 1}, []):
            self.assertEqual(self.admin.status('PATCH', self.path, wrong), 400, wrong)
        self.assertEqual(self.admin.ok('GET', self.path), {})
        self.assertEqual(self.api.status('PATCH', self.path, {'snapshots': 9}), 401)
        self.assertEqual(self.admin.status('PATCH', '/admin/teams/nobody/limits', {}), 404)
        self.assertEqual(self.api.status('GET', '/teams/nobody/limits'), 403)

    def test_what_a_template_does_not_say_is_the_servers_default(self):
        with Sandbox(env=self.env) as box:
            self.assertEqual(box.api('GET', f'/sandboxes/{box.id}')['limits']['logLines'], 77)

    def test_a_sandbox_gets_no_more_than_the_server_allows(self):
        status, _, answer = self.api('POST', '/v2/sandboxes', {'templateID': 'base', 'limits': {'memoryMB': 4096}})
        self.assertEqual(status, 400)
        self.assertIn('above the ceiling of your team, 2048 MiB', answer['message'])


class Snapshots(TeamServer):
    def setUp(self):
        self.box = Sandbox(env=self.env)
        self.addCleanup(self.box.kill)
        self.addCleanup(self.remove_all)

    def take(self, name=None, box=None):
        path = f'/sandboxes/{(box or self.box).id}/snapshots'
        status, _, answer = self.api('POST', path, {} if name is None else {'name': name})
        return status, answer

    def remove(self, which):
        return self.api.status('DELETE', '/templates/' + urllib.parse.quote(which, safe=''))

    def remove_all(self):
        for made in self.api.ok('GET', '/snapshots'):
            self.remove(made['snapshotID'].split(':')[0])

    def test_only_so_many(self):
        made = [self.take(f'one-{i}') for i in range(3)]
        self.assertEqual([status for status, _ in made], [201] * 3)
        self.assertEqual(self.seen()['used']['snapshots'], 3)
        status, answer = self.take()
        self.assertEqual(status, 429)
        self.assertEqual(answer['message'],
                         'the limit of your team, 3 snapshots, was reached: remove some first')
        self.assertEqual(self.take('one-0')[0], 201)  # which replaces one
        event = wait_for(lambda: [e for e in events(self.box) if e['type'] == 'snapshot.limit'])[-1]
        self.assertIn('3 snapshots', event['cause'])
        self.assertEqual((event['eventData']['limit'], event['eventData']['value']), ('snapshots', 3))
        self.assertEqual(self.remove('one-1'), 204)
        self.assertEqual(self.take()[0], 201)
        self.assertEqual(self.box.run('echo alive').text(), 'alive\n')

    def test_many_at_once_are_no_more(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            made = list(pool.map(lambda i: self.take(f'many-{i}')[0], range(8)))
        self.assertEqual(sorted(made), [201] * 3 + [429] * 5)
        self.assertEqual(self.seen()['used']['snapshots'], 3)

    def test_only_so_much(self):
        self.change(snapshotStorageMB=16)
        self.assertEqual(self.take('small')[0], 201)
        used = self.seen()['used']['snapshotStorageMB']
        self.assertTrue(1 <= used <= 16, used)
        self.box.run('head -c 40000000 /dev/urandom > ~/large; sync')
        status, answer = self.take('large')
        self.assertEqual(status, 429)
        self.assertIn('the limit of your team, 16 MiB of snapshots, was reached', answer['message'])
        # What was made in vain is gone.
        self.assertEqual(self.seen()['used']['snapshotStorageMB'], used)
        self.assertEqual([s['snapshotID'] for s in self.api.ok('GET', '/snapshots')], ['small:default'])
        self.box.run('rm ~/large')
        self.change(snapshotStorageMB=None)
        self.assertEqual(self.take('large')[0], 201)

    def test_two_of_one_name_at_once_leave_one(self):
        with Sandbox(env=self.env) as other, concurrent.futures.ThreadPoolExecutor(2) as pool:
            other.run('echo other > ~/who')
            self.box.run('echo first > ~/who')
            for turn in range(4):
                made = list(pool.map(lambda box: self.take('same', box), (self.box, other)))
                self.assertEqual([status for status, _ in made], [201, 201], made)
                self.assertEqual([s['snapshotID'] for s in self.api.ok('GET', '/snapshots')], ['same:default'])
                self.assertEqual(self.seen()['used']['snapshots'], 1, turn)
                self.assertEqual(len(self.api.ok('GET', '/templates/same/tags')), 1)
            made = Sandbox(env=self.env, template='same')
            try:
                self.assertIn(made.run('cat ~/who').text(), ('first\n', 'other\n'))
            finally:
                made.kill()
        self.assertEqual(self.remove('same'), 204)
        self.assertEqual(self.seen()['used']['snapshots'], 0)
        self.assertEqual(self.take('same')[0], 201)


class Volumes(TeamServer):
    def setUp(self):
        self.made = self.api.ok('POST', '/volumes', {'name': f'v-{time.time_ns()}'})
        self.addCleanup(self.api.status, 'DELETE', f"/volumes/{self.made['volumeID']}")
        self.content = Api(self.env, Authorization='Bearer ' + self.made['token'])

    def at(self, what, path):
        return f"/volumecontent/{self.made['volumeID']}/{what}?path={path}"

    def look(self):
        return self.api.ok('GET', f"/volumes/{self.made['volumeID']}")

    def mount(self):
        return {'templateID': 'base', 'volumeMounts': [{'name': self.made['name'], 'path': '/data'}]}

    def test_an_upload_ends_at_the_limit(self):
        self.change(volumeSizeMB=4)
        self.assertEqual(self.look()['sizeLimitMB'], 4)
        status, _, answer = self.content('PUT', self.at('file', '/large'), raw=b'x' * (6 * MIB))
        self.assertEqual(status, 507, answer)
        self.assertIn('its limit of 4 MiB was reached', answer['message'])
        self.assertEqual(self.content.status('PUT', self.at('file', '/small'), raw=b'x' * MIB), 201)
        self.assertEqual(self.content.status('GET', self.at('path', '/large')), 404)

    def test_what_a_sandbox_wrote_is_measured_and_refused_from_then_on(self):
        self.change(volumeSizeMB=4)
        with Sandbox(env=self.env, volumeMounts=self.mount()['volumeMounts']) as box:
            box.run('head -c 8000000 /dev/urandom > /data/large')
            wait_for(lambda: self.look().get('usedBytes', 0) >= 8000000)
            status, _, answer = self.content('PUT', self.at('file', '/more'), raw=b'x')
            self.assertEqual(status, 507, answer)
            self.assertIn('its limit of 4 MiB was reached', answer['message'])
            self.assertEqual(self.content.status('POST', self.at('dir', '/d')), 507)
            # Nobody gets it mounted anew; who has it can still clean up, and so can its owner.
            status, _, answer = self.api('POST', '/v2/sandboxes', self.mount())
            self.assertEqual(status, 429, answer)
            self.assertIn(f"the volume '{self.made['name']}' is full", answer['message'])
            self.assertEqual(self.content.status('DELETE', self.at('path', '/large')), 204)
            wait_for(lambda: self.look()['usedBytes'] < MIB)
            self.assertEqual(self.content.status('PUT', self.at('file', '/more'), raw=b'x'), 201)
            with Sandbox(env=self.env, volumeMounts=self.mount()['volumeMounts']) as second:
                self.assertEqual(second.run('cat /data/more').text(), 'x')

    def test_a_ceiling_that_is_lowered_holds_for_what_is_larger(self):
        """The kernel goes on with the size that the volume was made with; the server with the ceiling."""
        self.assertTrue(self.look()['hardLimit'])
        self.change(volumeSizeMB=16)
        self.assertEqual(self.look()['sizeLimitMB'], 16)
        small = self.api.ok('POST', '/volumes', {'name': f'small-{time.time_ns()}'})
        self.addCleanup(self.api.status, 'DELETE', f"/volumes/{small['volumeID']}")
        mounts = [*self.mount()['volumeMounts'], {'name': small['name'], 'path': '/small'}]
        with Sandbox(env=self.env, volumeMounts=mounts) as box:
            self.assertEqual(box.run('head -c 20000000 /dev/zero > /data/f').exit_code, 0)
            self.assertNotEqual(box.run('head -c 20000000 /dev/zero > /small/f').exit_code, 0)

    def test_all_of_a_team_together_and_their_number(self):
        self.change(volumeStorageMB=3, volumes=2)
        second = self.api.ok('POST', '/volumes', {'name': f'w-{time.time_ns()}'})
        self.addCleanup(self.api.status, 'DELETE', f"/volumes/{second['volumeID']}")
        self.assertEqual(self.api.status('POST', '/volumes', {'name': 'third'}), 429)
        self.assertEqual(self.content.status('PUT', self.at('file', '/f'), raw=b'x' * (2 * MIB)), 201)
        other = Api(self.env, Authorization='Bearer ' + second['token'])
        path = f"/volumecontent/{second['volumeID']}/file?path=/f"
        status, _, answer = other('PUT', path, raw=b'x' * (2 * MIB))
        self.assertEqual(status, 507, answer)
        self.assertIn('their limit of 3 MiB in all was reached', answer['message'])
        self.assertEqual(self.seen()['used']['volumes'], 2)
        self.assertGreaterEqual(self.seen()['used']['volumeStorageMB'], 2)


if __name__ == '__main__':
    unittest.main()
