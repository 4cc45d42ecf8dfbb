// Every option of a create that this version of the package has. The server refuses what it does not know, so
// another version that brings one more fails here, and not at somebody who uses it.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { Sandbox, Volume } from 'e2b'
import { request, withSandbox } from './helpers.mjs'

const types = readFileSync(new URL('index.d.ts', import.meta.resolve('e2b')), 'utf8')

// The members of a type as the package declares it, without those of types inside it.
function members(heading) {
  const lines = types.slice(types.indexOf(`${heading} {\n`)).split('\n')
  const indent = lines[1].match(/^ */)[0]
  const end = lines.findIndex((line, i) => i && line.trim().startsWith('}') && !line.startsWith(indent))
  return lines.slice(1, end).map(line => line.match(`^${indent}(\\w+)\\??:`)?.[1]).filter(Boolean).sort()
}

async function withVolume(work) {
  const volume = await Volume.create(`options-${process.pid}-${Date.now()}`)
  try {
    return await work(volume)
  } finally {
    await Volume.destroy(volume.volumeId)
  }
}

const rules = { 'example.com': [{ transform: { headers: { 'X-Test': 'x' } } }] }
const network = { allowPublicTraffic: true, allowOut: ['example.com'], denyOut: ['0.0.0.0/0'],
  maskRequestHost: 'a.example:${PORT}', httpsPorts: [8443], rules }

test('every member of the request is taken', async () => {
  await withVolume(async volume => {
    const body = { templateID: 'base', timeout: 60, autoPause: true, autoPauseMemory: true, autoResume: { enabled: true },
      allow_internet_access: true, network, metadata: { k: 'v' }, envVars: { K: 'v' }, mcp: {}, iam: { tokens: {} },
      volumeMounts: [{ name: volume.name, path: '/data' }] }
    const refused = ['egressProxy'] // docs/e2b.md: not offered
    const given = { NewSandboxV2: Object.keys(body), SandboxNetworkConfig: [...Object.keys(network), ...refused],
      SandboxAutoResumeConfig: ['enabled'], SandboxVolumeMount: ['name', 'path'], SandboxIam: ['tokens'],
      SandboxNetworkRule: ['transform'], SandboxNetworkTransform: ['headers'] }
    for (const [name, keys] of Object.entries(given)) assert.deepEqual(members(`    ${name}:`), keys.sort(), name)
    const headers = { 'content-type': 'application/json', 'x-api-key': process.env.E2B_API_KEY }
    const made = await request('/v2/sandboxes', { method: 'POST', headers, body: JSON.stringify(body) })
    assert.equal(made.status, 201, made.text)
    await Sandbox.kill(JSON.parse(made.text).sandboxID)
  })
})

test('every option of the call is taken', async () => {
  const sent = ['template', 'metadata', 'envs', 'timeoutMs', 'secure', 'allowInternetAccess', 'network', 'iam', 'volumeMounts', 'lifecycle']
  const own = ['sandboxUrl', 'mcp'] // where the package finds the sandbox; a program that it runs in a template of E2B's
  assert.deepEqual(members('interface SandboxOpts extends ConnectionOpts'), [...sent, ...own].sort())
  await withVolume(async volume => {
    for (const lifecycle of [{ onTimeout: 'pause', autoResume: true }, { onTimeout: { action: 'pause', keepMemory: false } },
      { onTimeout: 'kill' }]) {
      const options = { metadata: { k: 'v' }, envs: { K: 'v' }, secure: true, allowInternetAccess: true, network,
        iam: { tokens: {} }, volumeMounts: { '/data': volume }, lifecycle }
      await withSandbox(options, async sandbox => {
        assert.equal((await sandbox.commands.run('echo $K')).stdout, 'v\n')
      })
    }
  })
})
