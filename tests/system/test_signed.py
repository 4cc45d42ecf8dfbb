"""Signed file URLs that name no sandbox: the signature itself tells which one is meant."""
import base64
import contextlib
import hashlib
import http.client
import json
import os
import time
import unittest
import urllib.parse

from harness.sandbox import Sandbox


def sign(token, path, operation, user='', expiration=None):
    raw = f'{path}:{operation}:{user}:{token}' + ('' if expiration is None else f':{expiration}')
    digest = hashlib.sha256(raw.encode()).digest()
    return 'v1_' + base64.b64encode(digest).decode().rstrip('=')


def ask(method, query, body=None, **headers):
    url = urllib.parse.urlsplit(os.environ['E2B_SANDBOX_URL'])
    link = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
    with contextlib.closing(link):
        link.request(method, '/files?' + urllib.parse.urlencode(query), body,
                     {k.replace('_', '-'): v for k, v in headers.items()})
        answer = link.getresponse()
        text = answer.read()
        is_json = answer.headers['Content-Type'].startswith('application/json')
        return answer.status, json.loads(text) if is_json else text


class Signed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.boxes = [cls.enterClassContext(Sandbox()) for _ in range(3)]
        for i, box in enumerate(cls.boxes):
            assert box.write('/tmp/which', f'box {i}'.encode())[0] == 200

    def signed(self, box, operation='read', path='/tmp/which', user='', expiration=None):
        query = {'path': path, 'signature': sign(box.made['envdAccessToken'], path, operation, user,
                                                 expiration)}
        if user:
            query['username'] = user
        if expiration is not None:
            query['signature_expiration'] = str(expiration)
        return query

    def test_each_signature_leads_to_its_own_sandbox(self):
        for i, box in enumerate(self.boxes):
            self.assertEqual(ask('GET', self.signed(box)), (200, f'box {i}'.encode()))

    def test_upload_as_another_user(self):
        status, made = ask('POST', self.signed(self.boxes[1], 'write', 'up', 'root'), b'bytes',
                           Content_Type='application/octet-stream')
        self.assertEqual((status, made[0]['path']), (200, '/root/up'))
        self.assertEqual(ask('GET', self.signed(self.boxes[1], 'read', 'up', 'root')), (200, b'bytes'))

    def test_expired_is_said_in_the_guests_words(self):
        late = self.signed(self.boxes[0], expiration=int(time.time()) - 10)
        self.assertEqual(ask('GET', late), (401, {'code': 401, 'message': 'signature is already expired'}))
        ahead = self.signed(self.boxes[0], expiration=int(time.time()) + 60)
        self.assertEqual(ask('GET', ahead)[0], 200)

    def test_what_nobody_signed(self):
        wrong = (401, {'code': 401, 'message': 'invalid signature'})
        good = self.signed(self.boxes[0])
        for change in ({'path': '/etc/passwd'}, {'username': 'root'}, {'signature': 'v1_'},
                       {'signature': ''}, {'signature': good['signature'] + '='},
                       {'signature': 'v1_' + 'A' * 43}, {'signature_expiration': '9999999999'}):
            with self.subTest(change):
                self.assertEqual(ask('GET', {**good, **change}), wrong)
        self.assertEqual(ask('POST', good, b''), wrong)
        status, answer = ask('GET', {**good, 'signature_expiration': 'soon'})
        self.assertEqual((status, answer['code']), (400, 400))

    def test_a_sandbox_that_ended_signs_nothing(self):
        with Sandbox() as box:
            query = self.signed(box)
        self.assertEqual(ask('GET', query)[0], 401)

    def test_without_a_signature_there_is_no_such_path(self):
        self.assertEqual(ask('GET', {'path': '/tmp/which'})[0], 404)


if __name__ == '__main__':
    unittest.main()
