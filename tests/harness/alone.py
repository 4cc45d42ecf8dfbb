"""Runs this program again in process, network and mount namespaces of its own.

Other servers on the machine are then neither disturbed nor counted, and whatever the tests leave
running ends with them, however they end."""
import fcntl
import os
import signal
import socket
import struct
import sys

INSIDE = 'ATOLL_TEST_ALONE'
SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1
RTM_NEWROUTE, NLM_F_REQUEST, NLM_F_ACK, NLM_F_CREATE = 24, 0x1, 0x4, 0x400
RT_TABLE_MAIN, RTPROT_BOOT, RT_SCOPE_LINK, RTN_UNICAST, RTA_OIF = 254, 3, 253, 1, 4


def enter():
    """Returns inside the new namespaces; outside it does not return."""
    if INSIDE not in os.environ:
        os.environ[INSIDE] = '1'
        os.execvp('unshare', ['unshare', '--net', '--mount', '--pid', '--fork', '--mount-proc',
                              '--kill-child', sys.executable, *sys.argv])
    link_up('lo')
    route_everything_to('lo')
    be_init()


def link_up(name):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack('16sH14x', name.encode(), IFF_UP))


def route_everything_to(name):
    """A way out that leads nowhere: what firewalls drop must be their doing, not a missing route."""
    route = struct.pack('BBBBBBBBI', socket.AF_INET, 0, 0, 0, RT_TABLE_MAIN, RTPROT_BOOT,
                        RT_SCOPE_LINK, RTN_UNICAST, 0)
    route += struct.pack('HHI', 8, RTA_OIF, socket.if_nametoindex(name))
    head = struct.pack('IHHII', 16 + len(route), RTM_NEWROUTE,
                       NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as s:
        s.send(head + route)
        code = struct.unpack_from('i', s.recv(4096), 16)[0]
    if code:
        raise OSError(-code, os.strerror(-code))


def be_init():
    """PID 1 reaps what is orphaned, as the host's init would, and ends with its one child."""
    child = os.fork()
    if child == 0:
        return
    for signo in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signo, lambda number, _: os.kill(child, number))
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
