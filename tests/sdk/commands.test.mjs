import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  AuthenticationError,
  CommandExitError,
  InvalidArgumentError,
  NotFoundError,
  SandboxError,
  TimeoutError,
} from 'e2b'
import { eventually, rejection, useSandbox, withSandbox } from './helpers.mjs'

const box = useSandbox({ envs: { FROM_SANDBOX: 'sandbox', BOTH: 'sandbox' } })
const run = (cmd, opts) => box.sandbox.commands.run(cmd, opts)

test('stdout, stderr and exit code come apart', async () => {
  const ok = await run('echo out; echo err >&2')
  assert.equal(ok.stdout, 'out\n')
  assert.equal(ok.stderr, 'err\n')
  assert.equal(ok.exitCode, 0)
})

test('a failing command rejects with its code and both outputs', async () => {
  const error = await rejection(() => run('echo out; echo err >&2; exit 7'), CommandExitError)
  assert.equal(error.exitCode, 7)
  assert.equal(error.stdout, 'out\n')
  assert.equal(error.stderr, 'err\n')
})

test('an unknown program ends with 127', async () => {
  assert.equal((await rejection(() => run('no-such-program'), CommandExitError)).exitCode, 127)
})

test('output arrives while the command still runs', async () => {
  const seen = []
  let first
  await run('echo one; sleep 2; echo two', {
    onStdout: text => {
      first ??= Date.now()
      seen.push(text)
    },
  })
  assert.equal(seen.join(''), 'one\ntwo\n')
  assert.ok(Date.now() - first > 500, `the first line came ${Date.now() - first} ms before the end`)
})

test('a megabyte of output is whole and in order', async () => {
  const { stdout } = await run('seq 1 150000')
  assert.equal(stdout.length, 938895)
  assert.ok(stdout.startsWith('1\n2\n3\n') && stdout.endsWith('149999\n150000\n'))
})

test('output that is cut inside a character survives', async () => {
  const { stdout } = await run(`python3 -c 'print("é€😀" * 20000)'`)
  assert.equal(stdout, 'é€😀'.repeat(20000) + '\n')
})

test('it is a login shell in the home of user', async () => {
  const { stdout } = await run('pwd; whoami; id -u; echo $HOME; echo $0; umask')
  assert.equal(stdout, '/home/user\nuser\n1000\n/home/user\n/bin/bash\n0022\n')
})

test('root on request, and sudo without a password', async () => {
  assert.equal((await run('id -u; echo $HOME', { user: 'root' })).stdout, '0\n/root\n')
  assert.equal((await run('sudo id -u')).stdout, '0\n')
})

test('cwd is honoured', async () => {
  assert.equal((await run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
})

test('a missing cwd is refused with its name', async () => {
  await rejection(() => run('true', { cwd: '/no/such/dir' }), InvalidArgumentError, /\/no\/such\/dir/)
})

test('an unknown user is refused with its name', async () => {
  await rejection(() => run('true', { user: 'nobody-here' }), AuthenticationError, /nobody-here/)
})

test('environment: the command beats the sandbox, the sandbox beats nothing', async () => {
  const { stdout } = await run('echo $FROM_SANDBOX $BOTH $FROM_COMMAND $E2B_SANDBOX $E2B_SANDBOX_ID', {
    envs: { BOTH: 'command', FROM_COMMAND: 'a b;$(c)' },
  })
  assert.equal(stdout, `sandbox command a b;$(c) true ${box.sandbox.sandboxId}\n`)
})

test('the environment of the server does not leak in', async () => {
  const { stdout } = await run('env')
  assert.doesNotMatch(stdout, /E2B_API_KEY|ASAN_OPTIONS|ATOLL_/)
})

test('in the background: listed, killed, gone', async () => {
  const { commands } = box.sandbox
  const handle = await commands.run('sleep 300', { background: true })
  assert.ok((await commands.list()).some(p => p.pid === handle.pid))
  assert.equal(await handle.kill(), true)
  const error = await rejection(() => handle.wait(), CommandExitError)
  assert.equal(error.exitCode, -1)
  assert.match(error.error ?? '', /killed/)
  await rejection(() => run(`kill -0 ${handle.pid}`), CommandExitError)
  assert.ok(!(await commands.list()).some(p => p.pid === handle.pid))
  assert.equal(await commands.kill(handle.pid), false)
})

test('stdin is fed, answered before its end, and closed', async () => {
  const { commands } = box.sandbox
  let seen = ''
  const handle = await commands.run('cat; echo ended', {
    background: true,
    stdin: true,
    onStdout: text => (seen += text),
  })
  await handle.sendStdin('first\n')
  await eventually(() => seen === 'first\n', 'the echo of the first line')
  await commands.sendStdin(handle.pid, '')
  await commands.sendStdin(handle.pid, 'zweite Zeile ü\n')
  await handle.closeStdin()
  const { exitCode, stdout } = await handle.wait()
  assert.equal(exitCode, 0)
  assert.equal(stdout, 'first\nzweite Zeile ü\nended\n')
})

test('a command that did not ask for stdin has none', async () => {
  assert.equal((await run('cat; echo ended')).stdout, 'ended\n')
  const handle = await box.sandbox.commands.run('sleep 30', { background: true, stdin: false })
  await rejection(() => box.sandbox.commands.sendStdin(handle.pid, 'x'), SandboxError, /stdin/)
  await handle.kill()
})

test('the time limit of a command kills it and is no exit code', async () => {
  const error = await rejection(() => run('echo $$ >/tmp/limited; sleep 30', { timeoutMs: 2_000 }), TimeoutError)
  assert.ok(!(error instanceof CommandExitError))
  const pid = (await run('cat /tmp/limited')).stdout.trim()
  await eventually(() => run(`kill -0 ${pid}`).then(() => false, error => error instanceof CommandExitError), 'its end')
})

test('a client that goes leaves its process running; another connects to it', async () => {
  const { commands } = box.sandbox
  const handle = await commands.run('for i in $(seq 100); do echo tick; sleep 0.1; done', { background: true })
  await handle.disconnect()
  assert.ok((await commands.list()).some(p => p.pid === handle.pid))
  let seen = ''
  const again = await commands.connect(handle.pid, { onStdout: text => (seen += text) })
  await eventually(() => seen.includes('tick\n'), 'output after connecting again')
  assert.equal(await again.kill(), true)
  await rejection(() => again.wait(), CommandExitError)
})

test('two listeners both hear the end', async () => {
  const { commands } = box.sandbox
  const one = await commands.run('sleep 2; echo last; exit 3', { background: true })
  const two = await commands.connect(one.pid)
  const ends = await Promise.all([one, two].map(h => rejection(() => h.wait(), CommandExitError)))
  for (const end of ends) {
    assert.equal(end.exitCode, 3)
    assert.equal(end.stdout, 'last\n')
  }
})

test('connecting to a pid that is not there says so', async () => {
  await rejection(() => box.sandbox.commands.connect(999_999), NotFoundError)
  assert.equal(await box.sandbox.commands.kill(999_999), false)
})

test('forty commands at once', async () => {
  const results = await Promise.all(Array.from({ length: 40 }, (_, i) => run(`echo ${i}; exit 0`)))
  assert.deepEqual(results.map(r => r.stdout), Array.from({ length: 40 }, (_, i) => `${i}\n`))
})

test('orphans are reaped', async () => {
  await run('(sleep 0.1 &) ; (true &)')
  await eventually(
    async () => (await run("ps -eo stat= | grep -c '^Z' || true")).stdout.trim() === '0',
    'no zombie left',
  )
})

test('a sandbox that is killed cuts its commands short', async () => {
  await withSandbox({}, async sandbox => {
    const handle = await sandbox.commands.run('sleep 60', { background: true })
    const waiting = rejection(() => handle.wait(), TimeoutError, /killed or reached its end of life/)
    await sandbox.kill()
    await waiting
  })
})

test('what a computer of its own should have', async () => {
  const tools = 'bash git curl python python3 pip node npm sudo ss tput getfattr ps tar gcc make ssh ' +
    'npx jq rg wget nano vi zip unzip rsync file dig ping less'
  const { stdout } = await run(`for t in ${tools}; do command -v $t >/dev/null || echo missing $t; done; git daemon -h 2>&1 | head -1`)
  assert.doesNotMatch(stdout, /missing/)
  assert.match(stdout, /usage: git daemon/)
})
