"""A second template, put beside the base one by a directory and a small file."""
import pathlib
import os
import shutil
import subprocess
import tempfile
import unittest

from harness.sandbox import Sandbox
from harness.server import Server, template_cache

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent

SMALL = '''# everything here differs from the default
cpu = 1
memory_mb = 256
disk_mb = 128
max_pids = 64
user = "root"
workdir = "/srv"
start = "echo started by $(id -un) in $PWD > /srv/started; sleep 1000"
'''


class SecondTemplate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = pathlib.Path(tempfile.mkdtemp(prefix='atoll-template-'))
        cls.addClassCleanup(shutil.rmtree, cls.scratch, ignore_errors=True)
        cls.scratch.chmod(0o755)
        for name in ('base', 'small'):
            rootfs = cls.scratch / 'templates' / name / 'rootfs'
            rootfs.mkdir(parents=True)
            subprocess.run(['mount', '--bind', template_cache() / 'base/rootfs', rootfs], check=True)
            cls.addClassCleanup(subprocess.run, ['umount', rootfs], check=True)
        (cls.scratch / 'templates/small/template.toml').write_text(SMALL)
        cls.server = Server(BUILD, cls.scratch, '--stop-sandboxes', '--pool', '2', '--template-cache',
                            cls.scratch / 'templates')
        cls.server.start()
        cls.addClassCleanup(cls.server.stop)

    def box(self, name='small'):
        box = Sandbox(name, env=self.server.env())
        self.addCleanup(box.kill)
        return box

    def test_its_file_is_followed(self):
        box = self.box()
        self.assertEqual(box.run('id -un; pwd').text(), 'root\n/srv\n')
        self.assertEqual(
            box.run('for i in $(seq 600); do cat started 2>/dev/null && exit; sleep 0.1; done').text(),
            'started by root in /srv\n')
        info = box.api('GET', f'/sandboxes/{box.id}')
        self.assertEqual((info['cpuCount'], info['memoryMB'], info['diskSizeMB'], info['alias']),
                         (1, 256, 128, 'small'))

    def test_its_disk_is_small_and_full_is_said(self):
        box = self.box()
        status, answer = box.write('/srv/big', b'x' * (200 << 20))
        self.assertEqual((status, answer['code']), (507, 507))
        self.assertEqual(box.run('rm -f /srv/big; echo ok > x && cat x').text(), 'ok\n')

    def test_its_memory_and_processes_are_few(self):
        box = self.box()
        self.assertNotEqual(box.run("python3 -c 'bytearray(400 << 20)'").exit_code, 0)
        self.assertNotEqual(box.run('for i in $(seq 100); do sleep 5 & done; wait').exit_code, None)
        self.assertEqual(box.run('pkill sleep; sleep 0.2; echo alive').text(), 'alive\n')

    def test_base_beside_it_is_as_it_was(self):
        self.assertEqual(self.box('base').run('id -un; pwd').text(), 'user\n/home/user\n')

    def test_a_file_that_is_wrong_is_named(self):
        wrong = self.scratch / 'templates/wrong'
        (wrong / 'rootfs').mkdir(parents=True)
        (wrong / 'template.toml').write_text('cpu = "many"\n')
        with self.assertRaisesRegex(RuntimeError, r"template 'wrong': template.toml.*cpu"):
            Sandbox('wrong', env=self.server.env())


if __name__ == '__main__':
    unittest.main()
