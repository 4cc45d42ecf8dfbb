"""What the edge itself answers: JSON for programs, a page for a browser; and who may wake a sandbox."""
import base64
import contextlib
import http.client
import json
import os
import pathlib
import tempfile
import time
import unittest
import urllib.parse

from harness.certificates import Authority
from harness.sandbox import GUEST_PORT, Sandbox
from test_plane import Api
from test_signed import ask, sign

BROWSER = 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Safari/537.36'
NOBODY = 'i' + 'z' * 20


def get(box_id, port, path='/', method='GET', **headers):
    url = urllib.parse.urlsplit(os.environ['E2B_SANDBOX_URL'])
    link = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
    with contextlib.closing(link):
        link.request(method, path, None, {'E2b-Sandbox-Id': box_id, 'E2b-Sandbox-Port': str(port),
                                          **{k.replace('_', '-'): v for k, v in headers.items()}})
        answer = link.getresponse()
        return answer.status, answer.headers, answer.read()


class Edge(unittest.TestCase):
    def page(self, status, title, *args, **more):
        got, headers, body = get(*args, User_Agent=BROWSER, **more)
        text = body.decode()
        self.assertEqual((got, headers['Content-Type']), (status, 'text/html; charset=utf-8'), text)
        self.assertTrue(text.startswith('<html') and text.endswith('</html>'), text)
        self.assertIn(title, text)
        self.assertIn("default-src 'none'", headers['Content-Security-Policy'])
        for outside in ('<script', '://', 'src=', 'url('):
            self.assertNotIn(outside, text)
        return text

    def data(self, status, message, *args, **more):
        got, headers, body = get(*args, **more)
        self.assertEqual((got, headers['Content-Type']), (status, 'application/json; charset=utf-8'), body)
        answer = json.loads(body)
        self.assertEqual((answer['code'], answer['message']), (status, message))
        self.assertEqual({name: headers[name] for name in INERT}, INERT)
        return answer

    def test_a_sandbox_that_is_not_there(self):
        answer = self.data(502, 'The sandbox was not found', NOBODY, 3000)
        self.assertEqual(answer, {'sandboxId': NOBODY, 'message': 'The sandbox was not found', 'code': 502})
        self.assertIn(NOBODY, self.page(502, 'Sandbox Not Found', NOBODY, 3000))

    def test_a_port_where_nobody_listens(self):
        with Sandbox() as box:
            answer = self.data(502, 'The sandbox is running but port is not open', box.id, 3210)
            self.assertEqual((answer['port'], answer['sandboxId']), (3210, box.id))
            text = self.page(502, 'no service running on port 3210', box.id, 3210)
            self.assertIn(box.id, text)

    def test_services_that_speak_tls(self):
        serve = ('import http.server,ssl\n'
                 's=http.server.HTTPServer(("127.0.0.1",8443),http.server.SimpleHTTPRequestHandler)\n'
                 'c=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER);c.load_cert_chain("/tmp/c.pem","/tmp/k.pem")\n'
                 's.socket=c.wrap_socket(s.socket,server_side=True);s.serve_forever()\n')
        with tempfile.TemporaryDirectory() as home, Sandbox(network={'httpsPorts': [9443, 8443]}) as box:
            pair = pathlib.Path(home, 'c.pem'), pathlib.Path(home, 'k.pem')
            Authority(home).issue(*pair, 'whoever.test')
            for path, file in zip(('/tmp/c.pem', '/tmp/k.pem'), pair):
                box.write(path, file.read_bytes())
            box.write('/tmp/serve.py', serve.encode())
            box.write('/tmp/www/big', b'x' * 3_000_000)
            box.run('cd /tmp/www; nohup python3 /tmp/serve.py >/tmp/serve.log 2>&1 </dev/null & '
                    'for i in $(seq 1200); do (: </dev/tcp/127.0.0.1/8443) 2>/dev/null && break; sleep 0.05; done')
            status, _, body = get(box.id, 8443, '/big')
            self.assertEqual((status, len(body)), (200, 3_000_000))
            self.data(502, 'The sandbox is running but port is not open', box.id, 9443)
            # Where nobody speaks TLS although it was said so.
            box.run('cd /tmp; nohup python3 -m http.server 9443 >/dev/null 2>&1 </dev/null & '
                    'for i in $(seq 1200); do (: </dev/tcp/127.0.0.1/9443) 2>/dev/null && break; sleep 0.05; done')
            self.data(502, 'The sandbox is running but port is not open', box.id, 9443)

    def test_private_traffic(self):
        header = "'e2b-traffic-access-token'"
        with Sandbox(network={'allowPublicTraffic': False}) as box:
            missing = f'Sandbox is secured with traffic access token. Token header {header} is missing'
            wrong = f'Sandbox is secured with traffic access token. Provided token in header {header} is invalid'
            self.assertEqual(self.data(403, missing, box.id, 8080)['sandboxId'], box.id)
            self.assertEqual(self.data(403, wrong, box.id, 8080, e2b_traffic_access_token='abcd')['sandboxId'],
                             box.id)
            self.page(403, 'Missing Traffic Access Token', box.id, 8080)
            self.page(403, 'Invalid Traffic Access Token', box.id, 8080, e2b_traffic_access_token='abcd')
            token = box.made['trafficAccessToken']
            self.assertEqual(get(box.id, 8080, e2b_traffic_access_token=token)[0], 502)

    def test_private_traffic_needs_a_secure_sandbox(self):
        api = Api(os.environ, **{'X-API-Key': os.environ['E2B_API_KEY']})
        status, _, answer = api('POST', '/sandboxes', {'templateID': 'base',
                                                       'network': {'allowPublicTraffic': False}})
        self.assertEqual((status, answer['message']), (
            400, 'You cannot create a sandbox without public access unless you enable secure envd access '
                 "via 'secure' flag."))

    def test_the_servers_own_routes_are_not_reachable(self):
        with Sandbox() as box:
            for token in ({}, {'X_Access_Token': 'wrong'}, {'X_Access_Token': box.made['envdAccessToken']}):
                status, _, body = get(box.id, GUEST_PORT, '/init', 'POST', **token)
                answer = json.loads(body)
                self.assertEqual((status, answer['path'], answer['code']), (404, '/init', 404))
                self.assertIn('reserved for the E2B control plane', answer['message'])
                self.assertNotIn('sandboxId', answer)
            self.page(404, 'reserved for the E2B control plane', box.id, GUEST_PORT, '/init')

    def test_scripts_in_pages_and_programs_get_json(self):
        for headers in ({'Sec_Fetch_Mode': 'cors'}, {'Accept': 'application/json'},
                        {'X_Requested_With': 'XMLHttpRequest'}):
            _, got, _ = get(NOBODY, 80, User_Agent=BROWSER, **headers)
            self.assertEqual(got['Content-Type'], 'application/json; charset=utf-8', headers)
        for headers in ({'User_Agent': 'curl/8'}, {'User_Agent': 'node', 'Accept': 'text/html'}, {}):
            _, got, _ = get(NOBODY, 80, **headers)
            self.assertEqual(got['Content-Type'], 'application/json; charset=utf-8', headers)
        self.page(502, 'Sandbox Not Found', NOBODY, 80, Sec_Fetch_Mode='navigate', X_Requested_With='x')
        self.page(502, 'Sandbox Not Found', NOBODY, 80, Accept='text/html,application/json')


ECHO = b'''
import http.server, json
class Echo(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps([[k.lower(), v] for k, v in self.headers.items()]).encode()
        self.send_response(200)
        for name, value in (('Content-Type', 'text/html'), ('Set-Cookie', 'a=1; Domain=localhost; Path=/'),
                            ('Set-Cookie', 'b=2; HttpOnly'), ('Clear-Site-Data', '"cookies"'),
                            ('Cache-Control', 'public, max-age=99'), ('Content-Disposition', 'inline; filename=x'),
                            ('Content-Security-Policy', 'script-src *'), ('X-Own', 'kept'),
                            ('X-Accel-Redirect', '/internal'), ('x-sendfile', '/etc/passwd'),
                            ('Content-Length', str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(('127.0.0.1', 8000), Echo).serve_forever()
'''
INERT = {'X-Content-Type-Options': 'nosniff', 'Content-Security-Policy': "sandbox; default-src 'none'"}


class Origin(unittest.TestCase):
    """What comes out of a sandbox on a name of the server's own, and what goes in."""

    @classmethod
    def setUpClass(cls):
        cls.box = cls.enterClassContext(Sandbox())
        cls.box.write('/tmp/echo.py', ECHO)
        for name, text in (('page.html', '<script>1</script>'), ('sw.js', 'self'), ('i.svg', '<svg/>')):
            cls.box.write(f'/tmp/{name}', text.encode())
        cls.box.run('nohup python3 /tmp/echo.py >/dev/null 2>&1 </dev/null & '
                    'for i in $(seq 1200); do (: </dev/tcp/127.0.0.1/8000) 2>/dev/null && break; sleep 0.05; done')
        cls.token = cls.box.made['envdAccessToken']

    def fetch(self, path='/', host=None, method='GET', body=None, **headers):
        url = urllib.parse.urlsplit(os.environ['E2B_SANDBOX_URL'])
        link = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
        with contextlib.closing(link):
            named = {'Host': host} if host else {}
            link.request(method, path, body, {**named, **{k.replace('_', '-'): v for k, v in headers.items()}})
            answer = link.getresponse()
            return answer.status, answer.headers, answer.read()

    def inert(self, headers, kind='attachment'):
        for name, value in INERT.items():
            self.assertEqual(headers.get_all(name), [value])
        self.assertTrue(headers['Content-Disposition'].startswith(kind), headers['Content-Disposition'])
        self.assertEqual(headers.get_all('Set-Cookie'), None)

    def test_a_signed_file_is_saved_and_never_run(self):
        for name in ('page.html', 'sw.js', 'i.svg'):
            path = f'/tmp/{name}'
            query = '/files?' + urllib.parse.urlencode({'path': path, 'signature': sign(self.token, path, 'read')})
            status, headers, _ = self.fetch(query)
            self.assertEqual((status, headers['Content-Type']), (200, 'application/octet-stream'))
            self.inert(headers, f'attachment; filename={name}')
            status, _, body = self.fetch(query, Service_Worker='script')
            self.assertEqual((status, json.loads(body)['code']), (403, 403))
            own = f'{GUEST_PORT}-{self.box.id}.localhost'
            status, headers, _ = self.fetch(query, own, Service_Worker='script')
            self.assertEqual((status, headers['Content-Disposition']), (200, f'inline; filename={name}'))
            self.assertNotEqual(headers['Content-Type'], 'application/octet-stream')

    def test_a_service_behind_headers_changes_nothing_of_the_origin(self):
        status, headers, _ = get(self.box.id, 8000)
        self.assertEqual((status, headers['X-Own'], headers['Content-Type']), (200, 'kept', 'text/html'))
        self.inert(headers, 'attachment; filename=x')
        self.assertEqual((headers['Clear-Site-Data'], headers.get_all('Cache-Control')), (None, ['no-store']))
        self.assertEqual(get(self.box.id, 8000, Service_Worker='script')[0], 403)

    def test_on_its_own_host_cookies_are_its_own(self):
        status, headers, _ = self.fetch('/', f'8000-{self.box.id}.localhost', Service_Worker='script')
        self.assertEqual((status, headers.get_all('Set-Cookie')), (200, ['a=1; Path=/', 'b=2; HttpOnly']))
        self.assertEqual((headers['Clear-Site-Data'], headers['Content-Security-Policy']), (None, 'script-src *'))
        self.assertEqual(headers['Content-Disposition'], 'inline; filename=x')

    def test_no_proxy_in_front_takes_orders(self):
        for headers in (self.fetch('/', f'8000-{self.box.id}.localhost')[1], get(self.box.id, 8000)[1]):
            self.assertEqual((headers['X-Own'], headers['X-Accel-Redirect'], headers['X-Sendfile']),
                             ('kept', None, None))

    def test_everything_of_the_api_is_inert(self):
        key = {'X_API_Key': os.environ['E2B_API_KEY']}
        box = f'/api/v1/sandboxes/{self.box.id}'
        for path in ('/health', '/no-such', '/v2/sandboxes', f'{box}/files/list?path=/tmp', f'{box}/executions'):
            headers = self.fetch(path, **key)[1]
            for name, value in INERT.items():
                self.assertEqual(headers.get_all(name), [value], path)
            self.assertEqual(self.fetch(path, Service_Worker='script', **key)[0], 403, path)
        status, headers, body = self.fetch(f'{box}/files?path=/tmp/page.html', **key)
        self.assertEqual((status, headers['Content-Type'], body[:8]), (200, 'application/octet-stream', b'<script>'))
        self.inert(headers, 'attachment; filename=page.html')

    def test_files_of_volumes_and_artifacts_are_saved(self):
        key = {'X_API_Key': os.environ['E2B_API_KEY'], 'Content_Type': 'application/json'}
        made = json.loads(self.fetch('/volumes', None, 'POST', b'{"name": "origin"}', **key)[2])
        file, bearer = f"/volumecontent/{made['volumeID']}/file?path=/x.html", f"Bearer {made['token']}"
        self.assertEqual(self.fetch(file, None, 'PUT', b'<script>', Authorization=bearer)[0], 201)
        status, headers, _ = self.fetch(file, Authorization=bearer)
        self.assertEqual((status, headers['Content-Type']), (200, 'application/octet-stream'))
        self.inert(headers)
        self.fetch(f"/volumes/{made['volumeID']}", None, 'DELETE', **key)
        run = json.dumps({'shell': 'echo x >/tmp/a.html', 'artifacts': ['/tmp/a.html']}).encode()
        done = json.loads(self.fetch('/api/v1/run', None, 'POST', run, **key)[2])
        status, headers, body = self.fetch(f"/api/v1/artifacts/{done['artifacts'][0]['id']}", **key)
        self.assertEqual((status, body), (200, b'x\n'))
        self.inert(headers)

    def heard(self, **headers):
        """What the service got, by headers and by its own host."""
        both = []
        for host in (None, f'8000-{self.box.id}.localhost'):
            named = {} if host else {'E2b_Sandbox_Id': self.box.id, 'E2b_Sandbox_Port': '8000'}
            both.append(dict(json.loads(self.fetch('/', host, **named, **headers)[2])))
        return both

    def test_what_opens_the_server_does_not_reach_a_service(self):
        key, text = os.environ['E2B_API_KEY'], lambda s: base64.b64encode(s.encode()).decode()
        for name, value in (('X_API_Key', key), ('Authorization', f'Bearer {key}'), ('X_Anything', f'a={key};b'),
                            ('Authorization', 'Basic ' + text(f'user:{key}')), ('X_Access_Token', self.token),
                            ('Authorization', f'Bearer {self.token}'), ('E2b_Traffic_Access_Token', 'abc')):
            for heard in self.heard(**{name: value, 'X_Other': 'passes'}):
                self.assertNotIn(name.lower().replace('_', '-'), heard, value)
                self.assertEqual(heard['x-other'], 'passes')
        volume = json.loads(self.fetch('/volumes', None, 'POST', b'{"name": "heard"}', X_API_Key=key)[2])
        for heard in self.heard(Authorization=f"Bearer {volume['token']}"):
            self.assertNotIn('authorization', heard)
        self.fetch(f"/volumes/{volume['volumeID']}", None, 'DELETE', X_API_Key=key)

    def test_what_opens_a_service_of_its_own_does(self):
        other = 'e2b_' + '0' * 40
        for name, value in (('X_API_Key', 'mine'), ('X_API_Key', other), ('Authorization', 'Bearer ' + 'x' * 64),
                            ('Authorization', 'Basic dXNlcjpwYXNz'), ('X_Admin_Token', 'mine'),
                            ('X_Access_Token', 'mine'), ('Authorization', 'Bearer ' + 'a' * 64)):
            for heard in self.heard(**{name: value}):
                self.assertEqual(heard[name.lower().replace('_', '-')], value)
        by_headers, own = self.heard(Cookie='session=1')
        self.assertNotIn('cookie', by_headers)
        self.assertEqual(own['cookie'], 'session=1')

    def test_the_guest_still_gets_its_token(self):
        status, _, body = get(self.box.id, GUEST_PORT, '/files?path=/tmp/sw.js', X_Access_Token=self.token,
                              X_API_Key=os.environ['E2B_API_KEY'])
        self.assertEqual((status, body), (200, b'self'))
        self.assertEqual(get(self.box.id, GUEST_PORT, '/files?path=/tmp/sw.js')[0], 401)


class Waking(unittest.TestCase):
    def setUp(self):
        self.box = self.enterContext(Sandbox(autoPause=True, autoResume={'enabled': True}))
        self.box.write('/tmp/kept', b'kept')
        self.pause()

    def pause(self):
        self.box.api('POST', f'/sandboxes/{self.box.id}/pause', {})

    def state(self):
        return self.box.api('GET', f'/sandboxes/{self.box.id}')['state']

    def url(self, **change):
        expiration = change.pop('expiration', None)
        query = {'path': '/tmp/kept', 'signature': sign(self.box.made['envdAccessToken'], '/tmp/kept', 'read',
                                                        '', expiration), **change}
        return query if expiration is None else {**query, 'signature_expiration': str(expiration)}

    def test_a_signed_url_wakes_it(self):
        named = {'E2b_Sandbox_Id': self.box.id, 'E2b_Sandbox_Port': str(GUEST_PORT)}
        for headers in (named, {}):
            self.assertEqual(ask('GET', self.url(), **headers), (200, b'kept'))
            self.assertEqual(self.state(), 'running')
            self.pause()
        self.assertEqual(ask('GET', self.url(expiration=int(time.time()) + 60), **named), (200, b'kept'))

    def test_what_is_not_signed_by_it_does_not(self):
        named = {'E2b_Sandbox_Id': self.box.id, 'E2b_Sandbox_Port': str(GUEST_PORT)}
        with Sandbox() as other:
            foreign = sign(other.made['envdAccessToken'], '/tmp/kept', 'read')
            for query in (self.url(path='/etc/passwd'), self.url(signature='v1_'), self.url(signature=foreign),
                          self.url(username='root'), self.url(expiration=int(time.time()) - 10),
                          {**self.url(), 'signature_expiration': 'soon'}, {'path': '/tmp/kept'}):
                status, answer = ask('GET', query, **named)
                self.assertEqual((status, answer['code'], answer['sandboxId']), (403, 403, self.box.id), query)
            self.assertEqual(ask('POST', self.url(), b'', **named)[0], 403)
            self.assertEqual(ask('GET', self.url(), X_Access_Token='wrong', **named)[0], 403)
        self.assertEqual(get(self.box.id, GUEST_PORT, '/health')[0], 403)
        self.assertEqual(self.state(), 'paused')

    def test_other_ports_wake_it_without_a_token(self):
        self.assertEqual(get(self.box.id, 8080)[0], 502)
        self.assertEqual(self.state(), 'running')


if __name__ == '__main__':
    unittest.main()
