import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sandbox, SandboxNotFoundError } from 'e2b'
import { eventually, rejection, withSandbox } from './helpers.mjs'

const all = async paginator => {
  const found = []
  while (paginator.hasNext) found.push(...(await paginator.nextItems()))
  return found.map(s => s.snapshotId)
}

test('a snapshot is a disk to start from, and its source runs on', async () => {
  await withSandbox({}, async sandbox => {
    const ticking = await sandbox.commands.run('while sleep 0.02; do echo tick; done', { background: true, timeoutMs: 0 })
    await sandbox.files.write('state.txt', 'at the snapshot')
    const snapshot = await sandbox.createSnapshot()
    try {
      await sandbox.files.write('state.txt', 'later')
      const seen = ticking.stdout.length
      await eventually(() => ticking.stdout.length > seen, 'the stream to go on')
      assert.ok((await all(Sandbox.listSnapshots())).includes(snapshot.snapshotId))
      assert.deepEqual(await all(sandbox.listSnapshots()), [snapshot.snapshotId])
      const [one, two] = await Promise.all([1, 2].map(() => Sandbox.create(snapshot.snapshotId, { timeoutMs: 60_000 })))
      try {
        assert.equal(await one.files.read('state.txt'), 'at the snapshot')
        await one.files.write('state.txt', 'one')
        assert.equal(await two.files.read('state.txt'), 'at the snapshot')
        assert.equal(await sandbox.files.read('state.txt'), 'later')
        assert.deepEqual(await one.commands.list(), [])
      } finally {
        await Promise.all([one.kill(), two.kill()])
      }
    } finally {
      assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
    }
    assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false)
    await rejection(() => Sandbox.create(snapshot.snapshotId), Error, /not found/)
  })
})

test('a named snapshot is found by its name, and the same name replaces it', async () => {
  const name = `snap-${process.pid}-${Date.now()}`
  await withSandbox({}, async sandbox => {
    await sandbox.files.write('n.txt', '1')
    const first = await sandbox.createSnapshot({ name })
    await sandbox.files.write('n.txt', '2')
    const second = await sandbox.createSnapshot({ name })
    try {
      assert.ok(second.names.some(n => n.includes(name)))
      assert.deepEqual(await all(Sandbox.listSnapshots({ name })), [second.snapshotId])
      assert.deepEqual(await all(Sandbox.listSnapshots({ name: `${name}-not` })), [])
      const made = await Sandbox.create(name, { timeoutMs: 60_000 })
      assert.equal(await made.files.read('n.txt'), '2')
      await made.kill()
    } finally {
      await Sandbox.deleteSnapshot(first.snapshotId)
      await Sandbox.deleteSnapshot(second.snapshotId)
    }
  })
})

test('forks share the files of the moment and nothing afterwards', async () => {
  await withSandbox({ envs: { KEPT: 'yes' } }, async sandbox => {
    await sandbox.files.write('state.txt', 'before')
    const forks = await sandbox.fork({ count: 3, timeoutMs: 60_000 })
    try {
      assert.equal(new Set([sandbox.sandboxId, ...forks.map(f => f.sandboxId)]).size, 4)
      for (const fork of forks) assert.equal(await fork.files.read('state.txt'), 'before')
      await forks[0].files.write('state.txt', 'changed')
      assert.equal(await forks[1].files.read('state.txt'), 'before')
      assert.equal(await sandbox.files.read('state.txt'), 'before')
      assert.equal((await forks[2].commands.run('echo $KEPT')).stdout, 'yes\n')
      const ids = await Promise.all([sandbox, ...forks].map(s => s.files.read('/proc/sys/kernel/random/uuid')))
      assert.equal(new Set(ids).size, 4)
    } finally {
      await Promise.all(forks.map(f => f.kill()))
    }
    assert.equal(await sandbox.isRunning(), true)
  })
  await rejection(() => Sandbox.fork('inothereatall00000000'), SandboxNotFoundError)
})
