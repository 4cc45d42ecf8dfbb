"""SIGKILL of server or warden at every step of every operation: what was promised is there afterwards,
and nothing is left over. Needs the build with crash points (the sanitizers' one)."""
import base64
import http.client
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import time
import unittest

from harness import kernel
from harness.sandbox import Sandbox, frames
from harness.server import Failed, Server
from test_plane import Api

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent

# operation: the steps at which it is cut
STEPS = {
    'create': ['create.asked', 'create.row', 'create.run', 'create.both', 'warden.create.named',
               'warden.create.started', 'warden.create.ready'],
    'create_mounted': ['create.run', 'warden.create.named', 'warden.create.started', 'warden.create.ready'],
    'volume_make': ['volume.made', 'warden.volume.asked', 'warden.volume.done'],
    'volume_open': ['warden.volume.asked', 'warden.volume.done'],
    'volume_remove': ['volume.deleted', 'warden.volume.asked', 'warden.volume.done'],
    'exec': ['exec.dialled'],
    'pause': ['pause.frozen', 'pause.recorded', 'pause.complete', 'warden.freeze'],
    'pause_disk': ['pause.frozen', 'pause.saved', 'pause.recorded', 'pause.complete',
                   'warden.save.started', 'warden.save.copied'],
    'resume': ['resume.running', 'resume.recorded', 'warden.thaw'],
    'resume_disk': ['resume.running', 'resume.recorded', 'warden.create.named', 'warden.create.ready'],
    'resume_cold': ['resume.saved', 'resume.destroyed', 'resume.running', 'resume.recorded'],
    'snapshot': ['snapshot.saved', 'snapshot.recorded', 'warden.save.started', 'warden.save.copied'],
    'snapshot_name': ['snapshot.named'],
    'fork': ['fork.saved', 'fork.one', 'fork.one:2', 'create.both:2'],
    'network': ['network.laid', 'network.recorded', 'warden.policy.kept', 'warden.policy.laid'],
    'network_many': ['warden.policy.kept', 'warden.policy.piece', 'warden.policy.laid'],
    'rules': ['network.laid', 'network.recorded', 'network.trusted', 'warden.policy.laid'],
    'kill': ['kill.asked', 'kill.removed', 'kill.done', 'warden.destroy.killed',
             'warden.destroy.removed'],
}
CUT = (OSError, http.client.HTTPException, RuntimeError)



def quiet_snapshot(last):
    """The server that all suites share fills its pool in the background: wait until it has. What looks as
    it did before the last test is quiet already."""
    seen = kernel.snapshot()
    return seen if seen == last else kernel.settled()


@unittest.skipUnless((BUILD / 'atoll').read_bytes().find(b'pause.frozen') > 0,
                     'this build has no crash points')
class Crash(unittest.TestCase):
    quiet = None  # what there was before the last test

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-crash-')
        self.addCleanup(scratch.cleanup)
        self.before = Crash.quiet = quiet_snapshot(Crash.quiet)
        pathlib.Path(scratch.name).chmod(0o755)
        self.server = Server(BUILD, scratch.name, '--pool', '2')
        self.addCleanup(self.server.stop)

    def serve(self, crash_at=None):
        self.server.environment['ATOLL_CRASH_AT'] = crash_at or ''
        self.server.start()

    def box(self):
        box = Sandbox(env=self.server.env(), timeout=600)
        box.run('echo kept > file; touch ticks; setsid bash -c "while sleep 0.1; do date +%s >> ticks; done" '
                '>/dev/null 2>&1 </dev/null &')
        return box

    def wait_dead(self):
        """The server died by itself, or its warden did and the server says so."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if self.server.process.poll() is not None or not self.server.healthy():
                break
            time.sleep(0.05)
        else:
            self.fail('nothing died: is the step ever reached?')
        if self.server.process.poll() is None:
            self.server.kill()

    def check_runs(self, box):
        """Its processes, files and token are what they were."""
        self.assertEqual(box.run('cat file').text(), 'kept\n')
        self.assertEqual(box.run('n=$(wc -l < ticks); for i in $(seq 1000); do [ $(wc -l < ticks) -gt $n ] && '
                                 'exec echo ticks; sleep 0.02; done').text(), 'ticks\n')

    def check_empty(self):
        """All that is listed can be removed, and then nothing is left of any of it."""
        probe = Sandbox.__new__(Sandbox)
        probe.env = self.server.env()
        for row in probe.api('GET', '/v2/sandboxes'):
            probe.api('DELETE', f"/sandboxes/{row['sandboxID']}")
        for row in probe.api('GET', '/volumes'):
            probe.api('DELETE', f"/volumes/{row['volumeID']}")
        for row in probe.api('GET', '/snapshots'):
            probe.api('DELETE', f"/templates/{row['snapshotID'].replace(':', '%3A')}")
        self.assertEqual(self.server.stop(), 0)
        left = {kind: names for kind, names in kernel.leaked(self.before).items() if names}
        self.assertEqual(left, {})
        self.assertEqual(kernel.sandbox_files(self.server.data), [])
        self.assertEqual(self.server.sanitizer_findings(), '')

    # What each operation needs before it is cut, and how it is asked for.

    def prepare(self, operation, box):
        if operation == 'resume' or operation == 'resume_cold':
            box.api('POST', f'/sandboxes/{box.id}/pause', {})
        elif operation == 'resume_disk':
            box.api('POST', f'/sandboxes/{box.id}/pause', {'memory': False})
        elif operation in ('create_mounted', 'volume_open', 'volume_remove'):
            self.volume = box.api('POST', '/volumes', {'name': 'v'})
            user = Sandbox(env=self.server.env(), timeout=600, volumeMounts=[{'name': 'v', 'path': '/data'}])
            user.run('echo kept > /data/file; sync -f /data')
            if operation == 'volume_open':
                user.kill()
        elif operation == 'snapshot_name':
            box.api('POST', f'/sandboxes/{box.id}/snapshots', {'name': 'one'})

    def ask(self, operation, box):
        path = f'/sandboxes/{box.id}'
        if operation == 'create':
            Sandbox(env=self.server.env())
        elif operation == 'create_mounted':
            Sandbox(env=self.server.env(), volumeMounts=[{'name': 'v', 'path': '/data'}])
        elif operation == 'volume_make':
            box.api('POST', '/volumes', {'name': 'v'})
        elif operation == 'volume_open':
            self.content()
        elif operation == 'volume_remove':
            box.api('DELETE', f"/volumes/{self.volume['volumeID']}")
        elif operation == 'exec':
            box.run('true')
        elif operation == 'pause':
            box.api('POST', path + '/pause', {})
        elif operation == 'pause_disk':
            box.api('POST', path + '/pause', {'memory': False})
        elif operation in ('resume', 'resume_disk'):
            box.api('POST', path + '/connect', {'timeout': 600})
        elif operation == 'resume_cold':
            box.api('POST', path + '/connect', {'timeout': 600, 'memory': False})
        elif operation == 'snapshot':
            box.api('POST', path + '/snapshots', {})
        elif operation == 'snapshot_name':
            box.api('PATCH', '/api/v1/snapshots/one', {'name': 'two'})
        elif operation == 'fork':
            box.api('POST', path + '/fork', {'count': 2})
        elif operation == 'network_many':
            box.api('PUT', path + '/network', {'denyOut': ['198.51.100.0/24', *(
                f'{a}.{b}.0.0/16' for a in range(20, 24) for b in range(0, 256, 2))]})
        elif operation == 'network':
            box.api('PUT', path + '/network', {'denyOut': ['198.51.100.0/24']})
        elif operation == 'rules':
            box.api('PUT', path + '/network', {'rules': {'a.example': [{'transform': {'headers': {'X': 'y'}}}]}})
        elif operation == 'kill':
            box.kill()

    def content(self):
        api = Api(self.server.env(), Authorization='Bearer ' + self.volume['token'])
        status, _, text = api('GET', f"/volumecontent/{self.volume['volumeID']}/file?path=/file")
        return status, text

    def check_volumes(self, operation, box):
        """There is an image for every row and a row for every image, and what was in one is in it."""
        rows = {row['volumeID'] for row in box.api('GET', '/volumes')}
        images = self.server.data / 'volumes' / '.images'
        deadline = time.monotonic() + 60
        while {path.name for path in images.iterdir()} != rows and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual({path.name for path in images.iterdir()}, rows)
        if operation == 'volume_open':
            self.assertEqual(self.content(), (200, b'kept\n'))
        if operation == 'volume_make' and not rows:
            box.api('POST', '/volumes', {'name': 'v'})
        if operation != 'volume_remove' or rows:
            user = Sandbox(env=self.server.env(), volumeMounts=[{'name': 'v', 'path': '/data'}])
            self.assertEqual(user.run('echo more >> /data/file; tail -n 1 /data/file').text(), 'more\n')

    def check_target(self, operation, box):
        """The one it was done to: whole in the old state or whole in the new one, never between."""
        path = f'/sandboxes/{box.id}'
        if operation == 'kill':
            return
        state = box.api('GET', path)['state']
        self.assertIn(state, {'pause': ('running', 'paused'), 'pause_disk': ('running', 'paused'),
                              'resume': ('running', 'paused'), 'resume_disk': ('running', 'paused'),
                              'resume_cold': ('running', 'paused')}.get(operation, ('running',)))
        if state == 'paused':
            box.api('POST', path + '/connect', {'timeout': 600})
        if operation.startswith('volume'):
            self.check_volumes(operation, box)
        if operation in ('network', 'network_many'):
            self.check_rules(box)
        if operation == 'rules':
            self.check_trust(box)
        if operation == 'snapshot_name':  # its row was written
            self.assertEqual([row['names'] for row in box.api('GET', '/snapshots')], [['two']])
        if operation in ('pause_disk', 'resume_disk', 'resume_cold'):
            self.assertEqual(box.run('cat file').text(), 'kept\n')
        else:
            self.check_runs(box)

    def check_rules(self, box):
        """The kernel has what the row says, and one more change is made as ever."""
        asked = box.api('GET', f'/sandboxes/{box.id}').get('network') or {}
        rules = subprocess.run(['nft', 'list', 'ruleset'], capture_output=True, text=True, check=True).stdout
        self.assertEqual(' . 198.51.100.128' in rules, bool(asked.get('denyOut')), asked)
        box.api('PUT', f'/sandboxes/{box.id}/network', {})

    def check_trust(self, box):
        """Rules that are in the row are of use: programs trust who ends their TLS."""
        if not (box.api('GET', f'/sandboxes/{box.id}').get('network') or {}).get('rules'):
            return
        authority = (self.server.data / 'state' / 'egress-ca.pem').read_text()
        certificate = authority[authority.index('-----BEGIN CERTIFICATE'):].split('-----END CERT')[0]
        trusted, deadline = '', time.monotonic() + 60
        while certificate not in trusted:
            self.assertLess(time.monotonic(), deadline, trusted)
            trusted = box.run('cat $NODE_EXTRA_CA_CERTS </dev/null').text()
            time.sleep(0.1)

    def one(self, operation, step):
        self.serve()
        witness, box = self.box(), self.box()
        self.prepare(operation, box)
        self.assertEqual(self.server.stop(), 0)
        try:
            self.serve(step)
            self.ask(operation, box)
        except (*CUT, Failed):  # volumes are opened by themselves, too: to be measured
            pass
        self.wait_dead()
        self.serve()
        self.check_runs(witness)
        self.check_target(operation, box)
        self.check_empty()


@unittest.skipUnless((BUILD / 'atoll').read_bytes().find(b'pause.frozen') > 0,
                     'this build has no crash points')
class Output(unittest.TestCase):
    def test_none_is_missed_across_a_crash(self):
        with tempfile.TemporaryDirectory(prefix='atoll-crash-') as scratch:
            pathlib.Path(scratch).chmod(0o755)
            server = Server(BUILD, scratch, '--pool', '1')
            self.addCleanup(server.stop)
            server.start()
            box = Sandbox(env=server.env(), timeout=600)
            seen, last = b'', 0
            pid, stream = self.follow(box, 'Start', {'process': {
                'cmd': '/bin/bash', 'args': ['-c', 'for i in $(seq 300); do echo $i; sleep 0.003; done']}})
            for event in stream:
                seen, last = self.take(event, seen, last)
                if seen.count(b'\n') > 50:
                    break
            server.kill()
            time.sleep(0.5)
            server.start()
            _, stream = self.follow(box, 'Connect', {'process': {'pid': pid}},
                                    **{'Atoll-Replay-From': str(last + 1)})
            for event in stream:
                seen, last = self.take(event, seen, last)
            self.assertEqual(seen.split(), [str(i).encode() for i in range(1, 301)])
            box.kill()
            self.assertEqual(server.stop(), 0)

    def follow(self, box, method, message, **headers):
        """The pid, and the events after the first."""
        body = json.dumps(message).encode()
        link = box.connection()
        link.request('POST', '/process.Process/' + method, struct.pack('>BI', 0, len(body)) + body,
                     box.headers(**{'Content-Type': 'application/connect+json', **headers}))
        events = (json.loads(text).get('event', {}) for _, text in frames(link.getresponse()))
        return next(events)['start']['pid'], events

    def take(self, event, seen, last):
        data = event.get('data', {})
        return seen + base64.b64decode(data.get('stdout', '')), int(data.get('seq', last))


def add_case(operation, step):
    name = 'test_' + operation + '_' + step.replace('.', '_').replace(':', '_')
    setattr(Crash, name, lambda self: self.one(operation, step))


for _operation, _steps in STEPS.items():
    for _step in _steps:
        add_case(_operation, _step)

if __name__ == '__main__':
    unittest.main()
