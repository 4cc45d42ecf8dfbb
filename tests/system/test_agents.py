"""What docs/agents.md says works: Claude Code, Codex, Gemini, opencode, Playwright and Chromium, as npm and Debian have
them, with their own sandboxes on. No model is asked: there is no network here."""
import os
import pathlib
import tempfile
import unittest
from unittest import mock

from harness import agents
from harness.sandbox import Sandbox
from harness.server import Server

BUILD = pathlib.Path(os.environ['ATOLL_TEST_BIN']).parent
PAGE = '<p id=x>nothing</p><script>document.getElementById("x").textContent = 6 * 7</script>'
PLAYWRIGHT = f'''
import {{ chromium }} from '{agents.MODULES}/playwright-core/index.mjs'
const browser = await chromium.launch({{ executablePath: '/usr/bin/chromium', chromiumSandbox: true }})
const page = await browser.newPage()
await page.goto('file:///home/user/page.html')
console.log(await page.textContent('#x'))
await page.goto('chrome://sandbox')
console.log((await page.textContent('body')).replace(/\\s+/g, ' '))
await browser.close()
'''
MISSING = agents.reason_missing()


@unittest.skipIf(MISSING, MISSING)
class Agents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix='atoll-agents-')
        cls.addClassCleanup(scratch.cleanup)
        os.chmod(scratch.name, 0o755)
        with mock.patch.dict(os.environ, ATOLL_TEMPLATE_CACHE=str(agents.HOME)):
            cls.server = Server(BUILD, scratch.name, '--pool', '1', '--stop-sandboxes')
            cls.addClassCleanup(cls.server.stop)
            cls.server.start()
        env = cls.server.env()
        cls.box = Sandbox(env=env)  # nested: its template says so
        cls.plain = Sandbox(env=env, nested=False)
        for box in (cls.box, cls.plain):
            box.run(f"cat >page.html <<'END'\n{PAGE}\nEND\n")

    def run_in(self, command, box=None, seconds=60):
        return (box or self.box).run(f'export PATH={agents.PATH}; timeout {seconds} {command}')

    def says(self, command, pattern):
        result = self.run_in(command)
        self.assertEqual(result.exit_code, 0, result.stderr.decode(errors='replace')[-2000:])
        self.assertRegex(result.text(), pattern)

    def test_claude_code(self):
        self.says('claude --version', r'^\d+\.\d+\.\d+ \(Claude Code\)')

    def test_gemini(self):
        self.says('gemini --version', r'^\d+\.\d+\.\d+')

    def test_opencode(self):
        self.says('opencode --version', r'^\d+\.\d+\.\d+')

    def test_codex_and_its_sandbox(self):
        """Nothing outside of it is written, and there is no network in it."""
        self.says('codex --version', r'^codex-cli \d')
        script = ('echo in; touch /home/user/made; echo x >/etc/made; '
                  'python3 -c "import socket; socket.create_connection((\\"127.0.0.1\\", 22), 2)"')
        result = self.run_in(f"codex sandbox -- sh -c '{script}'")
        self.assertEqual(result.text().splitlines()[0], 'in')
        self.assertIn('Read-only file system', result.stderr.decode())
        self.assertEqual(self.box.run('ls /home/user/made /etc/made 2>/dev/null').text(), '')
        plain = self.run_in("codex sandbox -- sh -c 'echo in'", self.plain)
        self.assertNotEqual((plain.exit_code, plain.text()), (0, 'in\n'))

    def test_chromium_and_its_sandbox(self):
        command = 'chromium --headless --disable-gpu --dump-dom file:///home/user/page.html'
        result = self.run_in(command)
        self.assertIn('<p id="x">42</p>', result.text(), result.stderr.decode(errors='replace')[-2000:])
        self.assertNotIn('42', self.run_in(command, self.plain).text())  # without a way to make its own

    def test_playwright(self):
        self.box.run(f"cat >page.mjs <<'END'\n{PLAYWRIGHT}\nEND\n")
        result = self.run_in('node page.mjs')
        lines = result.text().splitlines()
        self.assertEqual(lines[:1], ['42'], result.stderr.decode(errors='replace')[-2000:])
        self.assertIn('You are adequately sandboxed', lines[1])

    def test_fuse_as_the_default_user(self):
        script = ('mkdir -p from to && echo inside >from/file && mksquashfs from image.sqfs -quiet -no-progress >/dev/null '
                  '&& squashfuse image.sqfs to && cat to/file && stat -fc %T to && fusermount3 -u to && ls to')
        self.says(f"sh -c '{script}'", r'^inside\nfuseblk\n$|^inside\n.*fuse.*\n$')
        self.assertNotEqual(self.run_in('squashfuse image.sqfs to', self.plain).exit_code, 0)


if __name__ == '__main__':
    unittest.main()
