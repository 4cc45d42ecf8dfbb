// Finding sandboxes among others, and what is measured of them.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Sandbox } from 'e2b'
import { eventually } from './helpers.mjs'

const metadata = { finding: `${process.pid}-${Date.now()}` }
const made = []

before(async () => {
  for (let i = 0; i < 3; i++) made.push(await Sandbox.create('base', { metadata, timeoutMs: 120_000 }))
  await made[1].pause()
})
after(() => Promise.all(made.map(sandbox => sandbox.kill())))

async function find(query = {}, opts = {}) {
  const pages = Sandbox.list({ ...opts, query: { metadata, ...query } })
  const found = []
  while (pages.hasNext) found.push(...(await pages.nextItems()))
  return found.map(sandbox => made.findIndex(one => one.sandboxId === sandbox.sandboxId))
}

test('paused and running ones in one order', async () => {
  assert.deepEqual(await find(), [2, 1, 0])
  assert.deepEqual(await find({}, { order: 'asc' }), [0, 1, 2])
  assert.deepEqual(await find({}, { order: 'desc' }), [2, 1, 0])
  assert.deepEqual(await find({}, { order: 'asc', limit: 1 }), [0, 1, 2])
})

test('by state', async () => {
  assert.deepEqual(await find({ state: ['paused'] }), [1])
  assert.deepEqual(await find({ state: ['running'] }), [2, 0])
  assert.deepEqual(await find({ state: ['running', 'paused'] }), [2, 1, 0])
})

test('by the template, under its name and its id', async () => {
  const { templateId } = await made[0].getInfo()
  assert.deepEqual(await find({ template: 'base' }), [2, 1, 0])
  assert.deepEqual(await find({ template: templateId }), [2, 1, 0])
  assert.deepEqual(await find({ template: 'no-such-template' }), [])
})

test('by when they began', async () => {
  const { startedAt } = await made[2].getInfo()
  assert.ok((await find({ startedAfter: startedAt })).includes(2))
  assert.deepEqual(await find({ startedAfter: new Date(startedAt.getTime() + 1000) }), [])
})

test('measured every few seconds, and asked for by time', async () => {
  const [sample] = await eventually(async () => {
    const samples = await made[0].getMetrics()
    return samples.length > 0 && samples
  }, 'a first sample', { everyMs: 300 })
  assert.ok(sample.cpuCount >= 1 && sample.memTotal > 0 && sample.diskTotal > 0)
  assert.ok(sample.memUsed <= sample.memTotal && sample.diskUsed <= sample.diskTotal)
  const hour = 3_600_000
  assert.deepEqual(
    await made[0].getMetrics({ start: new Date(Date.now() - 2 * hour), end: new Date(Date.now() - hour) }),
    [],
  )
})
