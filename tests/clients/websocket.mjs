// WebSocket by the npm package ws, which is not ours, at both ends.
//
//   node websocket.mjs PACKAGE server        echoes what it gets, on a free port that it prints, until it is killed
//   node websocket.mjs PACKAGE client URL    sends messages of all sizes and expects each back
import { once } from 'node:events'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const [folder, role, url] = process.argv.slice(2)
const { WebSocketServer, WebSocket } = await import(pathToFileURL(join(folder, 'wrapper.mjs')))

if (role === 'server') {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0, maxPayload: 64 * 1024 * 1024 })
  server.on('connection', (socket, request) => {
    socket.send(`hello ${request.url} from ${request.headers.host}`)
    socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }))
    socket.on('close', code => console.log(`closed ${code}`))
  })
  await once(server, 'listening')
  console.log(server.address().port)
} else {
  const socket = new WebSocket(url)
  const queue = []
  let wake = () => {}
  socket.on('message', (data, isBinary) => { queue.push([data, isBinary]); wake() })
  const next = async () => {
    while (queue.length === 0) await new Promise(resolve => { wake = resolve })
    return queue.shift()
  }
  const expect = (held, what) => { if (!held) throw new Error(what) }
  await once(socket, 'open')
  expect(String((await next())[0]).startsWith('hello /chat?room=1 from '), 'another greeting')
  for (const size of [0, 1, 125, 126, 65535, 65536, 3 * 1024 * 1024]) {
    const data = Buffer.alloc(size, size % 251)
    socket.send(data)
    const [echo, isBinary] = await next()
    expect(isBinary && data.equals(echo), `${size} bytes came back as ${echo.length} others`)
  }
  // Many under way at once, both ways.
  const count = 2000
  for (let number = 0; number < count; number++) socket.send(`message ${number}`)
  for (let number = 0; number < count; number++) {
    expect(String((await next())[0]) === `message ${number}`, `another message than ${number}`)
  }
  socket.ping('are you there')
  const [pong] = await once(socket, 'pong')
  expect(String(pong) === 'are you there', 'another pong')
  socket.close(4001, 'that was all')
  const [code] = await once(socket, 'close')
  expect(code === 4001, `closed with ${code}`)
  console.log('all came back')
}
