import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { test } from 'node:test'
import { Sandbox, SandboxNotFoundError } from 'e2b'
import { eventually, rejection, request, withSandbox } from './helpers.mjs'

const bootId = async sandbox => (await sandbox.files.read('/proc/sys/kernel/random/boot_id')).trim()
const server = 'python3 -c "import http.server as h; h.HTTPServer((\'127.0.0.1\', 8000), h.SimpleHTTPRequestHandler).serve_forever()"'

test('a pause keeps processes, memory, files and environment', async () => {
  await withSandbox({ envs: { KEPT: 'yes' } }, async sandbox => {
    const counter = await sandbox.commands.run('i=0; while sleep 0.05; do i=$((i+1)); echo $i > /tmp/j; mv /tmp/j /tmp/i; done', {
      background: true,
    })
    await sandbox.files.write('kept.txt', 'still here')
    await eventually(() => sandbox.files.exists('/tmp/i'), 'the counter')
    const before = await bootId(sandbox)
    assert.equal(await sandbox.pause(), true)
    assert.equal(await sandbox.isRunning(), false)
    assert.equal(await sandbox.pause(), false)
    assert.equal((await Sandbox.getInfo(sandbox.sandboxId)).state, 'paused')
    const same = await Sandbox.connect(sandbox.sandboxId)
    const at = Number(await same.files.read('/tmp/i'))
    assert.equal(await sandbox.isRunning(), true)
    assert.equal(await bootId(sandbox), before)
    assert.equal(await sandbox.files.read('kept.txt'), 'still here')
    assert.equal((await sandbox.commands.run('echo $KEPT')).stdout, 'yes\n')
    assert.ok((await sandbox.commands.list()).some(p => p.pid === counter.pid))
    await eventually(async () => Number(await same.files.read('/tmp/i')) > at, 'the counter to go on')
  })
})

test('nothing runs while it is paused', async () => {
  await withSandbox({}, async sandbox => {
    await sandbox.commands.run('while sleep 0.02; do date +%s%N >> /tmp/ticks; done', { background: true })
    await eventually(() => sandbox.files.exists('/tmp/ticks'), 'the first tick')
    await sandbox.pause()
    const paused = Date.now()
    await sleep(1500)
    const resumed = Date.now()
    await sandbox.connect()
    const ticks = await eventually(async () => {
      const text = await sandbox.files.read('/tmp/ticks')
      const times = text.trim().split('\n').map(t => Number(t) / 1e6)
      return times.some(t => t > resumed) && times
    }, 'ticks after it was resumed')
    assert.deepEqual(ticks.filter(t => t > paused + 200 && t < resumed - 200), [])
  })
})

test('a pause to disk comes back as a fresh boot with the same files and token', async () => {
  await withSandbox({ envs: { KEPT: 'yes' } }, async sandbox => {
    await sandbox.files.write('/srv/kept.txt', 'on disk', { user: 'root' })
    await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
    const before = await bootId(sandbox)
    assert.equal(await sandbox.pause({ keepMemory: false }), true)
    assert.equal(await sandbox.isRunning(), false)
    await sandbox.connect()
    assert.equal(await sandbox.isRunning(), true)
    assert.equal(await sandbox.files.read('/srv/kept.txt'), 'on disk')
    assert.equal((await sandbox.commands.run('echo $KEPT')).stdout, 'yes\n')
    assert.deepEqual(await sandbox.commands.list(), [])
    assert.notEqual(await bootId(sandbox), before)
  })
})

test('a paused sandbox is listed as paused and can be killed', async () => {
  const metadata = { paused: `${process.pid}-${Date.now()}` }
  const sandbox = await Sandbox.create('base', { metadata, timeoutMs: 60_000 })
  await sandbox.pause()
  const list = async state => (await Sandbox.list({ query: { metadata, state } }).nextItems()).map(s => s.state)
  assert.deepEqual(await list(['paused']), ['paused'])
  assert.deepEqual(await list(['running']), [])
  assert.equal(await sandbox.kill(), true)
  assert.deepEqual(await list(['running', 'paused']), [])
  await rejection(() => sandbox.connect(), SandboxNotFoundError)
})

test('its time pauses it when it asked for that, and connect brings it back', async () => {
  await withSandbox({ timeoutMs: 2_000, lifecycle: { onTimeout: 'pause' } }, async sandbox => {
    await eventually(async () => (await sandbox.getInfo()).state === 'paused', 'the pause')
    await sandbox.connect({ timeoutMs: 60_000 })
    assert.equal((await sandbox.commands.run('echo back')).stdout, 'back\n')
  })
})

test('traffic wakes one that asked for that', async () => {
  const lifecycle = { onTimeout: 'pause', autoResume: true }
  await withSandbox({ timeoutMs: 60_000, lifecycle }, async sandbox => {
    await sandbox.commands.run(server, { background: true, timeoutMs: 0 })
    const get = () => request('/', { headers: { Host: `8000-${sandbox.sandboxId}.localhost` } })
    await eventually(async () => (await get()).status === 200, 'the server inside')
    await sandbox.pause()
    assert.equal((await get()).status, 200)
    assert.equal((await sandbox.getInfo()).state, 'running')
  })
})

test('without that, traffic to a paused one is told that there is none', async () => {
  await withSandbox({}, async sandbox => {
    await sandbox.pause()
    const { status, text } = await request('/', { headers: { Host: `8000-${sandbox.sandboxId}.localhost` } })
    assert.equal(status, 502)
    assert.equal(JSON.parse(text).message, 'The sandbox was not found')
  })
})

test('a private sandbox wants its traffic token', async () => {
  await withSandbox({ network: { allowPublicTraffic: false } }, async sandbox => {
    assert.ok(sandbox.trafficAccessToken)
    await sandbox.commands.run(server, { background: true, timeoutMs: 0 })
    const get = headers => request('/', { headers: { Host: `8000-${sandbox.sandboxId}.localhost`, ...headers } })
    assert.equal((await get({})).status, 403)
    assert.equal((await get({ 'e2b-traffic-access-token': 'wrong' })).status, 403)
    const right = { 'e2b-traffic-access-token': sandbox.trafficAccessToken }
    await eventually(async () => (await get(right)).status === 200, 'the server inside')
  })
})
