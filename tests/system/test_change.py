"""Pausing and resuming as many clients see it at once, and what a resume may change."""
import concurrent.futures
import contextlib
import json
import os
import socket
import sqlite3
import tempfile
import time
import unittest
import urllib.parse

from harness import v1
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
    began = time.monotonic()
    for link, text in zip(links, texts):
        link.sendall(text)
    at_once.spread = time.monotonic() - began  # how far from at once that was
    answers = []
    for link in links:
        with link, link.makefile('rb') as stream:
            head, _, body = stream.read().partition(b'\r\n\r\n')
            answers.append((int(head.split()[1]), json.loads(body) if body else None))
    return answers


class Change(unittest.TestCase):
    def setUp(self):
        self.api = Api(os.environ, **{'X-API-Key': os.environ['E2B_API_KEY']})

    def all_did(self, answers, status, together_s):
        """Those of them that really asked together. Who was held up meanwhile comes to one that is so already."""
        if at_once.spread < together_s:
            self.assertEqual(answers, [status] * len(answers))
        self.assertEqual((answers[0], set(answers) - {status, 409}), (status, set()))

    def statuses(self, box, *calls):
        return [status for status, _ in at_once([('POST', f'/sandboxes/{box.id}/{what}', body)
                                                 for what, body in calls])]

    def state(self, box):
        return self.api.ok('GET', f'/sandboxes/{box.id}')['state']

    def test_all_who_pause_at_once_have_paused_it(self):
        with Sandbox() as box:
            for _ in range(10):
                self.all_did(self.statuses(box, *[('pause', {})] * 5), 204, 0.05)
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
            self.all_did(self.statuses(box, *[('pause', {'memory': False})] * 4), 204, 0.05)
            self.all_did(self.statuses(box, *[('resume', {'timeout': 60})] * 4), 201, 0.5)
            self.assertEqual(box.run('echo back').text(), 'back\n')

    def test_who_wanted_another_kind_of_pause_is_told(self):
        with Sandbox() as box:
            self.assertEqual(sorted(self.statuses(box, ('pause', {}), ('pause', {'memory': False}))), [204, 409])

    def test_all_who_resume_or_connect_at_once_have_brought_it_back(self):
        with Sandbox() as box:
            self.assertEqual(self.statuses(box, ('resume', {}), ('connect', {'timeout': 1})), [409, 200])
            for _ in range(10):
                self.api.ok('POST', f'/sandboxes/{box.id}/pause', {})
                self.all_did(self.statuses(box, *[('resume', {'timeout': 60})] * 5), 201, 0.5)
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
                deadline = time.monotonic() + 60
                while api.ok('GET', f'/sandboxes/{third.id}')['state'] != 'paused':
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.1)


class Unwritten(unittest.TestCase):
    """The database takes nothing for a while."""

    def test_what_could_not_be_written_was_not_done_and_can_be_asked_for_again(self):
        with tempfile.TemporaryDirectory() as scratch:
            os.chmod(scratch, 0o755)
            with Server(BUILD, scratch, '--pool', '2', '--stop-sandboxes') as server:
                if 'ATOLL_DATABASE' in server.environment:
                    self.skipTest('its rows are in PostgreSQL')
                env = server.env()
                self.api = Api(env, **{'X-API-Key': env['E2B_API_KEY']})
                boxes = [Sandbox(env=env) for _ in range(3)]
                for box in boxes:
                    box.run('setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $! > pid')
                running, to_disk, paused = boxes
                self.api.ok('POST', f'/sandboxes/{paused.id}/pause', {})
                snapshot = self.api.ok('POST', f'/sandboxes/{running.id}/snapshots', {})['snapshotID']
                template = '/templates/' + urllib.parse.quote(snapshot, safe='')
                with contextlib.closing(sqlite3.connect(server.data / 'state/atoll.db', timeout=30,
                                                        isolation_level=None)) as database:
                    database.execute('BEGIN IMMEDIATE')
                    answers = at_once([('POST', f'/sandboxes/{running.id}/pause', {}),
                                       ('POST', f'/sandboxes/{to_disk.id}/pause', {'memory': False}),
                                       ('POST', f'/sandboxes/{paused.id}/connect', {'timeout': 60, 'memory': False}),
                                       ('DELETE', template, {})], env)
                    database.execute('ROLLBACK')
                self.assertEqual([status for status, _ in answers], [503] * 4, answers)
                self.assertEqual(self.api.ok('GET', f'/sandboxes/{paused.id}')['state'], 'paused')
                self.api.ok('POST', f'/sandboxes/{paused.id}/connect', {'timeout': 60})
                for box in boxes:  # each with its memory
                    self.assertEqual(box.run('kill -0 $(cat pid) && echo there').text(), 'there\n')
                Sandbox(snapshot, env=env).kill()
                self.assertEqual(self.api.status('DELETE', template), 204)
                self.api.ok('POST', f'/sandboxes/{paused.id}/pause', {})
                self.api.ok('POST', f'/sandboxes/{paused.id}/connect', {'timeout': 60, 'memory': False})
                self.assertEqual(paused.run('kill -0 $(cat pid) 2>/dev/null || echo gone').text(), 'gone\n')


class Queue(unittest.TestCase):
    def test_who_waited_gets_what_the_name_stands_for_by_then(self):
        with tempfile.TemporaryDirectory() as scratch:
            os.chmod(scratch, 0o755)
            with Server(BUILD, scratch, '--max-sandboxes', '1', '--stop-sandboxes') as server, \
                    concurrent.futures.ThreadPoolExecutor(1) as pool:
                api, box = v1.Api(server), Sandbox(env=server.env())
                for word in ('old', 'new'):
                    box.run(f'echo {word} > file')
                    box.api('POST', f'/sandboxes/{box.id}/snapshots', {'name': 'saved'})
                    if word == 'old':
                        waits = pool.submit(api.call, 'POST', '/sandboxes', {'template': 'saved', 'wait': 60})
                        time.sleep(0.5)
                box.kill()
                made = waits.result()
                self.assertEqual(made.status, 201, made.body)
                said = api.ask('POST', f"/sandboxes/{made.json()['id']}/execute", {'shell': 'cat ~/file'})
                self.assertEqual(said['stdout'], 'new\n', said)


class Age(unittest.TestCase):
    def test_what_may_become_older_by_its_timeout_can_be_forked(self):
        with tempfile.TemporaryDirectory() as scratch:
            os.chmod(scratch, 0o755)
            with Server(BUILD, scratch, '--max-age', '60', '--stop-sandboxes') as server:
                env = server.env()
                api = Api(env, **{'X-API-Key': env['E2B_API_KEY']})
                made = v1.Api(server).ask('POST', '/sandboxes', {'timeout': 300})
                self.assertEqual(made['max_age'], 300)
                status, _, answer = api('POST', f"/sandboxes/{made['id']}/fork", {'count': 1})
                self.assertEqual(status, 201, answer)
                self.assertTrue(all('sandbox' in fork for fork in answer), answer)


if __name__ == '__main__':
    unittest.main()
