// Shared by the SDK tests. They use the published `e2b` package as any program would: configured by
// the environment alone (E2B_API_KEY, E2B_API_URL, E2B_SANDBOX_URL, E2B_DOMAIN).
import assert from 'node:assert/strict'
import http from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { after, before } from 'node:test'
import { Sandbox } from 'e2b'

/** One sandbox for all tests of a file, prepared by `prepare`; `box.sandbox` is it. */
export function useSandbox(opts = {}, prepare = async () => {}) {
  const box = {}
  before(async () => {
    box.sandbox = await Sandbox.create('base', { timeoutMs: 300_000, ...opts })
    await prepare(box.sandbox)
  })
  after(async () => {
    await box.sandbox?.kill()
  })
  return box
}

/** Makes a sandbox for one test and removes it, whatever the test does. */
export async function withSandbox(opts, work) {
  const sandbox = await Sandbox.create('base', { timeoutMs: 120_000, ...opts })
  try {
    return await work(sandbox)
  } finally {
    await sandbox.kill().catch(() => {})
  }
}

/** Waits until `check` gives something true, and returns that. */
export async function eventually(check, what, { timeoutMs = 60_000, everyMs = 50 } = {}) {
  const deadline = Date.now() + timeoutMs
  for (;;) {
    const value = await check()
    if (value) return value
    assert.ok(Date.now() < deadline, `${what}: not within ${timeoutMs} ms`)
    await sleep(everyMs)
  }
}

/** A plain HTTP request to the server's port, with any Host: what a browser behind wildcard DNS sends. */
export function request(path, { method = 'GET', headers = {}, body } = {}) {
  const { hostname, port } = new URL(process.env.E2B_SANDBOX_URL)
  return new Promise((resolve, reject) => {
    const outgoing = http.request({ hostname, port, path, method, headers, agent: false }, incoming => {
      const chunks = []
      incoming.on('data', chunk => chunks.push(chunk))
      incoming.on('error', reject)
      incoming.on('end', () =>
        resolve({
          status: incoming.statusCode,
          headers: incoming.headers,
          body: Buffer.concat(chunks),
          text: Buffer.concat(chunks).toString(),
        }),
      )
    })
    outgoing.on('error', reject)
    outgoing.end(body)
  })
}

/** Runs `work`, which must reject, and returns the error after checking its class. */
export async function rejection(work, type, pattern) {
  let error
  try {
    await work()
  } catch (caught) {
    error = caught
  }
  assert.ok(error, `expected ${type.name}, but nothing was thrown`)
  assert.ok(error instanceof type, `expected ${type.name}, got ${error?.constructor?.name}: ${error?.message}`)
  if (pattern) assert.match(error.message, pattern)
  return error
}
