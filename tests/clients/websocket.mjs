// WebSocket clients and servers with the third-party npm package ws.
//
//   node websocket.mjs PACKAGE server        echoes messages on a free port, which it prints, until it is killed
//   node websocket.mjs PACKAGE client URL    sends messages of all sizes and expects each back
//   node websocket.mjs PACKAGE http2 URL     the same for two visitors, in two streams of one HTTP/2 connection
import { once } from 'node:events'
import { connect } from 'node:http2'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const [folder, role, url] = process.argv.slice(2)
const { WebSocketServer, WebSocket } = await import(pathToFileURL(join(folder, 'wrapper.mjs')))
const expect = (held, what) => { if (!held) throw new Error(what) }

// Queues messages. Returns a function that waits for the next one.
const inbox = socket => {
  const queue = []
  let wake = () => {}
  socket.on('message', (data, isBinary) => { queue.push([data, isBinary]); wake() })
  return async () => {
    while (queue.length === 0) await new Promise(resolve => { wake = resolve })
    return queue.shift()
  }
}

const exchange = async (socket, next, name) => {
  expect(String((await next())[0]).startsWith(`hello /chat?room=${name} from `), 'another greeting')
  for (const size of [0, 1, 125, 126, 65535, 65536, 3 * 1024 * 1024]) {
    const data = Buffer.alloc(size, `${name}${size}`)
    socket.send(data)
    const [echo, isBinary] = await next()
    expect(isBinary && data.equals(echo), `${size} bytes came back as ${echo.length} others`)
  }
  // Many messages in flight at once, in both directions.
  const count = 2000
  for (let number = 0; number < count; number++) socket.send(`message ${number} of ${name}`)
  for (let number = 0; number < count; number++) {
    expect(String((await next())[0]) === `message ${number} of ${name}`, `another message than ${number} of ${name}`)
  }
  socket.ping('are you there')
  const [pong] = await once(socket, 'pong')
  expect(String(pong) === 'are you there', 'another pong')
  socket.close(4001, 'that was all')
  const [code] = await once(socket, 'close')
  expect(code === 4001, `closed with ${code}`)
}

if (role === 'server') {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0, maxPayload: 64 * 1024 * 1024 })
  server.on('connection', (socket, request) => {
    socket.send(`hello ${request.url} from ${request.headers.host}`)
    socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }))
    socket.on('close', code => console.log(`closed ${code}`))
  })
  await once(server, 'listening')
  console.log(server.address().port)
} else if (role === 'client') {
  const socket = new WebSocket(url)
  const next = inbox(socket)
  await once(socket, 'open')
  await exchange(socket, next, '1')
  console.log('all came back')
} else {
  const session = connect(url)
  const [settings] = await once(session, 'remoteSettings')
  expect(settings.enableConnectProtocol, 'extended CONNECT is not announced')
  const visit = async name => {
    const stream = session.request({
      ':method': 'CONNECT', ':protocol': 'websocket', ':path': `/chat?room=${name}`, 'sec-websocket-version': '13',
    })
    const [head] = await once(stream, 'response')
    expect(head[':status'] === 200, `status ${head[':status']}`)
    expect(!('sec-websocket-accept' in head), 'HTTP/2 has no Sec-WebSocket-Accept')
    // ws accepts any kind of socket, but this option exists only for TCP.
    stream.setNoDelay = () => {}
    const socket = new WebSocket(null, undefined, { autoPong: true, closeTimeout: 30000 })
    // Without an address, ws assumes that it is the server.
    socket._isServer = false
    const next = inbox(socket)
    socket.setSocket(stream, Buffer.alloc(0), { allowSynchronousEvents: true, maxPayload: 64 * 1024 * 1024 })
    await exchange(socket, next, name)
  }
  await Promise.all([visit('alice'), visit('bob')])
  session.close()
  console.log('all came back')
}
