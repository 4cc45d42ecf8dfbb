// create + `echo` + kill with the published SDK, as many times as asked; prints each in microseconds.
import { createRequire } from 'node:module'

const { Sandbox } = createRequire(new URL('../tests/sdk/package.json', import.meta.url))('e2b')

for (let i = 0; i < Number(process.argv[2]); i++) {
  const began = process.hrtime.bigint()
  const sandbox = await Sandbox.create('base')
  const { stdout } = await sandbox.commands.run('echo hello')
  await sandbox.kill()
  if (stdout !== 'hello\n') throw new Error(`unexpected output: ${stdout}`)
  console.log(Number((process.hrtime.bigint() - began) / 1000n))
}
