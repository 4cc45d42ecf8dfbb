// What a sandbox may reach, said as the SDK says it. What the rules do is tested against an internet of
// our own (tests/system/test_egress.py, test_rules.py); here nothing leads out.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ALL_TRAFFIC, Sandbox } from 'e2b'
import { withSandbox } from './helpers.mjs'

// A name that is denied does not exist, and that is known at once: who hears nothing waits for five seconds.
async function isDenied(sandbox, name) {
  const timed = `s=$(date +%s%N); getent hosts ${name}; c=$?; echo $((($(date +%s%N) - s) / 1000000)); exit $c`
  const { exitCode, stdout } = await sandbox.commands.run(timed).catch(error => error)
  return exitCode === 2 && Number(stdout) < 4500
}

test('a sandbox without internet knows no names', async () => {
  await withSandbox({ allowInternetAccess: false }, async sandbox => {
    assert.ok(await isDenied(sandbox, 'example.com'))
  })
})

test('names that are not allowed do not exist, also when the rule comes later', async () => {
  await withSandbox({}, async sandbox => {
    await sandbox.updateNetwork({ allowOut: ['allowed.example'], denyOut: ({ allTraffic }) => [allTraffic] })
    assert.ok(await isDenied(sandbox, 'example.com'))
    const { network } = await sandbox.getInfo()
    assert.deepEqual([network.allowOut, network.denyOut], [['allowed.example'], [ALL_TRAFFIC]])
  })
})

test('header rules are kept with the names of their secrets', async () => {
  const headers = { Authorization: 'Bearer ${e2b.secrets.KEY}' }
  const network = { rules: { 'api.example.com': [{ transform: { headers } }] } }
  await withSandbox({ network }, async sandbox => {
    const { network: kept } = await sandbox.getInfo()
    assert.deepEqual(kept.rules['api.example.com'][0].transform.headers, headers)
    const trusted = await sandbox.commands.run('grep -c BEGIN /usr/local/share/ca-certificates/atoll-egress.crt')
    assert.equal(trusted.stdout.trim(), '1')
  })
})

test('what is wrong is refused in the words of the field', async () => {
  const wrong = [
    [{ allowOut: ['example.com'] }, /0\.0\.0\.0\/0 in denyOut/],
    [{ denyOut: ['example.com'] }, /network\.denyOut/],
    [{ rules: { '*': [] } }, /network\.rules/],
  ]
  for (const [network, words] of wrong) await assert.rejects(Sandbox.create({ network }), words)
})
