"""An internet of our own: a network namespace behind a veth pair, with public-looking addresses (of the
ranges kept for documentation), and servers that say who they are and remember what they were asked.

The test's own network namespace is the host's side: it gets a default route there. Never use it in a
namespace that leads anywhere: `available()` says whether this one is the test run's own."""
import contextlib
import functools
import http.server
import json
import os
import pathlib
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import threading
import time

from harness import alone

NEAR, FAR = '198.51.100.1', '198.51.100.2'  # the two ends of the pair
PRIVATE = ['10.77.0.5', '10.77.0.6', '10.77.0.7']  # what a company has for itself
ADDRESSES = [FAR, '198.51.100.10', '198.51.100.11', '203.0.113.5', '203.0.113.200', *PRIVATE]
ECHO, TICKER, DNS, HTTP, HTTPS = 7, 13, 53, 80, 443


def available():
    """Only where nobody else's traffic can be disturbed, or ours get out."""
    return os.geteuid() == 0 and alone.INSIDE in os.environ


def ip(*arguments):
    subprocess.run(['ip', *arguments], check=True, capture_output=True)


class Internet:
    """Use as a context manager. `zone` maps names to addresses (or None: no such name); with an
    `authority`, HTTPS is served with certificates for `names`, chosen by SNI."""

    def __init__(self, zone=None, authority=None, names=(), home=None):
        self.settings = {'zone': zone or {}, 'certificates': {}}
        for i, name in enumerate(names):
            files = [str(pathlib.Path(home) / f'far-{i}.{kind}') for kind in ('pem', 'key')]
            authority.issue(*files, name)
            self.settings['certificates'][name] = files
        self.process = None

    def __enter__(self):
        if not available():
            raise RuntimeError('not in a network namespace of our own')
        self.process = subprocess.Popen(
            ['unshare', '--net', sys.executable, '-m', 'harness.internet'], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, cwd=pathlib.Path(__file__).resolve().parents[1], text=True)
        try:
            self.process.stdout.readline()  # it is in its namespace
            ip('link', 'add', 'inet0', 'type', 'veth', 'peer', 'name', 'up0', 'netns',
               str(self.process.pid))
            ip('address', 'add', f'{NEAR}/30', 'dev', 'inet0')
            ip('link', 'set', 'inet0', 'up')
            # Ahead of the route to nowhere that the run begins with.
            ip('route', 'replace', 'default', 'via', FAR, 'metric', '0')
            self.ask(self.settings)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()
        with contextlib.suppress(subprocess.CalledProcessError):
            ip('link', 'delete', 'inet0')
        with contextlib.suppress(OSError):
            alone.route_everything_to('lo')

    def ask(self, question):
        self.process.stdin.write(json.dumps(question) + '\n')
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def seen(self):
        """Everything that reached a server since the last call: dictionaries with 'kind' and more."""
        return self.ask('seen')

    def set_zone(self, zone):
        self.ask({'zone': zone})


# --- the far end ---

class Far:
    def __init__(self):
        self.lock = threading.Lock()
        self.log, self.zone = [], {}

    def note(self, kind, **more):
        with self.lock:
            self.log.append({'kind': kind, **more})

    def take(self):
        with self.lock:
            log, self.log = self.log, []
        return log


FAR_END = Far()


class Echo(socketserver.StreamRequestHandler):
    """Answers each line with its own address, the client's, and the line."""

    def handle(self):
        mine, peer = self.request.getsockname()[0], self.client_address[0]
        FAR_END.note('tcp', address=mine, port=ECHO, peer=peer)
        with contextlib.suppress(OSError):
            for line in self.rfile:
                self.wfile.write(f'{mine} {peer} '.encode() + line)


class Ticker(socketserver.StreamRequestHandler):
    """Speaks first and does not stop."""

    def handle(self):
        FAR_END.note('ticker', address=self.request.getsockname()[0])
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(b'tick\n')
                time.sleep(0.05)


class Web(http.server.BaseHTTPRequestHandler):
    """Tells what it was asked, as JSON."""
    protocol_version = 'HTTP/1.1'

    def parse_request(self):
        if self.raw_requestline.startswith(b'PRI * HTTP/2.0'):
            self.serve_frames(8)
            return False
        return super().parse_request()

    def serve_frames(self, preface_left):
        """HTTP/2, as far as it takes to see whom a request is for."""
        self.close_connection = True
        self.rfile.read(preface_left)
        while len(head := self.rfile.read(9)) == 9:
            headers = self.rfile.read(int.from_bytes(head[:3], 'big'))
            if head[3] != 1:
                continue
            at = headers.index(1)  # :authority, as it is
            FAR_END.note('h2', address=self.request.getsockname()[0],
                         host=headers[at + 2:at + 2 + headers[at + 1]].decode())
            self.wfile.write(b'\0\0\0\4\0\0\0\0\0' b'\0\0\1\1\5\0\0\0\1\x88')

    def end_by_closing(self, cut):
        """A reply whose end is that of its connection; or half of one, which is reset."""
        self.close_connection = True
        self.wfile.write(b'HTTP/1.0 200 OK\r\n\r\nhalf')
        if not cut:
            with contextlib.suppress(AttributeError, OSError):
                self.request.unwrap()
            return
        time.sleep(0.3)
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        os.close(self.request.detach())

    def do_GET(self):
        size = int(self.headers.get('Content-Length') or 0)
        body = self.rfile.read(size).decode(errors='replace')
        what = {'address': self.request.getsockname()[0], 'method': self.command,
                'path': self.path, 'host': self.headers.get('Host'),
                'headers': dict(self.headers.items()), 'body': body,
                'tls': getattr(self.request, 'server_name', None)}
        FAR_END.note('http', **what)
        if self.path in ('/cut', '/whole'):
            self.end_by_closing(self.path == '/cut')
            return
        if self.headers.get('Upgrade') == 'h2c':
            self.wfile.write(b'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n')
            self.serve_frames(24)
            return
        if self.path.startswith('/redirect?'):
            self.send_response(302)
            self.send_header('Location', self.path.split('?', 1)[1])
            self.send_header('Content-Length', '0')
            self.end_headers()
            return
        text = json.dumps(what).encode()
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_POST = do_PUT = do_HEAD = do_CONNECT = do_GET

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads, request_queue_size = True, True, 128

    def handle_error(self, *_):
        pass  # what clients do is noted, not complained about


class SecureServer(Server):
    context = None

    def finish_request(self, request, client_address):
        request.settimeout(10)
        link = self.context.wrap_socket(request, server_side=True)
        link.server_name = link.context.server_name
        super().finish_request(link, client_address)
        with contextlib.suppress(OSError):
            link.close()


def secure(certificates):
    """One context for each name; the handshake chooses by SNI, the first without."""
    contexts = {}
    for name, files in certificates.items():
        contexts[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        contexts[name].load_cert_chain(*files)
        contexts[name].server_name = name
    front = next(iter(contexts.values()))

    def choose(link, name, _):
        FAR_END.note('hello', name=name, address=link.getsockname()[0])
        link.context = contexts.get(name, front)

    front.sni_callback = choose
    return front


def read_name(message, at):
    labels = []
    while message[at]:
        labels.append(message[at + 1:at + 1 + message[at]].decode('latin-1'))
        at += 1 + message[at]
    return '.'.join(labels), at + 1


def dns_answer(query):
    """A records from the zone, a CNAME where the zone has a name, NXDOMAIN for what is not in it."""
    name, end = read_name(query, 12)
    kind = struct.unpack('>H', query[end:end + 2])[0]
    FAR_END.note('dns', name=name.lower(), type=kind)
    found = FAR_END.zone.get(name.lower())
    records = []
    if found is not None and kind in (1, 255):
        records = [b'\xc0\x0c' + struct.pack('>HHIH', 1, 1, 60, 4) + socket.inet_aton(address)
                   for address in found]
    head = query[:2] + struct.pack('>HHHHH', 0x8180 | (3 if found is None else 0), 1, len(records), 0, 0)
    return head + query[12:end + 4] + b''.join(records)


def serve_dns_udp(link):
    while True:
        query, peer = link.recvfrom(4096)
        with contextlib.suppress(IndexError, struct.error):
            link.sendto(dns_answer(query), peer)


class DnsStream(socketserver.StreamRequestHandler):
    def handle(self):
        while len(size := self.rfile.read(2)) == 2:
            answer = dns_answer(self.rfile.read(struct.unpack('>H', size)[0]))
            self.wfile.write(struct.pack('>H', len(answer)) + answer)


def serve_echo_udp(link):
    """Which of the addresses was asked is in the packet's ancillary data, and answers."""
    while True:
        data, info, _, peer = link.recvmsg(4096, 64)
        mine = socket.inet_ntoa(info[0][2][8:12])
        FAR_END.note('udp', address=mine, port=link.getsockname()[1], peer=peer[0])
        source = struct.pack('I4s4s', 0, socket.inet_aton(mine), b'\0' * 4)
        link.sendmsg([f'{mine} {peer[0]} '.encode() + data], [(socket.IPPROTO_IP, 8, source)], 0, peer)


def serve_ticks_udp(link):
    """Who has asked once is told for ever, whatever it says to that."""
    asked, lock = set(), threading.Lock()

    def tick():
        while True:
            time.sleep(0.05)
            with lock:
                for mine, peer in asked:
                    source = struct.pack('I4s4s', 0, socket.inet_aton(mine), b'\0' * 4)
                    with contextlib.suppress(OSError):
                        link.sendmsg([mine.encode()], [(socket.IPPROTO_IP, 8, source)], 0, peer)

    threading.Thread(target=tick, daemon=True).start()
    while True:
        with contextlib.suppress(OSError):  # a refusal of an earlier one
            _, info, _, peer = link.recvmsg(4096, 64)
            with lock:
                asked.add((socket.inet_ntoa(info[0][2][8:12]), peer))


def udp(port):
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.setsockopt(socket.IPPROTO_IP, 8, 1)  # IP_PKTINFO
    link.bind(('', port))
    return link


def start(settings):
    ip('link', 'set', 'lo', 'up')
    for address in ADDRESSES:
        ip('address', 'add', f'{address}/{30 if address == FAR else 32}', 'dev', 'up0')
    ip('link', 'set', 'up0', 'up')
    servers = [Server(('', ECHO), Echo), Server(('', TICKER), Ticker), Server(('', DNS), DnsStream),
               Server(('', HTTP), Web), Server(('', 8080), Web)]
    if settings['certificates']:
        servers.append(SecureServer(('', HTTPS), Web))
        servers[-1].context = secure(settings['certificates'])
    targets = [server.serve_forever for server in servers]
    # Bound before anybody is told that they are there: to a port that is not, nobody asks twice.
    for serve, port in ((serve_dns_udp, DNS), (serve_echo_udp, ECHO), (serve_echo_udp, HTTPS),
                        (serve_ticks_udp, TICKER)):
        targets.append(functools.partial(serve, udp(port)))
    FAR_END.zone = settings['zone']
    for target in targets:
        threading.Thread(target=target, daemon=True).start()


def main():
    print('here', flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        if question == 'seen':
            answer = FAR_END.take()
        elif 'certificates' in question:
            answer = start(question)
        else:
            FAR_END.zone, answer = question['zone'], None
        print(json.dumps(answer), flush=True)


if __name__ == '__main__':
    main()
