"""An Idempotency-Key holds over a restart of the server and over its death at any step: what was asked for
twice is never done twice. Needs the build with crash points (the sanitizers' one)."""
import http.client
import json
import os
import pathlib
import tempfile
import time
import unittest

from harness.server import Server
from harness.v1 import Api

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
CUT = (OSError, http.client.HTTPException)
RUN = {'shell': 'date +%N'}


@unittest.skipUnless((BUILD / 'atoll').read_bytes().find(b'pause.frozen') > 0,
                     'this build has no crash points')
class Once(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-once-')
        self.addCleanup(scratch.cleanup)
        pathlib.Path(scratch.name).chmod(0o755)
        self.server = Server(BUILD, scratch.name, '--pool', '1', '--stop-sandboxes')
        self.addCleanup(self.server.stop)

    def serve(self, crash_at=''):
        self.server.environment['ATOLL_CRASH_AT'] = crash_at
        self.server.start()
        self.api = Api(self.server)

    def ask(self, path, body, key='the-one'):
        return self.api.raw('POST', path, json.dumps(body),
                            {'Idempotency-Key': key, 'Content-Type': 'application/json'})

    def count(self, kind):
        return len(self.api.events(kind=kind))

    def paths(self):
        """What is asked for, and the kind of event that tells each time it is done."""
        box = self.api.ask('POST', '/sandboxes', {'timeout': 600})['id']
        return [(f'/api/v1/sandboxes/{box}/fork', {'count': 2}, 'sandbox.created'),
                (f'/sandboxes/{box}/fork', {'count': 2}, 'sandbox.created'),
                (f'/api/v1/sandboxes/{box}/snapshot', {}, 'snapshot.created'),
                (f'/sandboxes/{box}/snapshots', {}, 'snapshot.created'),
                ('/api/v1/run', RUN, 'run.started')]

    def test_a_restart_answers_as_the_server_before(self):
        self.serve()
        first = [(path, body, kind, self.ask(path, body)) for path, body, kind in self.paths()]
        self.assertEqual([a.status for *_, a in first], [201, 201, 201, 201, 200])
        failed = self.ask('/api/v1/run', {'shell': 'ls', 'user': 'nobody-here'}, 'failed')
        self.assertEqual(failed.status, 422, failed.body)
        streamed = {**RUN, 'stream': True}
        self.assertEqual(self.ask('/api/v1/run', streamed, 'stream').status, 200)
        for end in (self.server.kill, self.server.stop):
            before = {kind: self.count(kind) for _, _, kind, _ in first}
            end()
            self.serve()
            for path, body, kind, answer in first:
                again = self.ask(path, body)
                self.assertEqual((again.status, again.body), (answer.status, answer.body), path)
                self.assertEqual(again.headers['Idempotent-Replayed'], 'true', path)
                self.assertEqual(self.count(kind), before[kind], path)
                other = self.ask(path, {'timeout': 61})
                self.assertEqual(other.status, 422, other.body)
        untold = self.ask('/api/v1/run', streamed, 'stream')
        self.assertEqual((untold.status, untold.json()['code']), (409, 'not_repeatable'))
        self.assertIn('was done', untold.json()['message'])
        # What failed may be tried again, and a key that nobody used is as ever.
        self.assertEqual(self.ask('/api/v1/run', RUN, 'failed').status, 200)

    def cut(self, step, which):
        """The server dies at the step, while the request is under way; the same again, twice. How often it
        was done, and the two answers."""
        self.serve()
        path, body, kind = self.paths()[which]
        before = self.count(kind)
        self.server.kill()  # its sandboxes live on
        self.serve(step)
        with self.assertRaises(CUT):
            self.ask(path, body, step)
        deadline = time.monotonic() + 60
        while self.server.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertIsNotNone(self.server.process.poll(), 'nothing died: is the step ever reached?')
        self.serve()
        again = [self.ask(path, body, step) for _ in range(2)]
        self.assertEqual(again[0].status, again[1].status)
        self.assertEqual(again[0].body if again[0].status < 300 else None,
                         again[1].body if again[1].status < 300 else None)
        return self.count(kind) - before, again[1]

    def test_a_fork(self):
        for step, most in (('once.begun', 0), ('fork.saved', 0), ('fork.one', 2), ('fork.one:2', 2)):
            with self.subTest(step):
                made, answer = self.cut(step, 0)
                self.assertLessEqual(made, most)
                self.assertEqual((answer.status, answer.json()['code']), (409, 'not_repeatable'))
                self.assertIn('may have been done', answer.json()['message'])
                self.assertEqual(self.server.stop(), 0)

    def test_a_snapshot(self):
        for step, made in (('once.begun', 0), ('snapshot.saved', 0), ('snapshot.recorded', 1)):
            with self.subTest(step):
                got, answer = self.cut(step, 2)
                self.assertEqual(got, made)
                self.assertEqual((answer.status, answer.json()['code']), (409, 'not_repeatable'))
                self.assertEqual(self.server.stop(), 0)

    def test_a_run(self):
        for step, made in (('once.begun', 0), ('run.destroy', 1), ('run.ended', 1)):
            with self.subTest(step):
                got, answer = self.cut(step, 4)
                self.assertEqual(got, made)
                self.assertEqual((answer.status, answer.json()['code']), (409, 'not_repeatable'))
                self.assertEqual(self.server.stop(), 0)


if __name__ == '__main__':
    unittest.main()
