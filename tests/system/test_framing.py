"""What the server's port does with bytes that no decent client sends: a clear refusal, a closed
connection, and the next client is served as if nothing had been."""
import os
import socket
import unittest
import urllib.parse

URL = urllib.parse.urlsplit(os.environ['E2B_API_URL'])
HOST = b'Host: localhost\r\n'


def dial(timeout=60):
    return socket.create_connection((URL.hostname, URL.port), timeout)


def exchange(data):
    """Everything that comes back until the server closes."""
    with dial() as link:
        link.sendall(data)
        answer = b''
        while True:
            try:
                piece = link.recv(65536)
            except ConnectionResetError:
                return answer
            if not piece:
                return answer
            answer += piece


def status(answer):
    return int(answer.split(b' ', 2)[1]) if answer.startswith(b'HTTP/1.1 ') else None


class Refused(unittest.TestCase):
    CASES = {
        'both length and chunked': (400, b'POST / HTTP/1.1\r\n' + HOST +
                                    b'Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'),
        'two lengths that differ': (400, b'POST / HTTP/1.1\r\n' + HOST +
                                    b'Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd'),
        'a signed length': (400, b'POST / HTTP/1.1\r\n' + HOST + b'Content-Length: +3\r\n\r\nabc'),
        'a length that overflows': (400, b'POST / HTTP/1.1\r\n' + HOST +
                                    b'Content-Length: 99999999999999999999\r\n\r\n'),
        'chunked twice': (None, b'POST / HTTP/1.1\r\n' + HOST +
                          b'Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n'),
        'a transfer coding we do not know': (None, b'POST / HTTP/1.1\r\n' + HOST +
                                             b'Transfer-Encoding: gzip\r\n\r\n'),
        'bare line feeds': (400, b'GET /health HTTP/1.1\nHost: localhost\n\n'),
        'no Host': (400, b'GET /health HTTP/1.1\r\n\r\n'),
        'two Hosts': (400, b'GET /health HTTP/1.1\r\n' + HOST + HOST + b'\r\n'),
        'a space before the colon': (400, b'GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n'),
        'a folded header': (400, b'GET /health HTTP/1.1\r\n' + HOST + b'A: b\r\n c\r\n\r\n'),
        'a NUL in a header': (400, b'GET /health HTTP/1.1\r\n' + HOST + b'A: \0\r\n\r\n'),
        'an endless request line': (None, b'GET /' + b'a' * 200_000 + b' HTTP/1.1\r\n' + HOST + b'\r\n'),
        'an endless head': (431, b'GET /health HTTP/1.1\r\n' + HOST + b'A: ' + b'b' * 200_000 +
                            b'\r\n\r\n'),
        'too many headers': (431, b'GET /health HTTP/1.1\r\n' + HOST + b'A: b\r\n' * 20_000 + b'\r\n'),
        'not HTTP at all': (400, b'\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03' + b'\0' * 40 +
                            b'\r\n\r\n'),
    }

    def test_each_is_refused_and_the_connection_closed(self):
        for name, (want, data) in self.CASES.items():
            with self.subTest(name):
                answer = exchange(data + b'GET /health HTTP/1.1\r\n' + HOST + b'\r\n')
                if want is None:
                    self.assertIn(status(answer), (400, 414, 431, 501), answer[:200])
                else:
                    self.assertEqual(status(answer), want, answer[:200])
                self.assertEqual(answer.count(b'HTTP/1.1 '), 1, 'what follows must not be read')

    def test_a_bad_chunk_size_is_refused(self):
        head = b'POST /v2/sandboxes HTTP/1.1\r\n' + HOST + b'X-API-Key: %s\r\n' \
            b'Transfer-Encoding: chunked\r\n\r\n' % os.environ['E2B_API_KEY'].encode()
        for size in (b'x', b'-1', b'0x1', b'fffffffffffffffff', b'1\n', b' 1', b''):
            with self.subTest(size):
                answer = exchange(head + size + b'\r\n')
                self.assertEqual(status(answer), 400, answer[:200])
                self.assertEqual(answer.count(b'HTTP/1.1 '), 1)

    def test_the_next_client_is_served(self):
        answer = exchange(b'GET /health HTTP/1.1\r\n' + HOST + b'Connection: close\r\n\r\n')
        self.assertEqual(status(answer), 200)


class Served(unittest.TestCase):
    def test_pipelined_requests_are_answered_in_order(self):
        one = b'GET /health HTTP/1.1\r\n' + HOST + b'\r\n'
        lost = b'GET /nowhere HTTP/1.1\r\n' + HOST + b'X-API-Key: %s\r\n\r\n' \
            % os.environ['E2B_API_KEY'].encode()
        last = b'GET /health HTTP/1.1\r\n' + HOST + b'Connection: close\r\n\r\n'
        answer = exchange(one + lost + one + last)
        self.assertEqual([int(part[:3]) for part in answer.split(b'HTTP/1.1 ')[1:]],
                         [200, 404, 200, 200])

    def test_byte_by_byte(self):
        with dial() as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in b'GET /health HTTP/1.1\r\n' + HOST + b'Connection: close\r\n\r\n':
                link.send(bytes([byte]))
            self.assertEqual(status(link.recv(65536)), 200)

    def test_a_client_that_waits_for_100_is_told_to_go_on(self):
        body = b'{"templateID":"no-such"}'
        with dial() as link:
            link.sendall(b'POST /v2/sandboxes HTTP/1.1\r\n' + HOST + b'X-API-Key: %s\r\n'
                         b'Expect: 100-continue\r\nContent-Length: %d\r\nConnection: close\r\n\r\n'
                         % (os.environ['E2B_API_KEY'].encode(), len(body)))
            self.assertTrue(link.recv(65536).startswith(b'HTTP/1.1 100 '))
            link.sendall(body)
            self.assertEqual(status(link.recv(65536)), 404)

    def test_five_hundred_idle_connections_harm_nobody(self):
        links = [dial() for _ in range(500)]
        try:
            answer = exchange(b'GET /health HTTP/1.1\r\n' + HOST + b'Connection: close\r\n\r\n')
            self.assertEqual(status(answer), 200)
        finally:
            for link in links:
                link.close()


if __name__ == '__main__':
    unittest.main()
