"""The guest by itself: processes, their input and their terminals, driven over HTTP. What a sandbox
adds around it is tested with the SDK."""
import base64
import hashlib
import http.client
import json
import os
import resource
import signal
import time
import unittest

from harness.guest import ME, STREAM, Guest, GuestTest, frame


class Commands(GuestTest):
    def test_output_is_apart_and_the_end_is_told(self):
        r = self.guest.sh('printf out; printf err >&2; exit 3')
        self.assertEqual((r['stdout'], r['stderr']), (b'out', b'err'))
        self.assertEqual(r['end'], {'exitCode': 3, 'exited': True, 'status': 'exit status 3',
                                    'error': 'exit status 3'})
        self.assertIsNone(r['error'])

    def test_success_has_no_error(self):
        self.assertEqual(self.guest.run('true')['end'],
                         {'exitCode': 0, 'exited': True, 'status': 'exit status 0'})

    def test_content_type_is_exact(self):
        with self.guest.start('/bin/true') as s:
            self.assertEqual((s.status, s.type), (200, STREAM))
            s.finish()

    def test_bytes_come_through_untouched(self):
        r = self.guest.sh(r"head -c 8191 /dev/zero; printf '\342'")
        self.assertEqual(r['stdout'], b'\0' * 8191 + b'\xe2')

    def test_much_output_comes_whole_and_in_small_pieces(self):
        with self.guest.start('head', '-c', '3000000', '/dev/zero') as s:
            total = 0
            while (event := s.next()) is not None:
                piece = base64.b64decode(event.get('data', {}).get('stdout', ''))
                self.assertLessEqual(len(piece), 32768)
                total += len(piece)
            self.assertEqual(total, 3000000)

    def test_not_found_and_not_executable_end_like_in_a_shell(self):
        plain = self.dir / 'plain'
        plain.write_text('echo from a script $1\n')
        for cmd, code, word in (('no-such-program', 127, b'not found'),
                                ('/no/such', 127, b'not found'), (str(plain), 126, b'denied'),
                                (str(self.dir), 126, b'denied'), ('', 126, b'denied')):
            with self.subTest(cmd):
                r = self.guest.run(cmd)
                self.assertEqual(r['end']['exitCode'], code)
                self.assertIn(word, r['stderr'])
        plain.chmod(0o755)
        self.assertEqual(self.guest.run(str(plain), 'x')['stdout'], b'from a script x\n')

    def test_program_is_looked_up_in_the_path_of_the_command(self):
        tool = self.dir / 'tool'
        tool.write_text('#!/bin/sh\necho found\n')
        tool.chmod(0o755)
        r = self.guest.run('tool', envs={'PATH': f'/nowhere:{self.dir}'})
        self.assertEqual(r['stdout'], b'found\n')

    def test_environment(self):
        lines = self.guest.run('env', envs={'A': 'b c', 'HOME': '/x'})['stdout'].decode().split('\n')
        self.assertIn('A=b c', lines)
        self.assertIn('HOME=/x', lines)
        self.assertIn(f'USER={ME.pw_name}', lines)
        self.assertIn('E2B_SANDBOX=true', lines)
        self.assertEqual(sum(line.startswith('HOME=') for line in lines), 1)

    def test_cwd(self):
        self.assertEqual(self.guest.run('pwd')['stdout'].decode().strip(), ME.pw_dir)
        self.assertEqual(self.guest.run('pwd', cwd=str(self.dir))['stdout'].decode().strip(),
                         str(self.dir))
        r = self.guest.run('pwd', cwd='/no/such')
        self.assertEqual(r['error'], {'code': 'invalid_argument', 'message': "cwd '/no/such' does not exist"})
        r = self.guest.run('pwd', cwd='/etc/passwd')
        self.assertEqual(r['error']['code'], 'invalid_argument')

    @unittest.skipUnless(os.geteuid() == 0, 'only root can be somebody else')
    def test_user(self):
        auth = {'Authorization': 'Basic ' + base64.b64encode(b'nobody:').decode()}
        r = self.guest.run('id', '-un', cwd='/', headers=auth)
        self.assertEqual(r['stdout'], b'nobody\n')
        auth = {'Authorization': 'Basic ' + base64.b64encode(b'no-such-user:').decode()}
        r = self.guest.run('id', headers=auth)
        self.assertEqual(r['error'], {'code': 'unauthenticated',
                                      'message': "invalid username: 'no-such-user'"})
        status, body = self.guest.call('List', **auth)
        self.assertEqual((status, body['code']), (401, 'unauthenticated'))

    def test_signals_and_descriptors_are_clean(self):
        r = self.guest.sh('grep -E "SigIgn|SigBlk" /proc/self/status; ls /proc/self/fd | wc -l; '
                          'cat /proc/self/oom_score_adj')
        lines = r['stdout'].decode().split('\n')
        # glibc's own two signals (32, 33) are ignored in whatever posix_spawn started, such as
        # everything below make, and no program can be told about them.
        for line in lines[:2]:
            self.assertEqual(int(line.split()[1], 16) & ~(3 << 31), 0, line)
        self.assertLessEqual(int(lines[2]), 4)
        self.assertEqual(lines[3], '100')

    def test_killed_by_signal(self):
        for name, word in (('KILL', 'killed'), ('TERM', 'terminated'), ('HUP', 'hangup')):
            end = self.guest.sh(f'kill -{name} $$')['end']
            self.assertEqual(end['exitCode'], -1)
            self.assertEqual(end['error'], f'signal: {word}')
            self.assertFalse(end.get('exited', False))

    def test_end_waits_for_a_grandchild_that_holds_the_output(self):
        began = time.monotonic()
        r = self.guest.sh('(sleep 0.4; echo late) & echo early')
        self.assertEqual(r['stdout'], b'early\nlate\n')
        self.assertGreater(time.monotonic() - began, 0.35)

    def is_gone(self, pid):
        """Soon: with all the time that a busy machine may take for it."""
        for _ in range(1500):
            if not os.path.exists(f'/proc/{pid}'):
                return
            time.sleep(0.02)
        self.fail(f'process {pid} is still there')

    def test_orphans_are_reaped(self):
        r = self.guest.sh('(sleep 0.1 >/dev/null 2>&1 & echo $!)')
        self.is_gone(int(r['stdout']))

    def test_signal_ends_the_wait_for_pipes(self):
        with self.guest.start('/bin/sh', '-c', 'sleep 30 & echo $!; wait') as s:
            child = int(s.started().until(b'\n'))
            self.assertEqual(self.guest.call('SendSignal', {'process': {'pid': s.pid},
                                                            'signal': 'SIGNAL_SIGKILL'}), (200, {}))
            self.assertFalse(os.path.exists(f'/proc/{s.pid}'), 'reaped before the answer')
            self.assertEqual(s.finish()['end']['error'], 'signal: killed')
        os.kill(child, signal.SIGKILL)

    def test_term_can_be_handled(self):
        with self.guest.start('/bin/sh', '-c', 'trap "echo bye; exit 4" TERM; echo ready; '
                              'while :; do sleep 0.05; done') as s:
            s.started().until(b'ready')
            self.guest.call('SendSignal', {'process': {'pid': s.pid}, 'signal': 15})
            r = s.finish()
            self.assertEqual((r['stdout'], r['end']['exitCode']), (b'bye\n', 4))

    def test_unknown_processes(self):
        for method, more in (('SendSignal', {'signal': 'SIGNAL_SIGKILL'}), ('CloseStdin', {}),
                             ('SendInput', {'input': {'stdin': ''}}), ('Update', {})):
            with self.subTest(method):
                status, body = self.guest.call(method, {'process': {'pid': 4000000}, **more})
                self.assertEqual((status, body), (404, {
                    'code': 'not_found', 'message': 'process with pid 4000000 not found'}))
                status, body = self.guest.call(method, {'process': {'tag': 'none'}, **more})
                self.assertEqual(body, {'code': 'not_found', 'message': 'process with tag none not found'})
                status, body = self.guest.call(method, more)
                self.assertEqual((status, body['code']), (501, 'unimplemented'))
        with self.guest.open('Connect', {'process': {'pid': 4000000}}) as s:
            self.assertEqual(s.status, 200)
            self.assertEqual(s.finish()['error']['code'], 'not_found')

    def test_bad_signal(self):
        with self.guest.start('sleep', '5') as s:
            s.started()
            for bad in (0, 19, 'SIGNAL_SIGSTOP', 'SIGINT', None):
                status, body = self.guest.call('SendSignal', {'process': {'pid': s.pid}, 'signal': bad})
                self.assertEqual((status, body['code']), (501, 'unimplemented'))
            self.guest.call('SendSignal', {'process': {'pid': s.pid}, 'signal': 'SIGNAL_SIGKILL'})

    def test_list_connect_and_tags(self):
        with self.guest.start('/bin/sh', '-c', 'read x; echo got $x', stdin=True, cwd=str(self.dir),
                              envs={'A': '1'}, message={'tag': 'mine'}) as one:
            one.started()
            listed = [p for p in self.guest.call('List')[1]['processes'] if p['pid'] == one.pid]
            self.assertEqual(listed, [{'pid': one.pid, 'tag': 'mine', 'config': {
                'cmd': '/bin/sh', 'args': ['-c', 'read x; echo got $x'], 'envs': {'A': '1'},
                'cwd': str(self.dir)}}])
            with self.guest.open('Connect', {'process': {'tag': 'mine'}}) as two:
                self.assertEqual(two.started().pid, one.pid)
                self.guest.call('SendInput', {'process': {'tag': 'mine'},
                                              'input': {'stdin': base64.b64encode(b'it\n').decode()}})
                for s in (one, two):
                    self.assertEqual(s.finish()['stdout'], b'got it\n')
        for selector in ({'pid': one.pid}, {'tag': 'mine'}):  # remembered for a while
            with self.guest.open('Connect', {'process': selector}) as s:
                r = s.finish()
                self.assertEqual((r['pid'], r['end']['exitCode'], r['error']), (one.pid, 0, None))
        self.assertNotIn(one.pid, [p['pid'] for p in self.guest.call('List')[1]['processes']])

    def test_a_client_that_leaves_does_not_stop_it(self):
        mark = self.dir / 'mark'
        s = self.guest.start('/bin/sh', '-c', f'sleep 0.3; seq 100000; echo done > {mark}').started()
        s.close()
        for _ in range(1200):
            if mark.exists():
                break
            time.sleep(0.05)
        self.assertTrue(mark.exists())

    def test_a_client_that_does_not_read_stops_it_and_others_are_served(self):
        mark = self.dir / 'mark'
        with self.guest.start('/bin/sh', '-c', f'head -c 30000000 /dev/zero; touch {mark}') as s:
            s.started()
            time.sleep(0.7)
            self.assertFalse(mark.exists(), 'it ran on')
            self.assertEqual(self.guest.run('echo', 'x')['stdout'], b'x\n')
            self.assertEqual(len(s.finish()['stdout']), 30000000)
        self.assertTrue(mark.exists())

    def test_timeout_kills_and_says_so(self):
        began = time.monotonic()
        r = self.guest.run('sleep', '20', headers={'Connect_Timeout_Ms': '300'})
        self.assertLess(time.monotonic() - began, 15)
        self.assertEqual(r['error']['code'], 'deadline_exceeded')
        self.assertNotIn('end', r)
        self.is_gone(r['pid'])

    def test_timeout_of_connect_ends_only_the_stream(self):
        with self.guest.start('sleep', '20') as s:
            s.started()
            with self.guest.open('Connect', {'process': {'pid': s.pid}},
                                 Connect_Timeout_Ms='200') as two:
                self.assertEqual(two.finish()['error']['code'], 'deadline_exceeded')
            self.assertTrue(os.path.exists(f'/proc/{s.pid}'))
            self.guest.call('SendSignal', {'process': {'pid': s.pid}, 'signal': 'SIGNAL_SIGKILL'})

    def test_timeout_zero_is_none_and_nonsense_is_refused(self):
        self.assertEqual(self.guest.run('true', headers={'Connect_Timeout_Ms': '0'})['end']['exitCode'], 0)
        for text in ('soon', '-1', '99999999999'):
            r = self.guest.run('true', headers={'Connect_Timeout_Ms': text})
            self.assertEqual(r['error']['code'], 'invalid_argument')

    def test_silence_is_filled_with_keepalives(self):
        began = time.monotonic()
        r = self.guest.run('sleep', '3.5', headers={'Keepalive_Ping_Interval': '1'})
        self.assertGreaterEqual(r['keepalives'], 1)
        self.assertLessEqual(r['keepalives'], time.monotonic() - began)

    def test_a_client_that_does_not_read_is_not_asked_again_and_again(self):
        def wakes():
            with open(f'/proc/{self.guest.process.pid}/status') as file:
                return int(file.read().split('voluntary_ctxt_switches:')[1].split()[0])
        with self.guest.start('yes', headers={'Keepalive-Ping-Interval': '1'}) as s:
            s.started()
            time.sleep(1.5)  # past its first interval
            woken = []
            while not woken or (min(woken) > 200 and len(woken) < 10):  # it may not be full yet
                before = wakes()
                time.sleep(1.2)
                woken.append(wakes() - before)
            self.assertLess(min(woken), 200, woken)
            self.guest.call('SendSignal', {'process': {'pid': s.pid}, 'signal': 'SIGNAL_SIGKILL'})

    def test_thousands_leave_nothing_behind(self):
        fds = f'/proc/{self.guest.process.pid}/fd'
        self.guest.run('true')
        before = len(os.listdir(fds))
        for _ in range(300):
            self.assertEqual(self.guest.run('true')['end']['exitCode'], 0)
        for _ in range(1500):  # the last connections are being closed
            if len(os.listdir(fds)) <= before + 1:
                break
            time.sleep(0.02)
        self.assertLessEqual(len(os.listdir(fds)), before + 1)


class Input(GuestTest):
    def send(self, pid, data, kind='stdin'):
        return self.guest.call('SendInput', {'process': {'pid': pid},
                                             'input': {kind: base64.b64encode(data).decode()}})

    def test_echo_before_and_after_the_end_of_input(self):
        with self.guest.start('cat', stdin=True) as s:
            s.started()
            self.assertEqual(self.send(s.pid, b'hello'), (200, {}))
            self.assertEqual(s.until(b'hello'), b'hello')
            self.assertEqual(self.send(s.pid, b''), (200, {}))
            self.assertEqual(self.guest.call('CloseStdin', {'process': {'pid': s.pid}}), (200, {}))
            self.assertEqual(s.finish()['end']['exitCode'], 0)

    def test_without_stdin(self):
        self.assertEqual(self.guest.run('cat')['end']['exitCode'], 0)  # /dev/null
        with self.guest.start('sleep', '5') as s:
            s.started()
            status, body = self.send(s.pid, b'x')
            self.assertEqual((status, body['code']), (500, 'internal'))
            self.assertIn('stdin not enabled or closed', body['message'])
            status, body = self.send(s.pid, b'x', 'pty')
            self.assertEqual((status, body['code']), (500, 'internal'))
            self.assertEqual(self.guest.call('CloseStdin', {'process': {'pid': s.pid}}), (200, {}))
            self.guest.call('SendSignal', {'process': {'pid': s.pid}, 'signal': 'SIGNAL_SIGKILL'})

    def test_input_larger_than_the_pipe_waits_for_the_reader(self):
        data = os.urandom(4_000_000)
        with self.guest.start('/bin/sh', '-c', 'sleep 0.3; sha256sum', stdin=True) as s:
            s.started()
            self.assertEqual(self.send(s.pid, data), (200, {}))
            self.guest.call('CloseStdin', {'process': {'pid': s.pid}})
            self.assertIn(hashlib.sha256(data).hexdigest().encode(), s.finish()['stdout'])

    def test_input_to_a_process_that_dies_is_an_error(self):
        with self.guest.start('/bin/sh', '-c', 'dd bs=1 count=1 2>/dev/null; sleep 0.3', stdin=True) as s:
            s.started()
            status, body = self.send(s.pid, b'x' * 1_000_000)
            self.assertEqual((status, body['code']), (500, 'internal'))
            s.finish()

    def test_nothing_to_send(self):
        with self.guest.start('cat', stdin=True) as s:
            s.started()
            status, body = self.guest.call('SendInput', {'process': {'pid': s.pid}, 'input': {}})
            self.assertEqual((status, body['code']), (501, 'unimplemented'))
            status, body = self.guest.call('SendInput', {'process': {'pid': s.pid},
                                                         'input': {'stdin': '***'}})
            self.assertEqual((status, body['code']), (400, 'invalid_argument'))
            self.guest.call('CloseStdin', {'process': {'pid': s.pid}})
            s.finish()

    def stream_input(self, *frames):
        status, body, headers = self.guest.http('POST', '/process.Process/StreamInput', b''.join(frames),
                                                Content_Type=STREAM)
        self.assertEqual((status, headers['Content-Type']), (200, STREAM))
        return body

    def test_stream_input(self):
        def data(text):
            return frame({'data': {'input': {'stdin': base64.b64encode(text).decode()}}})
        with self.guest.start('cat', stdin=True) as s:
            s.started()
            answer = self.stream_input(frame({'start': {'process': {'pid': s.pid}}}), data(b'one '),
                                       frame({'keepalive': {}}), data(b'two ' * 100000), data(b'end'))
            self.assertEqual(answer, frame(b'{}') + frame(b'{}', 2))
            self.guest.call('CloseStdin', {'process': {'pid': s.pid}})
            self.assertEqual(s.finish()['stdout'], b'one ' + b'two ' * 100000 + b'end')
        for frames in ([data(b'x')], [frame({})], [frame({'start': {'process': {'pid': 4000000}}})],
                       [frame(b'nonsense')], [b'\0\0\0\0\5abc']):
            answer = self.stream_input(*frames)
            self.assertEqual(answer[0], 2)
            self.assertIn('error', json.loads(answer[5:]))


class Terminals(GuestTest):
    def test_size_resize_and_exit(self):
        with self.guest.start('/bin/bash', '-i', envs={'TERM': 'xterm', 'PS1': '$ '},
                              message={'pty': {'size': {'cols': 81, 'rows': 25}}}) as s:
            s.started()

            def send(text):
                self.assertEqual(self.guest.call('SendInput', {
                    'process': {'pid': s.pid},
                    'input': {'pty': base64.b64encode(text).decode()}}), (200, {}))
            send(b'stty size\n')
            s.until(b'25 81', 'pty')
            self.assertEqual(self.guest.call('Update', {'process': {'pid': s.pid},
                                                        'pty': {'size': {'cols': 101, 'rows': 30}}}),
                             (200, {}))
            send(b'stty size; tty; exit 7\n')
            out = s.until(b'/dev/pts/', 'pty')
            self.assertIn(b'30 101', out)
            self.assertEqual(s.finish()['end']['exitCode'], 7)

    def test_only_its_own_kind_of_input(self):
        with self.guest.start('cat', message={'pty': {'size': {'cols': 80, 'rows': 24}}}) as s:
            s.started()
            status, body = self.guest.call('SendInput', {'process': {'pid': s.pid},
                                                         'input': {'stdin': 'eA=='}})
            self.assertEqual((status, body['code']), (500, 'internal'))
            status, body = self.guest.call('CloseStdin', {'process': {'pid': s.pid}})
            self.assertEqual((status, body['code']), (500, 'unknown'))
            self.guest.call('SendInput', {'process': {'pid': s.pid}, 'input': {'pty': 'BA=='}})  # ^D
            self.assertEqual(s.finish()['end']['exitCode'], 0)

    def test_resize_without_a_terminal(self):
        with self.guest.start('sleep', '5') as s:
            s.started()
            status, body = self.guest.call('Update', {'process': {'pid': s.pid},
                                                      'pty': {'size': {'cols': 1, 'rows': 1}}})
            self.assertEqual((status, body['code']), (500, 'internal'))
            self.guest.call('SendSignal', {'process': {'pid': s.pid}, 'signal': 'SIGNAL_SIGKILL'})


class Crowd(unittest.TestCase):
    def test_more_commands_than_one_program_may_have_files(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        try:
            guest = Guest()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        streams = [guest.start('sleep', '100', stdin=True).started() for _ in range(60)]
        self.assertEqual(guest.sh('ulimit -Sn')['stdout'], b'%d\n' % min(1024, hard))
        for stream in streams:
            guest.call('SendSignal', {'process': {'pid': stream.pid}, 'signal': 'SIGNAL_SIGKILL'})
            stream.close()
        self.assertEqual(guest.stop(), (0, ''))


class Stopping(unittest.TestCase):
    def test_with_streams_open_nothing_is_lost_or_left(self):
        guest = Guest()
        streams = [guest.start('sleep', '20').started() for _ in range(3)]
        watch = guest.open('WatchDir', {'path': '/tmp'}, 'filesystem.Filesystem')
        watch.next()
        self.assertEqual(guest.stop(), (0, ''))
        self.assertEqual(watch.finish()['error']['code'], 'internal')
        watch.close()
        for stream in streams:  # no end that would be a lie
            with self.assertRaises((EOFError, ConnectionError, http.client.IncompleteRead)):
                stream.finish()
            stream.close()
