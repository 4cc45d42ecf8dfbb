"""The guest by itself: output that is kept for a client that comes back for it."""
import base64
import pathlib
import time
import unittest

from harness.guest import GuestTest

KEPT_BYTES = 1 << 20
POOL_BYTES = 16 << 20


def outputs(stream):
    """Every data event up to the end: (number, name, bytes)."""
    found = []
    while (event := stream.next()) is not None:
        data = dict(event.get('data', {}))
        if data:
            seq = data.pop('seq')
            (name, text), = data.items()
            found.append((seq, name, base64.b64decode(text)))
    return found


def text_of(events):
    return b''.join(data for _, _, data in events)


class ReplayTest(GuestTest):
    def begin(self, script, **more):
        """Starts it and leaves once it runs; its pid."""
        with self.guest.start('/bin/sh', '-c', script, **more) as s:
            return s.started().pid

    def connect(self, pid, replay_from=None, **headers):
        if replay_from is not None:
            headers['Atoll_Replay_From'] = str(replay_from)
        return self.guest.open('Connect', {'process': {'pid': pid}}, **headers)

    def wait_for(self, path):
        while not pathlib.Path(path).exists():
            time.sleep(0.01)

    def memory(self, field='VmRSS'):
        text = pathlib.Path(f'/proc/{self.guest.process.pid}/status').read_text()
        return int(text.split(field + ':')[1].split()[0]) << 10

    def needs_plain_memory(self):
        if self.memory('VmSize') > 1 << 40:
            self.skipTest('a sanitizer keeps what was freed')


class Replay(ReplayTest):
    def test_events_are_numbered_from_one(self):
        with self.guest.start('/bin/sh', '-c', 'for i in 1 2 3; do echo $i; sleep 0.05; done') as s:
            events = outputs(s)
        self.assertEqual([seq for seq, _, _ in events], list(range(1, len(events) + 1)))
        self.assertEqual(text_of(events), b'1\n2\n3\n')

    def test_a_client_that_comes_back_misses_nothing(self):
        go = self.dir / 'go'
        pid = self.begin(f'for i in 1 2 3 4 5; do echo $i; echo e$i >&2; sleep 0.03; done; '
                         f'touch {self.dir}/half; while [ ! -e {go} ]; do sleep 0.02; done; echo last')
        self.wait_for(self.dir / 'half')
        with self.connect(pid, 1) as s:
            seen = s.until(b'5\n')
            self.assertEqual(seen, b'1\n2\n3\n4\n5\n')
            go.touch()
            rest = outputs(s)
        self.assertEqual(b''.join(d for _, name, d in rest if name == 'stdout'), b'last\n')
        with self.connect(pid, 1) as s:  # it has ended: all of it, and how
            start = s.next()
            self.assertEqual(start, {'start': {'pid': pid}})
            events = outputs(s)
        self.assertEqual([seq for seq, _, _ in events], list(range(1, len(events) + 1)))
        by_name = {name: b''.join(d for _, n, d in events if n == name) for name in ('stdout', 'stderr')}
        self.assertEqual(by_name, {'stdout': b'1\n2\n3\n4\n5\nlast\n', 'stderr': b'e1\ne2\ne3\ne4\ne5\n'})
        for at in (2, len(events), len(events) + 1):
            with self.subTest(at), self.connect(pid, at) as s:
                self.assertEqual(outputs(s), events[at - 1:])

    def test_without_asking_nothing_is_replayed(self):
        pid = self.begin(f'echo early; touch {self.dir}/said; sleep 0.3')
        self.wait_for(self.dir / 'said')
        self.assertEqual(self.guest.http('GET', '/health')[0], 204)  # by now it was read
        for replay_from in (None, 0):
            with self.connect(pid, replay_from) as s:
                self.assertEqual(s.finish()['stdout'], b'')

    def test_by_tag_and_by_field(self):
        self.begin('echo tagged; sleep 0.1', message={'tag': 'replayed'})
        for field in ({'replayFrom': 1}, {'replay_from': '1'}):
            with self.guest.open('Connect', {'process': {'tag': 'replayed'}, **field}) as s:
                self.assertEqual(s.finish()['stdout'], b'tagged\n')

    def test_a_terminal(self):
        with self.guest.start('/bin/sh', '-c', 'echo on a terminal',
                              message={'pty': {'size': {'cols': 80, 'rows': 24}}}) as s:
            pid = s.started().pid
        with self.connect(pid, 1) as s:
            self.assertEqual(s.finish()['pty'], b'on a terminal\r\n')

    def test_refused(self):
        pid = self.begin('echo one; exec sleep 5')
        for replay_from, code in (('x', 'invalid_argument'), ('-1', 'invalid_argument'),
                                  (1 << 60, 'invalid_argument'), (1000, 'out_of_range')):
            with self.subTest(replay_from), self.connect(pid, replay_from) as s:
                self.assertEqual(s.finish()['error']['code'], code)
        with self.guest.open('Connect', {'process': {'pid': pid}, 'replayFrom': 'x'}) as s:
            self.assertEqual(s.finish()['error']['code'], 'invalid_argument')
        self.guest.call('SendSignal', {'process': {'pid': pid}, 'signal': 'SIGNAL_SIGKILL'})

    def test_what_is_no_longer_kept_is_told(self):
        pid = self.begin(f'head -c 5000000 /dev/zero; touch {self.dir}/done; exec sleep 30')
        self.wait_for(self.dir / 'done')
        for _ in range(5):  # by then what was left in the pipe was read
            self.assertEqual(self.guest.http('GET', '/health')[0], 204)
        with self.connect(pid, 1) as s:
            gap = s.next()['start']['replayGap']
            self.assertEqual(gap['from'], 1)
            event = s.next()
            self.assertEqual(event['data']['seq'], gap['to'] + 1)
            size = len(base64.b64decode(event['data']['stdout']))
            self.guest.call('SendSignal', {'process': {'pid': pid}, 'signal': 'SIGNAL_SIGKILL'})
            size += len(text_of(outputs(s)))
        self.assertGreater(size, KEPT_BYTES - 3 * 32768)
        self.assertLessEqual(size, KEPT_BYTES)

    def test_a_slow_reader_of_old_output_gets_it_whole_though_the_process_dies(self):
        """It reads nothing at first: the process waits for it, then is killed."""
        pid = self.begin(f'head -c 900000 /dev/zero | tr "\\0" a; touch {self.dir}/done; '
                         'exec cat /dev/zero')
        self.wait_for(self.dir / 'done')
        with self.connect(pid, 1) as slow:
            time.sleep(0.2)
            status, _ = self.guest.call('SendSignal', {'process': {'pid': pid},
                                                       'signal': 'SIGNAL_SIGKILL'})
            self.assertEqual(status, 200)
            with self.connect(pid, 1) as other:
                again = outputs(other)
            events = outputs(slow)
        numbers = [seq for seq, _, _ in events]
        self.assertEqual(numbers, list(range(numbers[0], numbers[0] + len(numbers))))
        self.assertEqual(events, again[-len(events):])

    def test_live_follows_without_gap_or_repeat(self):
        """Many come back at random places while the process goes on."""
        # With a pause between lines, or a busy machine would make a few large events of them all.
        # And without an end of its own: all of it might be one of those.
        script = f'i=0; while [ ! -e {self.dir}/enough ]; do echo line $i; i=$((i+1)); sleep 0.003; done; seq 100'
        with self.guest.start('/bin/sh', '-c', script) as s:
            pid = s.started().pid
            places = []
            for _ in range(20):
                event = s.next()
                places.append(event['data']['seq'])
            streams = [(at, self.connect(pid, at)) for at in places]
            (self.dir / 'enough').touch()
            rest = outputs(s)
        for at, stream in streams:
            with stream:
                events = outputs(stream)
            self.assertEqual([seq for seq, _, _ in events], list(range(at, rest[-1][0] + 1)))
            self.assertEqual(events[-len(rest):], rest)

    def test_all_together_have_a_ceiling(self):
        pids = []
        for i in range(40):
            r = self.guest.sh(f'head -c 1000000 /dev/zero; exit {i}')
            pids.append(r['pid'])
        with self.connect(pids[-1], 1) as s:
            self.assertNotIn('replayGap', s.next()['start'])
            self.assertEqual(len(text_of(outputs(s))), 1000000)
        with self.connect(pids[0], 1) as s:
            self.assertIn('replayGap', s.next()['start'])
            self.assertEqual(outputs(s), [])
        self.needs_plain_memory()
        self.assertLess(self.memory(), POOL_BYTES + (8 << 20))


class Forgetting(ReplayTest):
    def test_memory_goes_back_when_the_time_is_over(self):
        self.needs_plain_memory()
        self.guest.run('true')
        before = self.memory()
        pid = [self.guest.sh('head -c 1000000 /dev/zero')['pid'] for _ in range(16)][-1]
        self.assertGreater(self.memory() - before, 12 << 20)
        time.sleep(31)
        with self.connect(pid, 1) as s:
            self.assertEqual(s.finish()['error']['code'], 'not_found')
        self.assertLess(self.memory() - before, 3 << 20)


class Signals(GuestTest):
    def test_every_name_and_number(self):
        for name, number in (('SIGINT', 2), ('SIGHUP', 1), ('SIGQUIT', 3), ('SIGUSR1', 10),
                             ('SIGUSR2', 12), ('SIGTERM', 15)):
            for word in (f'SIGNAL_{name}', number):
                with self.subTest(word):
                    script = f"trap 'echo got {name}; exit 0' {name[3:]}; echo ready; " \
                             'while :; do sleep 0.02; done'
                    with self.guest.start('/bin/sh', '-c', script) as s:
                        s.until(b'ready\n')
                        self.assertEqual(self.guest.call(
                            'SendSignal', {'process': {'pid': s.pid}, 'signal': word})[0], 200)
                        self.assertIn(f'got {name}'.encode(), s.finish()['stdout'])

    def test_an_interrupt_reaches_what_a_shell_waits_for(self):
        with self.guest.start('/bin/bash', '-c', 'echo ready; sleep 30; echo not reached') as s:
            s.until(b'ready\n')
            began = time.monotonic()
            self.guest.call('SendSignal', {'process': {'pid': s.pid}, 'signal': 'SIGNAL_SIGINT'})
            r = s.finish()
        self.assertLess(time.monotonic() - began, 20)
        self.assertEqual((r['stdout'], r['end']['status']), (b'', 'signal: interrupt'))


class Held(ReplayTest):
    """Processes whose follower must miss nothing, however long it is away."""

    def hold(self, script, **message):
        with self.guest.start('/bin/sh', '-c', script, message={'tag': 'held', 'hold': True, **message}) as s:
            s.started()

    def follow(self, replay_from=1):
        return self.guest.open('Connect', {'process': {'tag': 'held'}}, Atoll_Replay_From=str(replay_from))

    def test_waits_at_its_pipe_rather_than_lose_a_byte(self):
        self.hold(f'seq 1 400000; touch {self.dir}/written')
        time.sleep(0.5)
        self.assertFalse((self.dir / 'written').exists())
        with self.follow() as s:
            self.assertNotIn('replayGap', s.next()['start'])
            events = outputs(s)
        self.assertEqual(text_of(events), b''.join(b'%d\n' % i for i in range(1, 400001)))
        self.assertEqual([seq for seq, _, _ in events], list(range(1, len(events) + 1)))

    def test_its_end_is_told_until_it_is_forgotten(self):
        self.hold('echo out; kill -USR1 $$')
        time.sleep(0.3)
        for _ in range(2):
            with self.follow() as s:
                self.assertIn('start', s.next())
                self.assertEqual(base64.b64decode(s.next()['data']['stdout']), b'out\n')
                self.assertEqual(s.next()['end']['signal'], 10)
        self.assertEqual(self.guest.call('Forget', {'process': {'tag': 'held'}})[0], 200)
        with self.follow() as s:
            self.assertIsNone(s.next())
        self.assertEqual(s.end['error']['code'], 'not_found')
        self.assertEqual(self.guest.call('Forget', {'process': {'tag': 'held'}})[0], 200)

    def test_its_deadline_ends_the_group(self):
        self.hold(f'(trap "" TERM; sleep 5; touch {self.dir}/lived) & wait', timeoutMs=200)
        with self.follow() as s:
            self.assertIn('start', s.next())
            end = s.next()['end']
        self.assertEqual((end['fault'], end['signal']), ('timeout', 9))
        time.sleep(6)
        self.assertFalse((self.dir / 'lived').exists())

    def test_input_and_a_signal_to_the_group(self):
        self.hold('cat', stdin=True, input=base64.b64encode(b'given').decode())
        with self.follow() as s:
            self.assertIn('start', s.next())
            self.assertEqual(text_of(outputs(s)), b'given')
        self.hold(f'(trap "" TERM; sleep 5; touch {self.dir}/lived) & wait')
        self.assertEqual(self.guest.call('SendSignal', {'process': {'tag': 'held'}, 'signal': 'SIGNAL_SIGTERM',
                                                        'group': True})[0], 200)
        time.sleep(6.3)
        self.assertFalse((self.dir / 'lived').exists())


if __name__ == '__main__':
    unittest.main()
