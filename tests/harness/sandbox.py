"""A sandbox of a running server, and commands in it: E2B's wire in the smallest form."""
import base64
import http.client
import json
import os
import struct
import urllib.parse

GUEST_PORT = 49983


class Result:
    """How a command ended."""

    def __init__(self):
        self.stdout, self.stderr, self.exit_code, self.error, self.status = b'', b'', None, None, ''
        self.cause = None  # what the end event calls its error

    def take(self, event):
        data = event.get('data', {})
        self.stdout += base64.b64decode(data.get('stdout', '') or data.get('pty', ''))
        self.stderr += base64.b64decode(data.get('stderr', ''))
        if 'end' in event:
            self.exit_code = event['end'].get('exitCode', 0)
            self.status = event['end'].get('status', '')
            self.cause = event['end'].get('error')

    def text(self):
        return self.stdout.decode(errors='replace')


class Sandbox:
    """Made from the environment that a test runs in; removed when the block ends."""

    def __init__(self, template='base', env=None, **body):
        self.env = env or os.environ
        self.made = self.api('POST', '/v2/sandboxes', {'templateID': template, 'timeout': 300, **body})
        self.id = self.made['sandboxID']

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def connection(self, timeout=120):
        url = urllib.parse.urlsplit(self.env['E2B_API_URL'])
        return http.client.HTTPConnection(url.hostname, url.port, timeout=timeout)

    def api(self, method, path, body=None):
        link = self.connection()
        link.request(method, path, None if body is None else json.dumps(body),
                     {'X-API-Key': self.env['E2B_API_KEY'], 'Content-Type': 'application/json'})
        answer = link.getresponse()
        text = answer.read()
        link.close()
        if answer.status >= 300:
            raise RuntimeError(f'{method} {path}: {answer.status} {text.decode(errors="replace")}')
        return json.loads(text) if text else None

    def kill(self):
        self.api('DELETE', f'/sandboxes/{self.id}')

    def headers(self, port=GUEST_PORT, **more):
        return {'E2b-Sandbox-Id': self.id, 'E2b-Sandbox-Port': str(port),
                'X-Access-Token': self.made['envdAccessToken'], **more}

    def run(self, command, user=None, timeout=120):
        """Runs a shell command to its end."""
        return self.execute(['/bin/bash', '-l', '-c', command], user, timeout)

    def execute(self, argv, user=None, timeout=120, in_terminal=False):
        """Runs a program to its end."""
        message = json.dumps({'process': {'cmd': argv[0], 'args': argv[1:]}, 'stdin': False,
                              **({'pty': {'size': {'cols': 80, 'rows': 24}}} if in_terminal else {})}).encode()
        headers = self.headers(**{'Content-Type': 'application/connect+json'})
        if user:
            headers['Authorization'] = 'Basic ' + base64.b64encode(f'{user}:'.encode()).decode()
        link = self.connection(timeout)
        link.request('POST', '/process.Process/Start', struct.pack('>BI', 0, len(message)) + message,
                     headers)
        answer = link.getresponse()
        result = Result()
        for flag, text in frames(answer):
            if flag & 2:
                result.error = json.loads(text).get('error')
            else:
                result.take(json.loads(text)['event'])
        link.close()
        return result

    def write(self, path, data, username='user'):
        """Uploads; the HTTP status and answer."""
        link = self.connection()
        query = urllib.parse.urlencode({'path': path, 'username': username})
        link.request('POST', f'/files?{query}', data,
                     self.headers(**{'Content-Type': 'application/octet-stream'}))
        answer = link.getresponse()
        text = answer.read()
        link.close()
        return answer.status, json.loads(text)


def frames(answer):
    if answer.status != 200:
        raise RuntimeError(f'{answer.status} {answer.read().decode(errors="replace")}')
    while True:
        head = answer.read(5)
        if not head:
            return
        flag, size = struct.unpack('>BI', head)
        yield flag, answer.read(size)
