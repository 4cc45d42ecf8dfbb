"""Pausing and resuming as many clients see it at once, and what a resume may change."""
import contextlib
import json
import os
import socket
import tempfile
import time
import unittest
import urllib.parse

from harness.sandbox import Sandbox
from harness.server import Server
from test_plane import BUILD, Api


def at_once(requests, env=None):
    """Sends all requests before any answer is read: their statuses and answers."""
    env = env or os.environ
    url = urllib.parse.urlsplit(env['E2B_API_URL'])
    links = [socket.create_connection((url.hostname, url.port), 30) for _ in requests]
    texts = []
    for method, path, body in requests:
        body = json.dumps(body)
        texts.append(f'{method} {path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {env["E2B_API_KEY"]}\r\n'
                     f'Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}'.encode())
    for link, text in zip(links, texts):
        link.sendall(text)
    answers = []
    for link in links:
        with link, link.makefile('rb') as stream:
            head, _, body = stream.read().partition(b'\r\n\r\n')
            answers.append((int(head.split()[1]), json.loads(body) if body else None))
    return answers


class Change(unittest.TestCase):
    def setUp(self):
        self.api = Api(os.environ, **{'X-API-Key': os.environ['E2B_API_KEY']})

    def statuses(self, box, *calls):
        return [status for status, _ in at_once([('POST', f'/sandboxes/{box.id}/{what}', body)
                                                 for what, body in calls])]

    def state(self, box):
        return self.api.ok('GET', f'/sandboxes/{box.id}')['state']

    def test_all_who_pause_at_once_have_paused_it(self):
        with Sandbox() as box:
            for _ in range(10):
                self.assertEqual(self.statuses(box, *[('pause', {})] * 5), [204] * 5)
                self.assertEqual(self.state(box), 'paused')
                self.api.ok('POST', f'/sandboxes/{box.id}/resume', {})

    def test_who_pauses_again_is_told_so(self):
        with Sandbox() as box, contextlib.closing(box.connection()) as link:
            for want in (204, 409, 409):
                link.request('POST', f'/sandboxes/{box.id}/pause', '{}', {'X-API-Key': os.environ['E2B_API_KEY']})
                answer = link.getresponse()
                answer.read()
                self.assertEqual(answer.status, want)
            time.sleep(0.2)  # on another connection, but plainly later
            self.assertEqual(self.api.status('POST', f'/sandboxes/{box.id}/pause', {}), 409)

    def test_all_who_pause_to_disk_at_once(self):
        with Sandbox() as box:
            self.assertEqual(self.statuses(box, *[('pause', {'memory': False})] * 4), [204] * 4)
            self.assertEqual(self.statuses(box, *[('resume', {'timeout': 60})] * 4), [201] * 4)
            self.assertEqual(box.run('echo back').text(), 'back\n')

    def test_who_wanted_another_kind_of_pause_is_told(self):
        with Sandbox() as box:
            self.assertEqual(sorted(self.statuses(box, ('pause', {}), ('pause', {'memory': False}))), [204, 409])

    def test_all_who_resume_or_connect_at_once_have_brought_it_back(self):
        with Sandbox() as box:
            self.assertEqual(self.statuses(box, ('resume', {}), ('connect', {'timeout': 1})), [409, 200])
            for _ in range(10):
                self.api.ok('POST', f'/sandboxes/{box.id}/pause', {})
                self.assertEqual(self.statuses(box, *[('resume', {'timeout': 60})] * 5), [201] * 5)
                self.assertEqual(self.state(box), 'running')
                self.api.ok('POST', f'/sandboxes/{box.id}/pause', {})
                answers = self.statuses(box, *[('connect', {'timeout': 60})] * 5)
                self.assertLessEqual(set(answers), {200, 201})
                self.assertIn(201, answers)
            time.sleep(1.1)
            self.assertEqual(self.api.status('POST', f'/sandboxes/{box.id}/resume', {}), 409)

    def test_the_longest_of_those_who_resume_counts(self):
        with Sandbox() as box:
            self.api.ok('POST', f'/sandboxes/{box.id}/pause', {})
            self.statuses(box, *[('connect', {'timeout': t}) for t in (30, 900, 60)])
            detail = self.api.ok('GET', f'/sandboxes/{box.id}')
            left = time.mktime(time.strptime(detail['endAt'][:19], '%Y-%m-%dT%H:%M:%S')) - \
                time.mktime(time.gmtime())
            self.assertGreater(left, 800)

    def test_a_fresh_boot_is_not_what_others_resumed(self):
        with Sandbox() as box:
            self.api.ok('POST', f'/sandboxes/{box.id}/pause', {})
            cold = {'timeout': 60, 'memory': False}
            both = self.statuses(box, ('connect', {'timeout': 60}), ('connect', cold))
            # While it is resumed, or when it runs; or the fresh boot came first, and the other joined it.
            self.assertIn(both, ([201, 409], [201, 200], [201, 201]))
            self.api.ok('POST', f'/sandboxes/{box.id}/pause', {})
            self.assertEqual(self.statuses(box, ('resume', cold), ('resume', cold)), [201, 201])

    def test_pause_and_kill_at_once(self):
        box = Sandbox()
        answers = at_once([('POST', f'/sandboxes/{box.id}/pause', {}), ('DELETE', f'/sandboxes/{box.id}', {}),
                           ('POST', f'/sandboxes/{box.id}/pause', {})])
        self.assertEqual(answers[1][0], 204)
        self.assertLessEqual({status for status, _ in answers}, {204, 404})
        self.assertEqual(self.api.status('GET', f'/sandboxes/{box.id}'), 404)

    def test_resume_changes_what_happens_at_the_end(self):
        with Sandbox() as box:
            for wanted, shown in ((True, 'pause'), (None, 'pause'), (False, 'kill')):
                self.api.ok('POST', f'/sandboxes/{box.id}/pause', {})
                self.api.ok('POST', f'/sandboxes/{box.id}/resume', {'timeout': 60, 'autoPause': wanted})
                self.assertEqual(self.api.ok('GET', f'/sandboxes/{box.id}')['lifecycle']['onTimeout'], shown)

    def test_bad_input_is_refused(self):
        with Sandbox() as box:
            self.api.ok('POST', f'/sandboxes/{box.id}/pause', {})
            for body in ({'timeout': 0}, {'timeout': -1}, {'timeout': '60'}, {'timeout': 10 ** 9},
                         {'memory': 'no'}, {'autoPause': 1}, []):
                self.assertEqual(self.api.status('POST', f'/sandboxes/{box.id}/resume', body), 400, body)
            self.assertEqual(self.state(box), 'paused')


class Quota(unittest.TestCase):
    def test_what_is_paused_makes_room_and_needs_it_again(self):
        with tempfile.TemporaryDirectory() as scratch:
            os.chmod(scratch, 0o755)
            with Server(BUILD, scratch, '--max-sandboxes', '2', '--stop-sandboxes') as server:
                env = server.env()
                api = Api(env, **{'X-API-Key': env['E2B_API_KEY']})
                first, _ = Sandbox(env=env), Sandbox(env=env)
                self.assertEqual(api.status('POST', '/v2/sandboxes', {'templateID': 'base'}), 429)
                self.assertEqual(api.status('POST', f'/sandboxes/{first.id}/fork', {'count': 2}), 400)
                api.ok('POST', f'/sandboxes/{first.id}/pause', {})
                third = Sandbox(env=env)
                self.assertEqual(api.status('POST', f'/v2/sandboxes/{first.id}/connect', {}), 429)
                third.kill()
                self.assertEqual(api.status('POST', f'/v2/sandboxes/{first.id}/connect', {}), 201)

    def test_memory_of_paused_ones_is_not_for_nothing(self):
        with tempfile.TemporaryDirectory() as scratch:
            os.chmod(scratch, 0o755)
            with Server(BUILD, scratch, '--max-sandboxes', '1', '--stop-sandboxes') as server:
                env = server.env()
                api = Api(env, **{'X-API-Key': env['E2B_API_KEY']})
                api.ok('POST', f'/sandboxes/{Sandbox(env=env).id}/pause', {})
                second = Sandbox(env=env)
                self.assertEqual(api.status('POST', f'/sandboxes/{second.id}/pause', {}), 429)
                self.assertEqual(second.run('echo on').text(), 'on\n')
                api.ok('POST', f'/sandboxes/{second.id}/pause', {'memory': False})
                third = Sandbox(env=env, timeout=1, autoPause=True)  # its time is up: files are kept
                deadline = time.monotonic() + 10
                while api.ok('GET', f'/sandboxes/{third.id}')['state'] != 'paused':
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.1)


if __name__ == '__main__':
    unittest.main()
