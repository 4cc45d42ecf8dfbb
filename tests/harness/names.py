"""Every name means this machine: what a wildcard DNS entry for a domain gives.

The C library does not know that names under .localhost are loopback, and programs that resolve by it
cannot be told otherwise from outside. So a name server of a few lines answers on loopback, and a
command runs in a mount namespace whose resolv.conf names it."""
import contextlib
import pathlib
import socket
import tempfile
import threading

A_RECORD = b'\0\1'
ANSWER = b'\xc0\x0c\0\1\0\1\0\0\0\5\0\4\x7f\0\0\1'  # the question's name, A, IN, 5 s, 127.0.0.1


def reply(query):
    end = query.index(b'\0', 12) + 5
    if query[end - 4:end - 2] != A_RECORD:
        return query[:2] + b'\x85\x80\0\1\0\0\0\0\0\0' + query[12:end]
    return query[:2] + b'\x85\x80\0\1\0\1\0\0\0\0' + query[12:end] + ANSWER


def answer_all(server):
    while True:
        query, client = server.recvfrom(2048)
        if not query:
            return
        server.sendto(reply(query), client)


@contextlib.contextmanager
def all_here():
    """Gives the words to put before a command. OSError: the name service's port is taken."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server, \
            tempfile.TemporaryDirectory(prefix='names-') as scratch:
        server.bind(('127.0.0.1', 53))
        thread = threading.Thread(target=answer_all, args=(server,), daemon=True)
        thread.start()
        resolver = pathlib.Path(scratch, 'resolv.conf')
        resolver.write_text('nameserver 127.0.0.1\n')
        try:
            yield ['unshare', '--mount', 'sh', '-c',
                   'mount --bind "$0" "$(readlink -f /etc/resolv.conf)" && exec "$@"', str(resolver)]
        finally:
            server.sendto(b'', server.getsockname())
            thread.join()
