"""The guest by itself: who may do what, and what it makes of requests that no decent client sends."""
import base64
import hashlib
import json
import os
import signal
import subprocess
import threading
import time
import urllib.parse

from harness.guest import ME, STREAM, UNARY, GuestTest, frame

TOKEN = '0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0'


class Access(GuestTest):
    SETTINGS = {'accessToken': TOKEN, 'envVars': {'A': 'sandbox', 'E2B_SANDBOX': 'no'}, 'sandboxId': 'i0',
                'templateId': 'base', 'defaultUser': ME.pw_name, 'cpuCount': 3, 'memoryMB': 777,
                'startCmd': 'exec sleep 300'}

    def test_health_needs_nothing(self):
        status, body, headers = self.guest.http('GET', '/health')
        self.assertEqual((status, body, headers['Cache-Control']), (204, b'', 'no-store'))

    def test_everything_else_needs_the_token(self):
        want = (401, {'code': 401, 'message': 'unauthorized access, please provide a valid access token '
                                              'or method signing if supported'})
        for wrong in ({}, {'X_Access_Token': TOKEN[:-1]}, {'X_Access_Token': TOKEN[:-1] + '1'}):
            self.assertEqual(self.guest.call('List', **wrong), want)
            self.assertEqual(self.guest.http('GET', '/metrics', **wrong)[0], 401)
            self.assertEqual(self.guest.http('POST', '/files/compose', **wrong)[0], 401)
            self.assertEqual(self.guest.http('GET', '/no-such-route', **wrong)[0], 401)
        self.assertEqual(self.guest.call('List', X_Access_Token=TOKEN), (200, {'processes': []}))

    def signed(self, path, operation='read', user='', expires=None):
        raw = ':'.join([path, operation, user, TOKEN] + ([str(expires)] if expires else []))
        digest = base64.b64encode(hashlib.sha256(raw.encode()).digest()).decode().rstrip('=')
        query = {'path': path, 'signature': 'v1_' + digest}
        query.update({'username': user} if user else {})
        query.update({'signature_expiration': expires} if expires else {})
        return '/files?' + urllib.parse.urlencode(query)

    def test_signed_files(self):
        path = str(self.dir / 's p.txt')
        octets = {'Content_Type': 'application/octet-stream'}
        self.assertEqual(self.guest.http('POST', self.signed(path, 'write'), b'1', **octets)[0], 200)
        self.assertEqual(self.guest.http('GET', self.signed(path))[:2], (200, b'1'))
        soon = int(time.time()) + 100
        self.assertEqual(self.guest.http('GET', self.signed(path, user=ME.pw_name, expires=soon))[0], 200)
        status, body, _ = self.guest.http('GET', self.signed(path, expires=soon - 200))
        self.assertEqual((status, body), (401, b'{"code":401,"message":"signature is already expired"}'))
        for target, message in ((self.signed(path, 'write'), 'invalid signature'),
                                ('/files?path=x', 'missing signature query parameter')):
            status, body, _ = self.guest.http('GET', target)
            self.assertEqual((status, json.loads(body)['message']), (401, message))
        target = '/files?path=' + urllib.parse.quote(path)
        self.assertEqual(self.guest.http('GET', target, X_Access_Token='x')[0], 401)
        self.assertEqual(self.guest.http('GET', target, X_Access_Token=TOKEN)[0], 200)

    def test_settings_show(self):
        status, body, _ = self.guest.http('GET', '/envs', X_Access_Token=TOKEN)
        self.assertEqual(json.loads(body), {'A': 'sandbox', 'E2B_SANDBOX': 'true',
                                            'E2B_SANDBOX_ID': 'i0', 'E2B_TEMPLATE_ID': 'base'})
        status, body, _ = self.guest.http('GET', '/metrics', X_Access_Token=TOKEN)
        metrics = json.loads(body)
        self.assertEqual((metrics['cpu_count'], metrics['mem_total'], metrics['mem_total_mib']),
                         (3, 777 << 20, 777))
        self.assertGreater(metrics['mem_used'], 0)
        self.assertGreater(metrics['disk_total'], metrics['disk_used'])
        self.assertLess(abs(metrics['ts'] - time.time()), 30)

    def test_a_sandbox_at_rest_uses_little_but_not_nothing(self):
        for _ in range(2):
            time.sleep(0.3)
            used = json.loads(self.guest.http('GET', '/metrics', X_Access_Token=TOKEN)[1])['cpu_used_pct']
        self.assertGreater(used, 0)
        self.assertLessEqual(used, 100)

    def test_init(self):
        def init(**message):
            status, _, headers = self.guest.http('POST', '/init', json.dumps(message))
            self.assertEqual(headers['X-Envd-Version'], '0.6.13')
            return status
        self.assertEqual(init(envVars={'A': 'other'}), 401)
        self.assertEqual(init(accessToken='wrong'), 401)
        self.assertEqual(self.guest.http('POST', '/init', b'nonsense')[0], 400)
        self.assertEqual(init(accessToken=TOKEN, volumeMounts=[], hyperloopIP='1.2.3.4'), 204)

    def test_start_command_runs_unseen(self):
        for _ in range(1200):  # a login shell comes first
            if self.children():
                break
            time.sleep(0.05)
        self.assertEqual(len(self.children()), 1)
        self.assertEqual(self.guest.call('List', X_Access_Token=TOKEN), (200, {'processes': []}))

    @classmethod
    def children(cls):
        return subprocess.run(['pgrep', '-P', str(cls.guest.process.pid), '-x', 'sleep'],
                              capture_output=True, text=True, check=False).stdout.split()

    @classmethod
    def tearDownClass(cls):
        for pid in cls.children():
            os.kill(int(pid), signal.SIGKILL)
        super().tearDownClass()


class Protocol(GuestTest):
    def test_methods_types_and_routes(self):
        http_ = self.guest.http
        self.assertEqual(http_('GET', '/process.Process/List')[0], 405)
        self.assertEqual(http_('POST', '/process.Process/List', b'{}', Content_Type='application/grpc')[0], 415)
        self.assertEqual(http_('POST', '/process.Process/List', b'{}')[0], 415)
        self.assertEqual(http_('POST', '/process.Process/Start', b'{}', Content_Type=UNARY)[0], 415)
        self.assertEqual(http_('POST', '/process.Process/Nothing', b'{}', Content_Type=UNARY)[0], 404)
        self.assertEqual(http_('PUT', '/files')[0], 405)
        self.assertEqual(http_('POST', '/process.Process/List', b'{}',
                               Content_Type='application/json; charset=utf-8')[0], 200)

    def test_unknown_fields_and_other_spellings_are_fine(self):
        self.assertEqual(self.guest.call('Stat', {'path': '/', 'later': {'x': [1]}})[0], 200)
        self.assertEqual(self.guest.call('CreateWatcher', {'path': '/no', 'include_entry': True})[0], 404)
        self.assertEqual(self.guest.call('ListDir', {'path': str(self.dir), 'depth': None})[0], 200)

    def test_malformed_messages(self):
        for body in (b'', b'[]', b'{"path":5}', b'{"path":"a\\u0000b"}', b'{', b'\xff'):
            status, answer, _ = self.guest.http('POST', '/filesystem.Filesystem/Stat', body,
                                                Content_Type=UNARY)
            self.assertEqual(status, 200 if body == b'' else 400, body)

    def start_raw(self, body):
        status, answer, headers = self.guest.http('POST', '/process.Process/Start', body,
                                                  Content_Type=STREAM)
        self.assertEqual((status, headers['Content-Type'], answer[0]), (200, STREAM, 2))
        return json.loads(answer[5:])['error']['code']

    def test_malformed_frames(self):
        fine = frame({'process': {'cmd': 'true'}})
        for body, code in ((b'', 'invalid_argument'), (fine[:-1], 'invalid_argument'),
                           (b'\1' + fine[1:], 'invalid_argument'), (fine + fine, 'invalid_argument'),
                           (b'\0\xff\xff\xff\xff', 'resource_exhausted'),
                           (frame(b'nonsense'), 'invalid_argument'),
                           (frame({'process': {'cmd': 5}}), 'invalid_argument')):
            with self.subTest(body[:20]):
                self.assertEqual(self.start_raw(body), code)

    def test_a_message_past_the_limit(self):
        status, body = self.guest.call('Stat', {'path': 'x' * (17 << 20)})
        self.assertEqual((status, body['code']), (429, 'resource_exhausted'))

    def test_browsers(self):
        status, _, headers = self.guest.http('OPTIONS', '/process.Process/Start', Origin='http://a.b',
                                             Access_Control_Request_Method='POST',
                                             Access_Control_Request_Headers='x-access-token')
        self.assertEqual((status, headers['Access-Control-Allow-Origin'],
                          headers['Access-Control-Allow-Headers']), (204, '*', 'x-access-token'))
        self.assertEqual(self.guest.http('GET', '/health', Origin='http://a.b')[2]
                         ['Access-Control-Allow-Origin'], '*')

    def test_many_at_once(self):
        problems = []

        def work(i):
            try:
                r = self.guest.sh(f'echo {i}; sleep 0.1; echo {i} >&2; exit {i % 7}')
                assert (r['stdout'], r['stderr']) == (b'%d\n' % i, b'%d\n' % i), r
                assert r['end']['exitCode'] == i % 7
            except Exception as problem:  # pylint: disable=broad-except
                problems.append(problem)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(problems, [])
