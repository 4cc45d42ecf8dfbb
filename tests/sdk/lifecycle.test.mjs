import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { test } from 'node:test'
import { AuthenticationError, Sandbox, SandboxError, SandboxNotFoundError } from 'e2b'
import { eventually, rejection, withSandbox } from './helpers.mjs'

async function all(paginator) {
  const found = []
  while (paginator.hasNext) found.push(...(await paginator.nextItems()))
  return found
}

test('nothing but a name gives a secure sandbox for five minutes', async () => {
  const sandbox = await Sandbox.create()
  try {
    const info = await sandbox.getInfo()
    assert.match(sandbox.sandboxId, /^i[a-z0-9]{20}$/)
    assert.equal(info.state, 'running')
    assert.equal(info.name, 'base')
    assert.ok(info.cpuCount >= 1 && info.memoryMB >= 128)
    assert.equal(Math.round((info.endAt - info.startedAt) / 1000), 300)
    assert.equal(await sandbox.isRunning(), true)
  } finally {
    assert.equal(await sandbox.kill(), true)
  }
  assert.equal(await sandbox.isRunning(), false)
  assert.equal(await sandbox.kill(), false)
})

test('metadata comes back and finds its sandbox', async () => {
  const metadata = { purpose: `test ${process.pid} a&b=c`, other: 'ü' }
  await withSandbox({ metadata }, async sandbox => {
    const found = await all(Sandbox.list({ query: { metadata } }))
    assert.deepEqual(found.map(s => s.sandboxId), [sandbox.sandboxId])
    assert.deepEqual(found[0].metadata, metadata)
    assert.deepEqual((await sandbox.getInfo()).metadata, metadata)
    assert.deepEqual(await all(Sandbox.list({ query: { metadata: { purpose: 'another' } } })), [])
  })
})

test('the list is paged, newest first', async () => {
  const metadata = { pages: `${process.pid}-${Date.now()}` }
  const made = []
  try {
    for (let i = 0; i < 3; i++) made.push(await Sandbox.create('base', { metadata, timeoutMs: 60_000 }))
    const ids = made.map(s => s.sandboxId).reverse()
    const pages = Sandbox.list({ limit: 1, query: { metadata } })
    for (const id of ids) assert.deepEqual((await pages.nextItems()).map(s => s.sandboxId), [id])
    assert.equal(pages.hasNext, false)
  } finally {
    await Promise.all(made.map(s => s.kill()))
  }
  assert.deepEqual(await all(Sandbox.list({ query: { metadata } })), [])
})

test('its time ends it', async () => {
  await withSandbox({ timeoutMs: 5_000 }, async sandbox => {
    assert.equal(await sandbox.isRunning(), true)
    await eventually(async () => !(await sandbox.isRunning()), 'the end of the sandbox')
    await rejection(() => sandbox.getInfo(), SandboxNotFoundError)
  })
})

test('setTimeout shortens and lengthens', async () => {
  await withSandbox({}, async sandbox => {
    await sandbox.setTimeout(3_000)
    await sandbox.setTimeout(60_000)
    await sleep(4_000)
    assert.equal(await sandbox.isRunning(), true)
    await sandbox.setTimeout(1_000)
    await eventually(async () => !(await sandbox.isRunning()), 'the end of the sandbox')
  })
})

test('connecting reaches the same sandbox and never shortens its life', async () => {
  await withSandbox({}, async sandbox => {
    await sandbox.files.write('mark', 'here')
    const before = (await sandbox.getInfo()).endAt
    const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 10_000 })
    assert.equal(await again.files.read('mark'), 'here')
    assert.equal((await again.getInfo()).endAt.getTime(), before.getTime())
    await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 600_000 })
    assert.ok((await sandbox.getInfo()).endAt > before)
  })
})

test('sandboxes see nothing of each other', async () => {
  await withSandbox({}, async one => {
    await withSandbox({}, async two => {
      await one.files.write('/tmp/secret', 'of one')
      assert.equal(await two.files.exists('/tmp/secret'), false)
      await one.commands.run('sleep 77', { background: true })
      const { stdout } = await two.commands.run('ps -eo args; hostname; id -u')
      assert.doesNotMatch(stdout, /sleep 77/)
      assert.notEqual(one.sandboxId, two.sandboxId)
    })
  })
})

test('sixteen at once', async () => {
  const made = await Promise.all(Array.from({ length: 16 }, () => Sandbox.create('base', { timeoutMs: 60_000 })))
  try {
    const outputs = await Promise.all(made.map((s, i) => s.commands.run(`echo ${i}`)))
    assert.deepEqual(outputs.map(o => o.stdout), made.map((_, i) => `${i}\n`))
    assert.equal(new Set(made.map(s => s.sandboxId)).size, 16)
  } finally {
    assert.deepEqual(await Promise.all(made.map(s => s.kill())), made.map(() => true))
  }
})

test('a wrong key is told so', async () => {
  const apiKey = `e2b_${'0'.repeat(40)}`
  await rejection(() => Sandbox.create('base', { apiKey }), AuthenticationError)
  await rejection(() => Sandbox.create('base', { apiKey: 'rubbish' }), AuthenticationError)
})

test('an unknown template is named', async () => {
  await rejection(() => Sandbox.create('no-such-template'), SandboxError, /404: .*no-such-template/)
})

test('unknown ids', async () => {
  const id = 'nonexistingsandbox'
  assert.equal(await Sandbox.kill(id), false)
  await rejection(() => Sandbox.connect(id), SandboxNotFoundError)
  await rejection(() => Sandbox.getInfo(id), SandboxNotFoundError)
  await rejection(() => Sandbox.setTimeout(id, 1000), SandboxNotFoundError)
})
