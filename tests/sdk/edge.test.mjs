import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import http from 'node:http'
import { test } from 'node:test'
import { SandboxNotFoundError } from 'e2b'
import { eventually, rejection, request, useSandbox, withSandbox } from './helpers.mjs'

const PORT = 8000

// Answers with what it saw of the request; /slow drips, /upgrade speaks something else than HTTP.
const SERVER = `
const http = require('http')
const server = http.createServer((q, s) => {
  if (q.url === '/slow') {
    let n = 0
    const timer = setInterval(() => (n < 5 ? s.write('drip ' + n++ + '\\n') : (clearInterval(timer), s.end())), 400)
    return
  }
  const hash = require('crypto').createHash('sha256')
  let size = 0
  q.on('data', d => { hash.update(d); size += d.length })
  q.on('end', () => {
    s.setHeader('x-answer', 'yes')
    s.end(JSON.stringify({ method: q.method, url: q.url, host: q.headers.host, size, sha256: hash.digest('hex'),
      custom: q.headers['x-custom'] }))
  })
})
server.on('upgrade', (q, socket) => {
  socket.write('HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: shout\\r\\nConnection: Upgrade\\r\\n\\r\\n')
  socket.on('data', d => socket.write(d.toString().toUpperCase()))
})
server.listen(Number(process.argv[2]), process.argv[3])
`

const byHost = (sandbox, port) => ({ Host: sandbox.getHost(port) })
const byHeaders = (sandbox, port) => ({ 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': String(port) })
const WAYS = { 'by host name': byHost, 'by headers': byHeaders }

const box = useSandbox({}, async sandbox => {
  await sandbox.files.write('server.js', SERVER)
  for (const [port, address] of [[PORT, '127.0.0.1'], [PORT + 1, '0.0.0.0']]) {
    await sandbox.commands.run(`node server.js ${port} ${address}`, { background: true, timeoutMs: 0 })
    await eventually(
      async () => (await request('/', { headers: byHost(sandbox, port) })).status === 200,
      `the server on ${port}`,
    )
  }
})

for (const [way, address] of Object.entries(WAYS)) {
  test(`${way}: a server on loopback and one on every address`, async () => {
    for (const port of [PORT, PORT + 1]) {
      const answer = await request('/some/path?q=%20x', { headers: { ...address(box.sandbox, port), 'X-Custom': 'value' } })
      assert.equal(answer.status, 200)
      assert.equal(answer.headers['x-answer'], 'yes')
      const seen = JSON.parse(answer.text)
      assert.equal(seen.url, '/some/path?q=%20x')
      assert.equal(seen.custom, 'value')
    }
  })

  test(`${way}: a large body is passed whole`, async () => {
    const body = randomBytes(5 << 20)
    const answer = await request('/upload', { method: 'POST', headers: address(box.sandbox, PORT), body })
    const seen = JSON.parse(answer.text)
    assert.deepEqual(
      [seen.method, seen.size, seen.sha256],
      ['POST', body.length, createHash('sha256').update(body).digest('hex')],
    )
  })

  test(`${way}: a port nobody listens on`, async () => {
    const answer = await request('/', { headers: address(box.sandbox, 9) })
    assert.equal(answer.status, 502)
    assert.deepEqual(JSON.parse(answer.text), {
      sandboxId: box.sandbox.sandboxId,
      message: 'The sandbox is running but port is not open',
      port: 9,
      code: 502,
    })
  })
}

test('a slow answer is passed on as it comes', async () => {
  const { hostname, port } = new URL(process.env.E2B_SANDBOX_URL)
  const times = await new Promise((resolve, reject) => {
    const got = []
    http
      .get({ hostname, port, path: '/slow', headers: byHost(box.sandbox, PORT), agent: false }, incoming => {
        incoming.on('data', () => got.push(Date.now()))
        incoming.on('end', () => resolve(got))
        incoming.on('error', reject)
      })
      .on('error', reject)
  })
  assert.ok(times.length >= 3, `${times.length} pieces`)
  assert.ok(times.at(-1) - times[0] > 250, `all within ${times.at(-1) - times[0]} ms`)
})

test('an upgraded connection carries anything', async () => {
  const { hostname, port } = new URL(process.env.E2B_SANDBOX_URL)
  const answer = await new Promise((resolve, reject) => {
    const outgoing = http.request({
      hostname,
      port,
      headers: { ...byHost(box.sandbox, PORT), Connection: 'Upgrade', Upgrade: 'shout' },
      agent: false,
    })
    outgoing.on('error', reject)
    outgoing.on('response', r => reject(new Error(`no upgrade: ${r.statusCode}`)))
    outgoing.on('upgrade', (_, socket) => {
      socket.on('error', reject)
      socket.on('data', data => {
        resolve(data.toString())
        socket.destroy()
      })
      socket.write('quiet words')
    })
    outgoing.end()
  })
  assert.equal(answer, 'QUIET WORDS')
})

test('a sandbox that is gone is 502 in the words that clients know', async () => {
  const gone = await withSandbox({}, async sandbox => sandbox)
  for (const address of Object.values(WAYS)) {
    const answer = await request('/', { headers: address(gone, PORT) })
    assert.equal(answer.status, 502)
    assert.deepEqual(JSON.parse(answer.text), {
      sandboxId: gone.sandboxId,
      message: 'The sandbox was not found',
      code: 502,
    })
  }
  assert.equal(await gone.isRunning(), false)
  await rejection(() => gone.commands.run('true'), SandboxNotFoundError)
})

test('a masked host is what the server inside sees', async () => {
  await withSandbox({ network: { maskRequestHost: 'masked.example:${PORT}' } }, async sandbox => {
    const program = `require('node:http').createServer((q, a) => a.end(q.headers.host)).listen(${PORT})`
    await sandbox.files.write('host.js', program)
    await sandbox.commands.run('node host.js', { background: true, timeoutMs: 0 })
    const answer = await eventually(async () => {
      const reply = await request('/', { headers: byHost(sandbox, PORT) })
      return reply.status === 200 && reply
    }, 'the server inside')
    assert.equal(answer.text, `masked.example:${PORT}`)
  })
})

test('half an address is refused', async () => {
  const { sandboxId } = box.sandbox
  assert.equal((await request('/', { headers: { 'E2b-Sandbox-Id': sandboxId } })).status, 400)
  const odd = await request('/', { headers: { 'E2b-Sandbox-Id': sandboxId, 'E2b-Sandbox-Port': 'x' } })
  assert.equal(odd.status, 400)
})

test("the guest's own routes are not reachable from outside", async () => {
  for (const path of ['/init', '/freeze', '/unfreeze', '/upgrade']) {
    const answer = await request(path, { method: 'POST', headers: byHeaders(box.sandbox, 49983), body: '{}' })
    assert.equal(answer.status, 404, path)
  }
})

test("without its token a sandbox's commands and files are closed", async () => {
  const headers = byHeaders(box.sandbox, 49983)
  const start = await request('/process.Process/List', {
    method: 'POST',
    headers: { ...headers, 'Content-Type': 'application/json' },
    body: '{}',
  })
  assert.equal(start.status, 401)
  assert.equal((await request('/files?path=/etc/passwd', { headers })).status, 401)
  const wrong = { ...headers, 'X-Access-Token': 'f'.repeat(64) }
  assert.equal((await request('/files?path=/etc/passwd', { headers: wrong })).status, 401)
})
