"""A client of /api/v1 in the smallest form: answers as they are, and streams of events."""
import contextlib
import http.client
import json
import os
import socket
import sqlite3
import threading
import time
import urllib.parse
import uuid

from harness import postgres


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


class Api:
    """By a key, or as the operator."""

    def __init__(self, server, key=None, operator=None):
        self.server = server
        self.key = key or (None if operator else server.env()['E2B_API_KEY'])
        self.operator = operator

    def headers(self, more):
        mine = {'X-Admin-Token': self.operator} if self.operator else {'X-API-Key': self.key}
        return {**mine, **more}

    def raw(self, method, path, body=None, headers=None, timeout=60):
        """Any path of the server, any body."""
        link = http.client.HTTPConnection(self.server.host, self.server.port, timeout=timeout)
        with contextlib.closing(link):
            link.request(method, path, body, self.headers(dict(headers or {})))
            answer = link.getresponse()
            return Answer(answer.status, answer.headers, answer.read())

    def call(self, method, path, body=None, headers=None, timeout=60):
        more = dict(headers or {})
        if body is not None:
            more['Content-Type'] = 'application/json'
            body = json.dumps(body)
        return self.raw(method, f'/api/v1{path}', body, more, timeout)

    def get(self, path, **query):
        text = urllib.parse.urlencode({k.rstrip('_'): v for k, v in query.items()})
        return self.call('GET', f'{path}?{text}' if text else path)

    def ask(self, method, path, body=None, **headers):
        """What must work."""
        answer = self.call(method, path, body, headers)
        if answer.status >= 300:
            raise RuntimeError(f'{method} {path}: {answer.status} {answer.body.decode()}')
        return answer.json() if answer.body else None

    def key_for(self, **body):
        """Another caller: scopes, agent_id."""
        made = self.ask('POST', '/keys', {'name': 'test', **body})
        return Api(self.server, made['key']), made

    def events(self, **query):
        """All of the log, page by page."""
        found, cursor = [], {}
        while True:
            page = self.get('/events', format='json', limit=1000, **query, **cursor).json()
            found += page['items']
            if not page['next_cursor']:
                return found
            cursor = {'cursor': page['next_cursor']}


def another_team(server, operator):
    """Nobody makes teams but the database: its row is younger than the first's, whose the server is. Starts the
    server again; a key of the new team."""
    team = str(uuid.uuid4())
    sql = f"INSERT INTO teams (id, name, created_us) VALUES ('{team}', 'strangers', {int(time.time() * 1e6)})"
    server.stop()
    if url := server.environment.get('ATOLL_DATABASE'):
        postgres.ask(url, sql)
    else:
        [base] = (server.data / 'state').glob('*.db')
        with contextlib.closing(sqlite3.connect(base)) as link, link:
            link.execute(sql)
    server.start()
    made = operator.raw('POST', f'/admin/teams/{team}/api-keys', json.dumps({'name': 'theirs'}))
    return Api(server, made.json()['key'])


class Follower:
    """Reads a stream of events in a thread, and comes again when it breaks off, as a browser does."""

    def __init__(self, api, path='/events', again=True, after=None, **query):
        self.api, self.path, self.query = api, path, query
        self.seen, self.notices, self.beats, self.statuses = [], [], 0, []
        self.last = after
        self.again, self.over = again, False
        self.ended = threading.Event()
        self.link = None
        self.opened = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def __enter__(self):
        self.opened.wait(60)
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.over = True
        while self.thread.is_alive():
            link = self.link
            if link and link.sock:
                with contextlib.suppress(OSError, AttributeError):
                    link.sock.shutdown(socket.SHUT_RDWR)
            self.thread.join(0.1)

    def run(self):
        while not self.over:
            with contextlib.suppress(OSError, http.client.HTTPException, AttributeError):
                self.read_once()
            self.link.close()
            if not self.again:
                break
            time.sleep(0.05)
        self.ended.set()

    def read_once(self):
        headers = {'Accept': 'text/event-stream'}
        if self.last is not None:
            headers['Last-Event-ID'] = str(self.last)
        self.link = http.client.HTTPConnection(self.api.server.host, self.api.server.port,
                                               timeout=60)
        text = urllib.parse.urlencode(self.query)
        self.link.request('GET', f'/api/v1{self.path}?{text}', headers=self.api.headers(headers))
        answer = self.link.getresponse()
        self.statuses.append(answer.status)
        event = {}
        while line := answer.readline():
            self.opened.set()
            line = line.rstrip(b'\r\n')
            if line.startswith(b':'):
                self.beats += 1
            elif line:
                name, _, value = line.partition(b': ')
                event[name.decode()] = value.decode()
            else:
                self.take(event)
                event = {}

    def take(self, event):
        if 'id' in event:
            self.last = int(event['id'])
        if 'event' in event:
            self.notices.append((event['event'], json.loads(event['data'])))
        elif 'data' in event:
            self.seen.append(json.loads(event['data']))

    def wait(self, test, seconds=60):
        """Until what was seen passes the test."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if test(self.seen):
                return self.seen
            time.sleep(0.02)
        raise AssertionError(f'it did not come: {[e["kind"] for e in self.seen][-20:]}')

    def kinds(self):
        return [event['kind'] for event in self.seen]


class Shared:
    """The server that the whole suite runs against, as the environment names it."""

    def __init__(self):
        url = urllib.parse.urlsplit(os.environ['E2B_API_URL'])
        self.host, self.port = url.hostname, url.port

    def env(self):
        return os.environ
