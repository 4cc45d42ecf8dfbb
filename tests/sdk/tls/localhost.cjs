// Loaded before everything else: names under .localhost mean this machine, as RFC 6761 has it and as
// browsers and curl do. The C library's resolver asks the network instead.
const dns = require('node:dns')
const { lookup } = dns

dns.lookup = (name, options, callback) => {
  const [given, done] = typeof options === 'function' ? [{}, options] : [options ?? {}, callback]
  if (!name.endsWith('.localhost')) return lookup(name, given, done)
  return process.nextTick(() =>
    given.all ? done(null, [{ address: '127.0.0.1', family: 4 }]) : done(null, '127.0.0.1', 4),
  )
}
