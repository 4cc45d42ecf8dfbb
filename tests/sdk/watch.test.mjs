import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { test } from 'node:test'
import { FileNotFoundError, SandboxError } from 'e2b'
import { eventually, rejection, useSandbox, withSandbox } from './helpers.mjs'

const box = useSandbox()
let made = 0

/** A fresh directory under watch; `seen` fills with 'type name' as events come. */
async function watch(opts = {}) {
  const dir = `watched-${made++}`
  await box.sandbox.files.makeDir(`${dir}/sub`)
  const seen = []
  const events = []
  const take = event => {
    seen.push(`${event.type} ${event.name}`)
    events.push(event)
  }
  const handle = await box.sandbox.files.watchDir(dir, take, opts)
  return { dir, seen, events, handle }
}

/** All of `wanted` come, in this order; others may come between. */
async function inOrder(seen, wanted) {
  await eventually(() => {
    let at = 0
    for (const event of seen) if (event === wanted[at]) at++
    return at === wanted.length
  }, `[${wanted}] among [${seen}]`)
}

test('the life of a file', async () => {
  const { dir, seen, handle } = await watch()
  await box.sandbox.files.write(`${dir}/f`, 'x')
  await inOrder(seen, ['create f', 'write f'])
  await box.sandbox.commands.run(`cd ${dir}; echo y > f; chmod 600 f; mv f g; rm g`)
  await inOrder(seen, ['create f', 'write f', 'write f', 'chmod f', 'rename f', 'create g', 'remove g'])
  await handle.stop()
})

test('only a recursive watch looks below, and into what is made later', async () => {
  const flat = await watch()
  const deep = await watch({ recursive: true })
  for (const { dir } of [flat, deep]) {
    await box.sandbox.files.write(`${dir}/sub/f`, 'x')
    await box.sandbox.commands.run(`mkdir ${dir}/new; sleep 0.1; touch ${dir}/new/f`)
  }
  await inOrder(deep.seen, ['create sub/f', 'create new', 'create new/f'])
  await inOrder(flat.seen, ['create new'])
  assert.deepEqual(flat.seen.filter(event => event.includes('/')), [])
})

test('entries come with the events on request', async () => {
  const { dir, events } = await watch({ includeEntry: true })
  await box.sandbox.files.write(`${dir}/f`, 'abc')
  const event = await eventually(() => events.find(e => e.type === 'create'), 'the event')
  assert.equal(event.entry.path, `/home/user/${dir}/f`)
  assert.equal(event.entry.type, 'file')
  const plain = await watch()
  await box.sandbox.files.write(`${plain.dir}/f`, 'abc')
  assert.equal((await eventually(() => plain.events[0], 'an event')).entry, undefined)
})

test('a stopped watch is silent, and says that it ended', async () => {
  let ended = 0
  const { dir, seen, handle } = await watch({ onExit: () => ended++ })
  await handle.stop()
  await eventually(() => ended === 1, 'its end')
  await box.sandbox.files.write(`${dir}/f`, 'x')
  await sleep(300)
  assert.deepEqual(seen, [])
})

test('its time limit ends it', async () => {
  let reason
  const { handle } = await watch({ timeoutMs: 800, onExit: error => (reason = error ?? 'quietly') })
  await eventually(() => reason, 'its end')
  await handle.stop()
})

test('two watches of one place both hear', async () => {
  const one = await watch()
  const seen = []
  const other = await box.sandbox.files.watchDir(one.dir, event => seen.push(event.name))
  await box.sandbox.files.write(`${one.dir}/f`, 'x')
  await eventually(() => seen.includes('f') && one.seen.includes('create f'), 'both')
  await other.stop()
})

test('a burst is told whole', async () => {
  const { dir, seen } = await watch()
  await box.sandbox.commands.run(`cd ${dir}; for i in $(seq 500); do : > f$i; done`)
  await eventually(() => seen.filter(event => event.startsWith('create f')).length === 500, 'all 500')
})

test('what cannot be watched is refused', async () => {
  const { files } = box.sandbox
  await rejection(() => files.watchDir('no-such-dir', () => {}), FileNotFoundError)
  await files.write('a-file', '')
  await rejection(() => files.watchDir('a-file', () => {}), SandboxError)
})

test('the end of the sandbox ends its watches', async () => {
  let ended
  await withSandbox({}, async sandbox => {
    await sandbox.files.makeDir('w')
    await sandbox.files.watchDir('w', () => {}, { onExit: error => (ended = error ?? true) })
  })
  await eventually(() => ended, 'the end of the watch')
})
