"""What a page in a browser may do: ask from any origin, on both planes."""
import contextlib
import http.client
import json
import os
import unittest
import urllib.parse

from harness.sandbox import Sandbox

ORIGIN = {'Origin': 'https://app.example.com'}
SDK_HEADERS = ('x-api-key', 'authorization', 'content-type', 'user-agent', 'browser', 'lang',
               'lang_version', 'package_version', 'publisher', 'sdk_runtime', 'system',
               'x-access-token', 'e2b-sandbox-id', 'e2b-sandbox-port', 'connect-protocol-version',
               'connect-timeout-ms', 'keepalive-ping-interval')


def ask(method, path, **headers):
    url = urllib.parse.urlsplit(os.environ['E2B_API_URL'])
    link = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
    with contextlib.closing(link):
        link.request(method, path, headers={k.replace('_', '-'): v for k, v in headers.items()})
        answer = link.getresponse()
        return answer.status, answer.read(), answer.headers


def words(text):
    return {word.strip().lower() for word in (text or '').split(',')}


class ControlPlane(unittest.TestCase):
    def test_preflight_allows_what_the_sdks_send(self):
        for path in ('/sandboxes', '/v2/sandboxes', '/sandboxes/iabc/timeout', '/files',
                     '/process.Process/Start'):
            with self.subTest(path):
                status, body, headers = ask('OPTIONS', path, **ORIGIN,
                                            Access_Control_Request_Method='POST',
                                            Access_Control_Request_Headers=', '.join(SDK_HEADERS))
                self.assertEqual((status, body), (204, b''))
                self.assertEqual(headers['Access-Control-Allow-Origin'], '*')
                allowed = words(headers['Access-Control-Allow-Headers'])
                self.assertLessEqual(set(SDK_HEADERS), allowed)
                methods = words(headers['Access-Control-Allow-Methods'])
                self.assertLessEqual({'get', 'post', 'put', 'patch', 'delete'}, methods)
                self.assertGreater(int(headers['Access-Control-Max-Age']), 0)

    def test_answers_and_errors_can_be_read(self):
        for path, want in (('/health', 200), ('/sandboxes', 401), ('/nothing/here', 404)):
            with self.subTest(path):
                status, _, headers = ask('GET', path, **ORIGIN)
                self.assertEqual(status, want)
                self.assertEqual(headers['Access-Control-Allow-Origin'], '*')
                self.assertLessEqual({'x-next-token', 'x-total-running', 'retry-after'},
                                     words(headers['Access-Control-Expose-Headers']))

    def test_programs_are_not_bothered(self):
        _, _, headers = ask('GET', '/health')
        self.assertIsNone(headers['Access-Control-Allow-Origin'])

    def test_no_preflight_no_permission(self):
        status, _, _ = ask('OPTIONS', '/sandboxes', **ORIGIN)
        self.assertIn(status, (404, 405))


class Sandboxes(unittest.TestCase):
    def test_the_guest_answers_for_itself(self):
        with Sandbox() as sandbox:
            address = {'E2b_Sandbox_Id': sandbox.id, 'E2b_Sandbox_Port': '49983'}
            status, _, headers = ask('OPTIONS', '/files', **ORIGIN, **address,
                                     Access_Control_Request_Method='POST',
                                     Access_Control_Request_Headers='x-access-token')
            self.assertIn(status, (200, 204))
            self.assertEqual(headers['Access-Control-Allow-Origin'], '*')
            _, _, headers = ask('GET', '/files?path=/nowhere', **ORIGIN, **address)
            self.assertEqual(headers.get_all('Access-Control-Allow-Origin'), ['*'])

    def test_a_sandbox_that_is_gone_can_be_read_about(self):
        status, body, headers = ask('GET', '/', **ORIGIN, E2b_Sandbox_Id='i' + '0' * 20,
                                    E2b_Sandbox_Port='49983')
        self.assertEqual(status, 502)
        self.assertEqual(json.loads(body)['message'], 'The sandbox was not found')
        self.assertEqual(headers['Access-Control-Allow-Origin'], '*')


if __name__ == '__main__':
    unittest.main()
