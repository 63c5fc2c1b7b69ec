// The npm package http-cache-tests, run as its README describes and evaluated by its own rules.
//
//   node cache_tests.mjs PACKAGE origin        its origin server on a free port, until it is killed
//   node cache_tests.mjs PACKAGE client URL    its client against the cache at URL; prints a verdict per case, in JSON
//
// PACKAGE is the folder of the package. The script evaluates the output of the package's own command line, with the
// package's table of cases and their kinds (required, optimal or check) and its rule for cases that depend on others.
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { Server } from 'node:net'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'

const [folder, role, url] = process.argv.slice(2)
const load = file => import(pathToFileURL(join(folder, file)))

async function origin () {
  // By default, it would listen on all network interfaces.
  const { listen } = Server.prototype
  Server.prototype.listen = function (port) { return listen.call(this, port, '127.0.0.1') }
  Object.assign(process.env, {
    npm_config_protocol: 'http',
    npm_config_port: '0',
    npm_config_pidfile: '/dev/null'
  })
  await load('server/server.mjs')
}

// The meanings of the package's symbols.
const WORDS = new Map([
  ['-', 'untested'], ['✅', 'pass'], ['⛔️', 'fail'], ['⚠️', 'suboptimal'], ['Y', 'yes'], ['N', 'no'],
  ['🔹', 'setup'], ['⁉️', 'harness'], ['⚪️', 'dependency'], ['↻', 'retry']
])

async function client () {
  const { stdout } = await promisify(execFile)(process.execPath, ['--no-warnings', 'cli.mjs'], {
    cwd: folder,
    env: { ...process.env, npm_config_base: url, npm_config_id: '', npm_package_config_id: '' },
    maxBuffer: 16 * 1024 * 1024
  })
  const results = JSON.parse(stdout)
  const suites = (await load('tests/index.mjs')).default
  // The package's command line adds this suite too.
  suites.push((await load('tests/surrogate-control.mjs')).default)
  const { determineTestResult } = await load('lib/display.mjs')
  const cases = suites.flatMap(suite => suite.tests
    .filter(test => test.browser_only !== true)
    .map(test => ({
      suite: suite.id,
      id: test.id,
      name: test.name,
      kind: test.kind ?? 'required',
      outcome: WORDS.get(determineTestResult(suites, test.id, results)[2]),
      needs: test.depends_on ?? [],
      detail: Array.isArray(results[test.id]) ? results[test.id][1] : ''
    })))
  for (const test of cases) test.held = ['pass', 'yes'].includes(test.outcome)
  const { version } = JSON.parse(readFileSync(join(folder, 'package.json')))
  console.log(JSON.stringify({ version, cases }, null, 1))
}

await (role === 'origin' ? origin() : client())
