"""How sandboxes begin, are found, and end."""
import datetime
import time

from e2b import (AuthenticationException, Sandbox, SandboxException, SandboxNotFoundException,
                 SandboxQuery, SandboxState)
from support import Unboxed, ask, eventually, everything, unique


class Life(Unboxed):
    def test_nothing_but_a_call_gives_five_minutes(self):
        with Sandbox.create() as box:
            info = box.get_info()
            self.assertEqual((info.name, info.state), ('base', SandboxState.RUNNING))
            self.assertEqual(round((info.end_at - info.started_at).total_seconds()), 300)
            self.assertTrue(box.is_running())
        self.assertFalse(box.is_running())
        self.assertFalse(box.kill())

    def test_its_time_ends_it(self):
        box = self.make(timeout=2)
        eventually(lambda: not box.is_running(), 'the end')
        with self.assertRaises(SandboxNotFoundException):
            box.get_info()

    def test_set_timeout_shortens_and_lengthens(self):
        box = self.make()
        box.set_timeout(3)
        Sandbox.set_timeout(box.sandbox_id, 60)
        time.sleep(4)
        self.assertTrue(box.is_running())
        box.set_timeout(0)
        eventually(lambda: not box.is_running(), 'the end')

    def test_connecting_never_shortens(self):
        box = self.make()
        box.files.write('mark', 'here')
        before = box.get_info().end_at
        self.assertEqual(Sandbox.connect(box.sandbox_id, timeout=5).files.read('mark'), 'here')
        self.assertEqual(box.get_info().end_at, before)
        box.connect(timeout=600)
        self.assertGreater(box.get_info().end_at, before)

    def test_unknown_ids_and_wrong_keys(self):
        self.assertFalse(Sandbox.kill('nonexistingsandbox'))
        for call in (Sandbox.connect, Sandbox.get_info, Sandbox.pause):
            with self.subTest(call.__name__), self.assertRaises(SandboxNotFoundException):
                call('nonexistingsandbox')
        with self.assertRaises(AuthenticationException):
            Sandbox.create(api_key='e2b_' + '0' * 40)
        with self.assertRaisesRegex(SandboxException, 'no-such-template'):
            Sandbox.create('no-such-template')

    def test_a_server_inside_and_a_private_one(self):
        box = self.make(network={'allow_public_traffic': False})
        box.commands.run('python3 -m http.server 8000', background=True, timeout=0)
        url = f'http://{box.get_host(8000)}/'
        token = {'e2b-traffic-access-token': box.traffic_access_token}
        eventually(lambda: ask(url, token)[0] == 200, 'the server inside')
        self.assertEqual(ask(url)[0], 403)

    def test_metrics_come(self):
        box = self.make()
        sample = eventually(box.get_metrics, 'a first sample', every=0.3)[0]
        self.assertGreater(sample.mem_total, 0)
        self.assertGreater(sample.disk_total, 0)
        early = datetime.datetime.now() - datetime.timedelta(hours=2)
        self.assertEqual(box.get_metrics(early, early + datetime.timedelta(hours=1)), [])


class Finding(Unboxed):
    def ids(self, **query):
        return [box.sandbox_id for box in everything(Sandbox.list(query=SandboxQuery(**query)))]

    def test_metadata_of_any_form(self):
        metadata = {'purpose': unique('a&b=c d+e'), 'ключ': 'ü%20'}
        box = self.make(metadata=metadata)
        self.assertEqual(box.get_info().metadata, metadata)
        self.assertEqual(self.ids(metadata=metadata), [box.sandbox_id])
        self.assertEqual(self.ids(metadata={**metadata, 'purpose': 'other'}), [])

    def test_pages_newest_first(self):
        metadata = {'pages': unique('p')}
        made = [self.make(metadata=metadata).sandbox_id for _ in range(3)]
        pages = Sandbox.list(limit=2, query=SandboxQuery(metadata=metadata))
        self.assertEqual([b.sandbox_id for b in pages.next_items()], made[:0:-1])
        self.assertTrue(pages.has_next)
        self.assertEqual([b.sandbox_id for b in pages.next_items()], made[:1])
        self.assertFalse(pages.has_next)

    def test_by_state_template_and_time(self):
        metadata = {'states': unique('s')}
        one, two = (self.make(metadata=metadata) for _ in range(2))
        one.pause()
        by = lambda **query: self.ids(metadata=metadata, **query)
        self.assertEqual(by(state=[SandboxState.PAUSED]), [one.sandbox_id])
        self.assertEqual(by(state=[SandboxState.RUNNING]), [two.sandbox_id])
        self.assertEqual(by(template='base'), [two.sandbox_id, one.sandbox_id])
        self.assertEqual(by(template='no-such-template'), [])
        started = two.get_info().started_at
        self.assertIn(two.sandbox_id, by(started_after=started))
        self.assertEqual(by(started_after=started + datetime.timedelta(seconds=1)), [])
