"""Volumes, secrets and template names."""
import io
import os

from e2b import (Secret, SecretNotFoundException, Template, Volume, VolumeException,
                 VolumeNotFoundException, VolumePathNotFoundException)
from support import Unboxed, everything, unique


class Volumes(Unboxed):
    def volume(self):
        volume = Volume.create(unique('volume'))
        self.addCleanup(Volume.destroy, volume.volume_id)
        return volume

    def test_made_found_and_gone(self):
        volume = self.volume()
        self.assertIn((volume.volume_id, volume.name), [(v.volume_id, v.name) for v in Volume.list()])
        with self.assertRaises(VolumeException):
            Volume.create(volume.name)
        Volume.connect(volume.volume_id).write_file('/kept', 'kept')
        self.assertEqual(volume.read_file('/kept'), 'kept')
        self.assertTrue(Volume.destroy(volume.volume_id))
        self.assertFalse(Volume.destroy(volume.volume_id))
        with self.assertRaises(VolumeNotFoundException):
            Volume.get_info(volume.volume_id)

    def test_contents_in_every_form(self):
        volume, data = self.volume(), os.urandom(1 << 20)
        volume.write_file('/file', io.BytesIO(data), mode=0o640)
        self.assertEqual(volume.read_file('/file', format='bytes'), data)
        self.assertEqual(b''.join(volume.read_file('/file', format='stream')), data)
        self.assertEqual((volume.get_info('/file').size, volume.get_info('/file').mode & 0o777),
                         (len(data), 0o640))
        volume.make_dir('/a/b', force=True)
        self.assertEqual(sorted(e.name for e in volume.list('/')), ['a', 'file'])
        volume.remove('/a')
        self.assertFalse(volume.exists('/a'))
        with self.assertRaises(VolumePathNotFoundException):
            volume.read_file('/a')

    def test_mounted_into_two_sandboxes(self):
        volume = self.volume()
        volume.write_file('/before', 'from outside')
        one = self.make(volume_mounts={'/data': volume})
        two = self.make(volume_mounts={'/elsewhere': volume.name})
        self.assertEqual(one.files.read('/data/before'), 'from outside')
        one.commands.run('echo from inside > /data/after', user='root')
        self.assertEqual(two.files.read('/elsewhere/after', user='root'), 'from inside\n')
        self.assertEqual(volume.read_file('/after'), 'from inside\n')
        self.assertEqual([(m['name'], m['path']) for m in one.get_info().volume_mounts],
                         [(volume.name, '/data')])


class Named(Unboxed):
    def test_a_secret_has_versions_and_is_never_shown(self):
        name = unique('secret')
        made = Secret.create(name, 'the value', metadata={'for': 'a test'})
        self.addCleanup(Secret.destroy, made.secret_id)
        self.assertEqual((made.name, made.metadata), (name, {'for': 'a test'}))
        self.assertEqual(Secret.update(name, 'another').version, made.version + 1)
        self.assertEqual(Secret.get_info(made.secret_id).name, name)
        self.assertIn(made.secret_id, [s.secret_id for s in everything(Secret.list())])
        self.assertNotIn('another', repr(Secret.get_info(name)))
        self.assertTrue(Secret.destroy(name))
        self.assertFalse(Secret.exists(name))
        with self.assertRaises(SecretNotFoundException):
            Secret.get_info(name)

    def test_templates_by_name(self):
        self.assertTrue(Template.exists('base'))
        self.assertFalse(Template.exists(unique('template')))
