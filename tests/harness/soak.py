"""Many clients on one server, each with sandboxes of its own, while the server is killed now and then.

Every client keeps what it was promised: a sandbox whose creation was answered, a file whose writing was
answered. Whatever happens in between, that must be there at the next look."""
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import threading
import time

from harness import kernel
from harness.sandbox import Sandbox

CUT = (OSError, http.client.HTTPException)
MOST_OF_ONE_CLIENT = 6


class Broken(Exception):
    """A promise that was not kept."""


class Cut(Exception):
    """The server went away in the middle: whether it did as asked is not known."""


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status, text):
        super().__init__(f'{status} {text}')
        self.status = status


class Box(Sandbox):
    """A sandbox that exists; only what is asked of it differs from the base: errors keep their status."""

    def __init__(self, env, made):
        self.env, self.made, self.id = env, made, made['sandboxID']
        self.paused, self.written = False, None

    def call(self, method, path, body=None):
        return call(self.env, method, path, body)


def call(env, method, path, body=None):
    """One request to the control plane; (status, object)."""
    box = Sandbox.__new__(Sandbox)
    box.env = env
    link = box.connection(60)
    try:
        link.request(method, path, None if body is None else json.dumps(body),
                     {'X-API-Key': env['E2B_API_KEY'], 'Content-Type': 'application/json'})
        answer = link.getresponse()
        text = answer.read()
    except CUT as problem:
        raise Cut(f'{method} {path}: {problem!r}') from None
    finally:
        link.close()
    if answer.status == 503:  # the warden was killed, and the server not yet
        raise Cut(f'{method} {path}: {text.decode(errors="replace")[:300]}')
    if answer.status >= 300:
        raise Refused(answer.status, f'{method} {path}: {text.decode(errors="replace")[:300]}')
    return json.loads(text) if text else None


class Client(threading.Thread):
    """Random acts, until told to stop."""

    def __init__(self, soak, number):
        super().__init__(daemon=True)
        self.soak, self.random = soak, random.Random(soak.seed * 1000 + number)
        self.boxes, self.problem, self.doubtful = [], None, None

    def run(self):
        try:
            while not self.soak.over.is_set():
                self.soak.up.wait(60)
                self.act()
        except Exception as problem:  # pylint: disable=broad-except
            self.problem = f'{type(problem).__name__}: {problem}'
            self.soak.over.set()

    def act(self):
        name = self.random.choice(self.possible())
        box = self.random.choice(self.boxes) if self.boxes else None
        generation = self.soak.generation
        try:
            getattr(self, name)(box)
            self.soak.count(name)
        except (Cut, RuntimeError, *CUT) as problem:
            if self.soak.up.is_set() and generation == self.soak.generation:
                time.sleep(1)  # the killer may be just about to say so
            if self.soak.up.is_set() and generation == self.soak.generation:
                raise Broken(f'{name} failed while the server stood: {problem!r}') from None
            self.soak.count('cut')
            self.soak.up.wait(120)
            if box:
                self.look_again(box)

    def possible(self):
        acts = ['create'] * 3 if len(self.boxes) < MOST_OF_ONE_CLIENT else ['kill']
        if self.boxes:
            acts += ['execute'] * 6 + ['write'] * 3 + ['read'] * 3 + ['pause', 'fork', 'kill']
        return acts

    def look_again(self, box):
        """After a cut: paused or not, gone or not, as the server says now."""
        try:
            info = self.ask_until_answered(box)
            box.paused = info['state'] == 'paused'
        except Refused as problem:
            if problem.status != 404 or self.doubtful is not box:
                raise Broken(f'sandbox {box.id} was promised: {problem}') from None
            self.boxes.remove(box)
        self.doubtful = None

    def ask_until_answered(self, box):
        """It may be cut again: then when the server is back once more."""
        while True:
            generation = self.soak.generation
            try:
                return box.call('GET', f'/sandboxes/{box.id}')
            except Cut:
                time.sleep(1)  # the killer may be just about to say so
                if self.soak.up.is_set() and generation == self.soak.generation:
                    raise
                self.soak.up.wait(120)

    # --- acts ---

    def create(self, _):
        made = call(self.soak.env, 'POST', '/v2/sandboxes', {'templateID': 'base', 'timeout': 3600})
        self.boxes.append(Box(self.soak.env, made))

    def wake(self, box):
        if box.paused:
            box.call('POST', f'/v2/sandboxes/{box.id}/connect', {'timeout': 3600})
            box.paused = False

    def execute(self, box):
        self.wake(box)
        word = str(self.random.random())
        result = box.run(f'echo {word}')
        if result.text().strip() != word or result.exit_code != 0:
            raise RuntimeError(f'echo in {box.id}: {result.stdout!r} {result.error}')

    def write(self, box):
        self.wake(box)
        text, before = os.urandom(self.random.choice((8, 4096, 300000))), box.written
        box.written = None  # half written, should this be cut
        status, answer = box.write('/home/user/kept', text)
        if status != 200:
            box.written = before
            raise RuntimeError(f'write to {box.id}: {status} {answer}')
        box.written = text

    def read(self, box):
        self.wake(box)
        if box.written is None:
            return
        link = box.connection()
        link.request('GET', '/files?path=/home/user/kept&username=user', headers=box.headers())
        answer = link.getresponse()
        text = answer.read()
        link.close()
        if answer.status != 200:
            raise RuntimeError(f'read from {box.id}: {answer.status} {text[:200]!r}')
        if text != box.written:
            raise Broken(f'{box.id}: what was written with success is not there')

    def pause(self, box):
        if not box.paused:
            box.call('POST', f'/sandboxes/{box.id}/pause', {})
            box.paused = True

    def fork(self, box):
        self.wake(box)
        made = box.call('POST', f'/sandboxes/{box.id}/fork', {'timeout': 3600})
        for one in made:
            if 'sandbox' not in one:
                raise Cut(f'fork of {box.id}: {one}')
            copy = Box(self.soak.env, one['sandbox'])
            copy.written = box.written
            self.boxes.append(copy)

    def kill(self, box):
        self.doubtful = box
        box.call('DELETE', f'/sandboxes/{box.id}')
        self.boxes.remove(box)
        self.doubtful = None


class Soak:
    """`clients` of them for `seconds`; the server, or its warden, is killed every `kill_every` on average."""

    def __init__(self, server, clients, seconds, kill_every, seed=1):
        self.server, self.seconds, self.kill_every, self.seed = server, seconds, kill_every, seed
        self.env = server.env()
        self.up, self.over = threading.Event(), threading.Event()
        self.generation, self.counts, self.lock = 0, {}, threading.Lock()
        self.random = random.Random(seed)
        self.clients = [Client(self, i) for i in range(clients)]

    def count(self, name):
        with self.lock:
            self.counts[name] = self.counts.get(name, 0) + 1

    def run(self):
        """The counts of what was done. Raises Broken with the first promise that was not kept."""
        self.up.set()
        for client in self.clients:
            client.start()
        until = time.monotonic() + self.seconds
        while time.monotonic() < until and not self.over.is_set():
            pause = self.random.expovariate(1 / self.kill_every) if self.kill_every else self.seconds
            if self.over.wait(min(pause, max(until - time.monotonic(), 0))):
                break
            if time.monotonic() < until:
                self.crash()
        self.over.set()
        for client in self.clients:
            client.join(120)
        problems = [client.problem for client in self.clients if client.problem]
        if problems:
            raise Broken('\n'.join(problems) + '\n' + self.server.tail())
        return self.counts

    def crash(self):
        self.up.clear()
        self.generation += 1
        victim = self.random.choice((self.server.process.pid, warden_of(self.server.process.pid)))
        os.kill(victim, signal.SIGKILL)
        time.sleep(0.05)
        self.server.kill()
        self.server.start()
        self.count('crash')
        self.generation += 1
        self.up.set()


def warden_of(pid):
    found = subprocess.run(['pgrep', '-P', str(pid), '-x', 'atoll-warden'], capture_output=True,
                           text=True, check=True)
    return int(found.stdout.split()[0])


def end_all(env):
    """Kills whatever there is, also what was made by a request that was cut."""
    while True:
        rows = call(env, 'GET', '/v2/sandboxes?limit=100')
        if not rows:
            return
        for row in rows:
            try:
                call(env, 'DELETE', f"/sandboxes/{row['sandboxID']}")
            except Refused as problem:
                if problem.status != 404:
                    raise


def namespaces():
    """Every namespace that a process of this process namespace is in."""
    found = set()
    for entry in os.listdir('/proc'):
        if entry.isdigit():
            for kind in ('user', 'mnt', 'pid', 'net', 'ipc', 'uts'):
                try:
                    found.add(os.readlink(f'/proc/{entry}/ns/{kind}'))
                except OSError:
                    pass
    return found


def instances():
    """What the cgroups of servers in this process namespace are called: /atoll/INSTANCE/..."""
    found = set()
    for entry in os.listdir('/proc'):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                text = pathlib.Path('/proc', entry, 'cgroup').read_text()
                found |= set(re.findall(r':/atoll/([^/\n]+)', text))
    return found


def links(pid):
    """What its descriptors lead to."""
    for entry in os.listdir(f'/proc/{pid}/fd'):
        with contextlib.suppress(OSError):
            yield os.readlink(f'/proc/{pid}/fd/{entry}')


def footprint(server):
    """Numbers that must be again what they were: of the kernel, of the data directory, of our programs.
    Other servers of this machine do not count, nor do connections to the database: there are up to five,
    made when they are needed."""
    seen, own = kernel.snapshot(), instances()
    seen['cgroups'] = {path for path in seen['cgroups'] if path.split('/atoll/')[1].split('/')[0] in own}
    seen['loop devices'] = {loop for loop in seen['loop devices'] if f' {server.data}/' in loop}
    counts = {kind: len(names) for kind, names in seen.items()}
    counts['namespaces'] = len(namespaces())
    counts['files'] = sum(len(files) + len(names) for _, names, files in os.walk(server.data))
    rules = subprocess.run(['nft', 'list', 'ruleset'], capture_output=True, text=True, check=False)
    counts['nft lines'] = len(rules.stdout.splitlines())
    for name, pid in (('server', server.process.pid), ('warden', warden_of(server.process.pid))):
        counts[f'{name} descriptors'] = len([link for link in links(pid) if 'atoll.db' not in link])
        status = pathlib.Path(f'/proc/{pid}/status').read_text()
        counts[f'{name} KiB'] = int(status.split('VmRSS:')[1].split()[0])
    return counts


def settled(server, seconds=60, still=3):
    """The footprint once it does not change any more: pools fill and the kernel tidies in the background."""
    deadline, seen = time.monotonic() + seconds, footprint(server)
    since = time.monotonic()
    while time.monotonic() < deadline and time.monotonic() < since + still:
        time.sleep(1)
        now = footprint(server)
        if now != seen:
            seen, since = now, time.monotonic()
    return seen


def grown(before, after, memory_kib=8192):
    """What is more than before; memory may grow by what allocators keep."""
    return {name: (before[name], after[name]) for name in before
            if after[name] > before[name] + (memory_kib if name.endswith('KiB') else 0)}
