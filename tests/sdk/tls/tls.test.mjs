// Run by tests/system/test_tls.py against a server with a certificate: the published package, told
// nothing but E2B_API_KEY and E2B_DOMAIN, finds api.DOMAIN and PORT-ID.DOMAIN over https by itself.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'
import { Sandbox } from 'e2b'
import { eventually, useSandbox } from '../helpers.mjs'

const box = useSandbox()

test('only the domain is configured', () => {
  assert.equal(process.env.E2B_API_URL, undefined)
  assert.equal(process.env.E2B_SANDBOX_URL, undefined)
  assert.equal(box.sandbox.getHost(1), `1-${box.sandbox.sandboxId}.${process.env.E2B_DOMAIN}`)
})

test('commands stream their output', async () => {
  const seen = []
  const result = await box.sandbox.commands.run('for i in 1 2 3; do echo $i; sleep 0.1; done', {
    onStdout: text => seen.push(text),
  })
  assert.equal(result.stdout, '1\n2\n3\n')
  assert.ok(seen.length > 1)
})

test('files go in and come out whole', async () => {
  const bytes = randomBytes(3 << 20)
  await box.sandbox.files.write('big', new Blob([bytes]).stream())
  const back = await box.sandbox.files.read('big', { format: 'bytes' })
  assert.ok(bytes.equals(Buffer.from(back)))
})

test('signed URLs name their sandbox', async () => {
  await box.sandbox.files.write('signed.txt', 'hello')
  const url = await box.sandbox.downloadUrl('signed.txt', { useSignatureExpiration: 60 })
  assert.match(url, /^https:\/\/49983-/)
  assert.equal(await (await fetch(url)).text(), 'hello')
})

test('a terminal is interactive', async () => {
  let text = ''
  const pty = await box.sandbox.pty.create({
    cols: 80,
    rows: 24,
    onData: data => (text += new TextDecoder().decode(data)),
  })
  await box.sandbox.pty.sendInput(pty.pid, new TextEncoder().encode('echo $((6 * 7))\n'))
  await eventually(() => /\b42\b/.test(text), 'the answer')
  await pty.kill()
})

test('a server inside is reached by its host name', async () => {
  await box.sandbox.commands.run('python3 -m http.server 8000', { background: true, timeoutMs: 0 })
  const url = `https://${box.sandbox.getHost(8000)}`
  const answer = await eventually(async () => {
    const response = await fetch(url)
    return response.status === 200 && response.text()
  }, url)
  assert.match(answer, /Directory listing/)
})

test('a sandbox that is gone is gone', async () => {
  const gone = await Sandbox.create('base', { timeoutMs: 60_000 })
  await gone.kill()
  const answer = await fetch(`https://${gone.getHost(3000)}`)
  assert.equal(answer.status, 502)
  assert.equal((await answer.json()).message, 'The sandbox was not found')
})
