import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { test } from 'node:test'
import { AuthenticationError, FileNotFoundError, FileType, InvalidArgumentError, NotFoundError } from 'e2b'
import { eventually, rejection, useSandbox } from './helpers.mjs'

const box = useSandbox()
const sha256 = bytes => createHash('sha256').update(bytes).digest('hex')

async function collect(stream) {
  const chunks = []
  for await (const chunk of stream) chunks.push(chunk)
  return Buffer.concat(chunks)
}

test('text comes back as it went', async () => {
  const { files } = box.sandbox
  const text = 'Zeile 1\n€ 😀\n\ttab "quote" \\ end'
  const info = await files.write('text/hello world.txt', text)
  assert.equal(info.path, '/home/user/text/hello world.txt')
  assert.equal(info.name, 'hello world.txt')
  assert.equal(await files.read('text/hello world.txt'), text)
  assert.equal(await files.read('/home/user/text/hello world.txt'), text)
})

test('bytes, blobs and streams, both ways', async () => {
  const { files } = box.sandbox
  const bytes = randomBytes(200_003)
  const exact = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length)
  await files.write('bin/array', exact)
  await files.write('bin/blob', new Blob([bytes]))
  await files.write('bin/stream', new Blob([bytes]).stream())
  for (const name of ['bin/array', 'bin/blob', 'bin/stream']) {
    assert.equal(sha256(await files.read(name, { format: 'bytes' })), sha256(bytes), name)
  }
  const blob = await files.read('bin/array', { format: 'blob' })
  assert.equal(sha256(Buffer.from(await blob.arrayBuffer())), sha256(bytes))
  assert.equal(sha256(await collect(await files.read('bin/array', { format: 'stream' }))), sha256(bytes))
})

test('an empty file in every format', async () => {
  const { files } = box.sandbox
  await files.write('empty', '')
  assert.equal(await files.read('empty'), '')
  assert.equal((await files.read('empty', { format: 'bytes' })).length, 0)
  assert.equal((await files.read('empty', { format: 'blob' })).size, 0)
  assert.equal((await collect(await files.read('empty', { format: 'stream' }))).length, 0)
})

test('32 MiB, whole', async () => {
  const { files, commands } = box.sandbox
  const bytes = randomBytes(32 << 20)
  await files.write('big', new Blob([bytes]).stream())
  assert.equal((await commands.run('sha256sum big')).stdout.split(' ')[0], sha256(bytes))
  assert.equal(sha256(await files.read('big', { format: 'bytes' })), sha256(bytes))
  await files.remove('big')
})

test('several files in one request, in order', async () => {
  const { files } = box.sandbox
  const entries = Array.from({ length: 12 }, (_, i) => ({ path: `many/d${i % 3}/f${i}`, data: `content ${i}` }))
  const infos = await files.write(entries)
  assert.deepEqual(infos.map(i => i.path), entries.map(e => `/home/user/${e.path}`))
  for (const { path, data } of entries) assert.equal(await files.read(path), data)
})

test('overwriting leaves nothing of the old', async () => {
  const { files } = box.sandbox
  await files.write('over', 'a long first version')
  await files.write('over', 'short')
  assert.equal(await files.read('over'), 'short')
})

test('gzip on the way', async () => {
  const { files } = box.sandbox
  const text = 'compressible '.repeat(10_000)
  await files.write('zipped', text, { gzip: true })
  assert.equal(await files.read('zipped'), text)
  assert.equal(await files.read('zipped', { gzip: true }), text)
})

test('owner, mode and size are those of an ordinary file', async () => {
  const { files } = box.sandbox
  await files.write('info/file', 'twelve bytes')
  const file = await files.getInfo('info/file')
  assert.deepEqual(
    [file.name, file.type, file.path, file.size, file.mode, file.permissions, file.owner, file.group],
    ['file', FileType.FILE, '/home/user/info/file', 12, 0o644, '-rw-r--r--', 'user', 'user'],
  )
  assert.ok(Math.abs(file.modifiedTime.getTime() - Date.now()) < 60_000)
  const dir = await files.getInfo('info')
  assert.deepEqual([dir.type, dir.permissions, dir.owner], [FileType.DIR, 'drwxr-xr-x', 'user'])
})

test('a place that only root could make still belongs to the user', async () => {
  const { files } = box.sandbox
  await files.write('/srv/deep/file', 'x')
  assert.equal((await files.getInfo('/srv/deep/file')).owner, 'user')
  assert.equal((await files.getInfo('/srv/deep')).owner, 'user')
  await files.write('r', 'x', { user: 'root' })
  assert.equal((await files.getInfo('/root/r')).owner, 'root')
})

test('symbolic links tell where they lead', async () => {
  const { files, commands } = box.sandbox
  await commands.run('mkdir -p links && echo x >links/target && ln -s target links/link')
  const info = await files.getInfo('links/link')
  assert.equal(info.symlinkTarget, '/home/user/links/target')
  assert.equal(await files.read('links/link'), 'x\n')
})

test('listing: order, depth, types', async () => {
  const { files } = box.sandbox
  await files.write([
    { path: 'tree/b.txt', data: '' },
    { path: 'tree/a/y', data: '' },
    { path: 'tree/a/x/deep', data: '' },
  ])
  const names = async depth => (await files.list('tree', { depth })).map(e => e.path.replace('/home/user/tree/', ''))
  assert.deepEqual(await names(1), ['a', 'b.txt'])
  assert.deepEqual(await names(2), ['a', 'a/x', 'a/y', 'b.txt'])
  assert.deepEqual(await names(3), ['a', 'a/x', 'a/x/deep', 'a/y', 'b.txt'])
  assert.deepEqual((await files.list('tree')).map(e => e.type), [FileType.DIR, FileType.FILE])
  await rejection(() => files.list('tree/b.txt'), InvalidArgumentError)
  await rejection(() => files.list('no-such-dir'), FileNotFoundError)
})

test('directories are made once', async () => {
  const { files } = box.sandbox
  assert.equal(await files.makeDir('made/with/parents'), true)
  assert.equal(await files.makeDir('made/with/parents'), false)
  await files.write('made/file', '')
  await rejection(() => files.makeDir('made/file'), InvalidArgumentError)
})

test('renaming moves, makes parents and overwrites', async () => {
  const { files } = box.sandbox
  await files.write('move/from', 'moved')
  await files.write('move/other/to', 'old')
  assert.equal((await files.rename('move/from', 'move/other/to')).path, '/home/user/move/other/to')
  assert.equal(await files.read('move/other/to'), 'moved')
  assert.equal(await files.exists('move/from'), false)
  await files.rename('move/other', 'move/new/parent/dir')
  assert.equal(await files.read('move/new/parent/dir/to'), 'moved')
  await rejection(() => files.rename('move/nothing', 'move/x'), FileNotFoundError)
})

test('removing takes whole trees and forgives what is missing', async () => {
  const { files } = box.sandbox
  await files.write('gone/a/b', 'x')
  await files.remove('gone')
  assert.equal(await files.exists('gone'), false)
  await files.remove('gone')
})

test('what is not there is FileNotFoundError in every format', async () => {
  const { files } = box.sandbox
  for (const format of ['text', 'bytes', 'stream']) {
    await rejection(() => files.read('nothing/here', { format }), FileNotFoundError, /does not exist/)
  }
  await rejection(() => files.getInfo('nothing/here'), NotFoundError)
  assert.equal(await files.exists('nothing/here'), false)
})

test('a directory is no file', async () => {
  const { files } = box.sandbox
  await files.makeDir('only-dir')
  await rejection(() => files.read('only-dir'), InvalidArgumentError, /is a directory/)
  await rejection(() => files.write('only-dir', 'x'), InvalidArgumentError)
})

test('an unknown user is refused', async () => {
  await rejection(() => box.sandbox.files.read('x', { user: 'nobody-here' }), AuthenticationError)
  await rejection(() => box.sandbox.files.write('x', 'y', { user: 'nobody-here' }), AuthenticationError)
})

test('files without a size of their own are read to their end', async () => {
  assert.match(await box.sandbox.files.read('/proc/sys/kernel/random/boot_id'), /^[0-9a-f-]{36}\n$/)
})

test('awkward names', async () => {
  const { files, commands } = box.sandbox
  for (const name of ['a&b=c?d#e', 'percent%20', 'quote"d', "apo'strophe", 'plus+', 'ünï😀', '-dash', ' lead']) {
    await files.write(`odd/${name}`, name)
    assert.equal(await files.read(`odd/${name}`), name, name)
  }
  assert.equal((await commands.run('ls odd | wc -l')).stdout.trim(), '8')
})

test('watching a directory tells what happens in it', async () => {
  const { files } = box.sandbox
  await files.makeDir('watched/inner')
  const seen = []
  const handle = await files.watchDir('watched', event => seen.push(`${event.type} ${event.name}`), { recursive: true })
  await files.write('watched/new', 'x')
  await files.write('watched/inner/deep', 'x')
  await files.remove('watched/new')
  for (const event of ['create new', 'write new', 'create inner/deep', 'remove new']) {
    await eventually(() => seen.includes(event), `the event '${event}' among [${seen}]`)
  }
  await handle.stop()
  await rejection(() => files.watchDir('no-such-dir', () => {}), FileNotFoundError)
})

test('metadata travels with a file', async () => {
  const { files } = box.sandbox
  await files.write('tagged', 'x', { metadata: { origin: 'test', colour: 'blue' } })
  assert.deepEqual((await files.getInfo('tagged')).metadata, { origin: 'test', colour: 'blue' })
  await files.rename('tagged', 'renamed')
  assert.deepEqual((await files.getInfo('renamed')).metadata, { origin: 'test', colour: 'blue' })
  await files.write('renamed', 'y')
  assert.equal((await files.getInfo('renamed')).metadata, undefined)
})
