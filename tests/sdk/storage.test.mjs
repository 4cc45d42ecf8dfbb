// Volumes, secrets and template names, as the SDK's users meet them.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { Sandbox, SandboxError, Secret, SecretNotFoundError, Template, Volume, VolumeError, VolumeFileType, VolumeNotFoundError, VolumePathNotFoundError } from 'e2b'
import { rejection } from './helpers.mjs'

async function withVolume(work) {
  const volume = await Volume.create(`test-${randomUUID()}`)
  try {
    return await work(volume)
  } finally {
    await Volume.destroy(volume.volumeId)
  }
}

test('a volume is made, listed, found again and gone after it was destroyed', async () => {
  const name = `test-${randomUUID()}`
  const volume = await Volume.create(name)
  assert.ok((await Volume.list()).some(v => v.volumeId === volume.volumeId && v.name === name))
  await rejection(() => Volume.create(name), VolumeError, /exists already/)
  const again = await Volume.connect(volume.volumeId)
  await again.writeFile('/kept.txt', 'kept')
  assert.equal(await volume.readFile('/kept.txt'), 'kept')
  assert.equal(await Volume.destroy(volume.volumeId), true)
  assert.equal(await Volume.destroy(volume.volumeId), false)
  await rejection(() => Volume.getInfo(volume.volumeId), VolumeNotFoundError)
})

test('files are written and read in every form', () =>
  withVolume(async volume => {
    const bytes = new Uint8Array(3_000_000).map((_, i) => (i * 7919) & 255)
    const stat = await volume.writeFile('/text.txt', 'Grüße')
    assert.equal(stat.name, 'text.txt')
    assert.equal(stat.type, VolumeFileType.FILE)
    assert.equal(stat.size, 7)
    assert.equal(stat.mode, 0o666)
    assert.ok(Math.abs(stat.mtime - Date.now()) < 60_000)
    assert.equal(await volume.readFile('/text.txt'), 'Grüße')
    await volume.writeFile('/bytes', bytes.buffer)
    assert.deepEqual(await volume.readFile('/bytes', { format: 'bytes' }), bytes)
    await volume.writeFile('/stream', new Blob([bytes]).stream())
    const parts = []
    for await (const part of await volume.readFile('/stream', { format: 'stream' })) parts.push(part)
    assert.deepEqual(new Uint8Array(Buffer.concat(parts)), bytes)
    await volume.writeFile('/empty', '')
    assert.equal(await volume.readFile('/empty'), '')
  }))

test('an existing file is replaced only when that is asked for', () =>
  withVolume(async volume => {
    await volume.writeFile('/f', 'one', { mode: 0o600 })
    await rejection(() => volume.writeFile('/f', 'two'), VolumeError, /already exists/)
    const stat = await volume.writeFile('/f', 'two', { force: true })
    assert.equal(stat.mode, 0o600)
    assert.equal(await volume.readFile('/f'), 'two')
    await rejection(() => volume.writeFile('/no/such/f', 'x'), VolumePathNotFoundError)
    assert.equal((await volume.writeFile('/g', 'x', { uid: 1000, gid: 1001 })).gid, 1001)
    await rejection(() => volume.writeFile('/h', 'x', { uid: 70000 }), VolumeError, /uid must be/)
  }))

test('directories are made, listed by depth, changed and removed', () =>
  withVolume(async volume => {
    await rejection(() => volume.makeDir('/a/b'), VolumePathNotFoundError)
    assert.equal((await volume.makeDir('/a/b', { force: true, mode: 0o700 })).mode, 0o700)
    await rejection(() => volume.makeDir('/a/b'), VolumeError, /already exists/)
    await volume.writeFile('/a/b/c', 'x')
    assert.deepEqual((await volume.list('/')).map(e => e.path), ['/a'])
    assert.deepEqual((await volume.list('/', { depth: 3 })).map(e => e.path), ['/a', '/a/b', '/a/b/c'])
    assert.equal((await volume.updateMetadata('/a/b/c', { mode: 0o640 })).mode, 0o640)
    assert.equal(await volume.exists('/a/b/c'), true)
    await volume.remove('/a')
    assert.equal(await volume.exists('/a/b/c'), false)
    await rejection(() => volume.remove('/a'), VolumePathNotFoundError)
    await rejection(() => volume.list('/a'), VolumePathNotFoundError)
  }))

test('a volume is mounted into sandboxes, which share it', () =>
  withVolume(async volume => {
    const one = await Sandbox.create({ volumeMounts: { '/mnt/data': volume } })
    const two = await Sandbox.create({ volumeMounts: { '/home/user/data': volume.name } })
    try {
      await one.files.write('/mnt/data/f.txt', 'from one')
      assert.equal(await two.files.read('/home/user/data/f.txt'), 'from one')
      assert.equal(await volume.readFile('/f.txt'), 'from one')
      await volume.writeFile('/g.txt', 'from outside')
      assert.equal((await two.commands.run('cat data/g.txt && echo more >> data/g.txt')).stdout, 'from outside')
      assert.equal(await one.files.read('/mnt/data/g.txt'), 'from outsidemore\n')
      const info = await one.getInfo()
      assert.deepEqual(info.volumeMounts, [{ name: volume.name, path: '/mnt/data' }])
    } finally {
      await Promise.all([one.kill(), two.kill()])
    }
    await rejection(() => Sandbox.create({ volumeMounts: { '/x': 'no-such-volume' } }), SandboxError, /volume 'no-such-volume' not found/)
  }))

test("one volume's token does not open another", () =>
  withVolume(one =>
    withVolume(async other => {
      await other.writeFile('/f', 'x')
      const mixed = new Volume(other.volumeId, other.name, one.token)
      const error = await rejection(() => mixed.readFile('/f'), Error)
      assert.ok(!(error instanceof VolumePathNotFoundError), error.message)
    }),
  ))

test('a secret has versions and is never shown', async () => {
  const name = `Test-${randomUUID()}`
  const made = await Secret.create(name, 'first', { metadata: { owner: 'test' } })
  try {
    assert.equal(made.name, name.toLowerCase())
    assert.equal(made.version, 1)
    assert.match(made.secretId, /^sec_/)
    assert.equal((await Secret.update(name, 'second')).version, 2)
    const info = await Secret.getInfo(made.secretId)
    assert.deepEqual(info.metadata, { owner: 'test' })
    assert.ok(!JSON.stringify(info).includes('second'))
    await assert.rejects(Secret.create(name, 'again'))
    const found = []
    const pages = Secret.list({ limit: 1 })
    while (pages.hasNext) found.push(...(await pages.nextItems()))
    assert.ok(found.some(s => s.secretId === made.secretId))
  } finally {
    assert.equal(await Secret.destroy(made.secretId), true)
  }
  assert.equal(await Secret.exists(name), false)
  assert.equal(await Secret.destroy(name), false)
  await rejection(() => Secret.getInfo(name), SecretNotFoundError)
})

test('a template is found by its name and its tags', async () => {
  const tag = `t-${process.pid}`
  assert.equal(await Template.exists('base'), true)
  assert.equal(await Template.exists(`nope-${randomUUID()}`), false)
  const given = await Template.assignTags('base', [tag])
  assert.deepEqual(given.tags, [tag])
  assert.deepEqual((await Template.getTags('base')).map(t => t.tag).filter(t => t === tag || t === 'default'), ['default', tag])
  assert.equal(await Template.exists(`base:${tag}`), true)
  await Template.removeTags('base', tag)
  assert.equal(await Template.exists(`base:${tag}`), false)
  await assert.rejects(Template.removeTags('base', 'default'))
})
