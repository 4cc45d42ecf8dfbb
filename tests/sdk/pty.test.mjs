import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CommandExitError } from 'e2b'
import { eventually, rejection, useSandbox } from './helpers.mjs'

const box = useSandbox()
const bytes = text => new TextEncoder().encode(text)

/** A terminal whose whole output so far is `screen()`. */
async function open(opts = {}) {
  const decoder = new TextDecoder()
  let text = ''
  const onData = data => (text += decoder.decode(data, { stream: true }))
  const terminal = await box.sandbox.pty.create({ cols: 80, rows: 24, onData, timeoutMs: 60_000, ...opts })
  const type = line => box.sandbox.pty.sendInput(terminal.pid, bytes(line))
  return { terminal, type, screen: () => text }
}

test('it is a terminal of the size asked for, and resizes', async () => {
  const { terminal, type, screen } = await open({ cols: 91, rows: 33 })
  await type('stty size; tput cols; tty\n')
  await eventually(() => /33 91\r?\n91\r?\n\/dev\/pts\/\d+/.test(screen()), 'the first size')
  await box.sandbox.pty.resize(terminal.pid, { cols: 140, rows: 50 })
  await type('stty size\n')
  await eventually(() => /50 140\r?\n/.test(screen()), 'the second size')
  await type('exit\n')
  assert.equal((await terminal.wait()).exitCode, 0)
})

test('a resize is signalled to what runs in it', async () => {
  const { terminal, type, screen } = await open()
  await type(`trap 'echo re''sized' WINCH; echo re''ady\n`)
  await eventually(() => screen().includes('ready'), 'the prompt')
  await box.sandbox.pty.resize(terminal.pid, { cols: 99, rows: 20 })
  await type('\n')
  await eventually(() => screen().includes('resized'), 'SIGWINCH')
  await terminal.kill()
})

test('its exit code is passed on', async () => {
  const { terminal, type } = await open()
  await type('exit 5\n')
  assert.equal((await rejection(() => terminal.wait(), CommandExitError)).exitCode, 5)
})

test('control-C interrupts, control-D ends', async () => {
  const { terminal, type, screen } = await open()
  await type('sleep 100; echo code $?\n')
  await eventually(() => screen().includes('sleep 100'), 'the command')
  await eventually(() => box.sandbox.commands.run('pgrep -x sleep').catch(() => false), 'what is to be interrupted')
  await type('\x03')
  await type('echo after $((1 + 1))\n')
  await eventually(() => screen().includes('after 2'), 'the shell after control-C')
  await type('\x04')
  await terminal.wait().catch(error => assert.ok(error instanceof CommandExitError))
})

test('environment, directory and user', async () => {
  const { terminal, type, screen } = await open({ cwd: '/tmp', user: 'root', envs: { GREETING: 'hallo' } })
  await type('echo "[$GREETING $PWD $(whoami) $TERM]"\n')
  await eventually(() => screen().includes('[hallo /tmp root xterm-256color]'), 'the answer')
  await terminal.kill()
})

test('one goes, another connects, the shell is the same', async () => {
  const { terminal, type } = await open()
  await type('MARK=kept\n')
  await terminal.disconnect()
  let text = ''
  const again = await box.sandbox.pty.connect(terminal.pid, { onData: data => (text += new TextDecoder().decode(data)) })
  await type('echo "<$MARK>"\n')
  await eventually(() => text.includes('<kept>'), 'the variable set before')
  assert.equal(await box.sandbox.pty.kill(terminal.pid), true)
  await rejection(() => again.wait(), CommandExitError)
  assert.equal(await box.sandbox.pty.kill(terminal.pid), false)
})
