"""What the edge itself answers: JSON for programs, a page for a browser; and who may wake a sandbox."""
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
