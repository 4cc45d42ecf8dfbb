"""Shared by the tests of the published PyPI package `e2b`. They use it as any program would:
configured by the environment alone (E2B_API_KEY, E2B_API_URL, E2B_SANDBOX_URL, E2B_DOMAIN)."""
import contextlib
import http.client
import os
import time
import unittest
import urllib.parse

from e2b import Sandbox


def eventually(check, what, seconds=60, every=0.05):
    """Waits until `check` gives something true, and returns that."""
    deadline = time.monotonic() + seconds
    while not (value := check()):
        assert time.monotonic() < deadline, f'{what}: not within {seconds} s'
        time.sleep(every)
    return value


def everything(pages):
    found = []
    while pages.has_next:
        found += pages.next_items()
    return found


def unique(name):
    return f'{name}-{os.getpid()}-{time.monotonic_ns()}'


def ask(url, headers=None, method='GET', body=None):
    """Status and body of one request; a name under the domain is sent as Host to the one port."""
    way = urllib.parse.urlsplit(os.environ['E2B_SANDBOX_URL'])
    to = urllib.parse.urlsplit(url)
    link = http.client.HTTPConnection(way.hostname, way.port, timeout=60)
    with contextlib.closing(link):
        link.request(method, urllib.parse.urlunsplit(('', '', to.path or '/', to.query, '')), body,
                     {'Host': to.netloc, **(headers or {})})
        answer = link.getresponse()
        return answer.status, answer.read()


class Boxed(unittest.TestCase):
    """One sandbox for all tests of a class."""

    OPTIONS = {}

    @classmethod
    def setUpClass(cls):
        cls.box = Sandbox.create('base', timeout=300, **cls.OPTIONS)
        cls.addClassCleanup(cls.box.kill)


class Unboxed(unittest.TestCase):
    """Sandboxes that one test makes, and which are removed whatever it does."""

    def make(self, template='base', **options):
        box = Sandbox.create(template, **{'timeout': 120, **options})
        self.addCleanup(box.kill)
        return box
