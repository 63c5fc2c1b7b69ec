// socket.io. `node chat.mjs MODULES server` prints its port. `node chat.mjs MODULES client URL NAME` exchanges messages
// as NAME, first with long polling and then with WebSocket, and a second time with long polling only.
import { createRequire } from 'node:module';
import { createServer } from 'node:http';

const [modules, role, url, name] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const COUNT = 50;

if (role === 'server') {
  const { Server } = require('socket.io');
  const http = createServer();
  const io = new Server(http, { cookie: true });
  io.on('connection', (socket) => {
    const visitor = socket.handshake.auth.name;
    socket.join(visitor);
    socket.on('say', (number, answer) => {
      io.to(visitor).emit('heard', `${visitor} said ${number}`);
      answer(`${visitor}: ${number}`);
    });
    socket.on('blob', (bytes, answer) => answer(bytes));
  });
  http.listen(0, '127.0.0.1', () => console.log(http.address().port));
} else {
  const { io } = require('socket.io-client');
  const fail = (text) => { console.log(`${name}: ${text}`); process.exit(1); };
  setTimeout(() => fail('nothing more comes'), 60_000);
  const talk = async (visitor, transports) => {
    const socket = io(url, { transports, auth: { name: visitor }, forceNew: true, reconnection: false });
    socket.on('connect_error', (error) => fail(`connect_error ${error.message} ${JSON.stringify(error.context?.responseText)}`));
    socket.on('disconnect', (reason) => reason === 'io client disconnect' || fail(`disconnected: ${reason}`));
    let heard = 0;
    socket.on('heard', (text) => {
      if (!text.startsWith(`${visitor} said `)) fail(`${visitor} heard: ${text}`);
      heard += 1;
    });
    await new Promise((resolve) => socket.on('connect', resolve));
    const expected = transports[transports.length - 1];
    const engine = socket.io.engine;
    for (let number = 0; number < COUNT; number += 1) {
      const answer = await socket.emitWithAck('say', number);
      if (answer !== `${visitor}: ${number}`) fail(`answer ${answer} instead of ${number}`);
    }
    // The upgrade runs while the first messages are exchanged.
    if (engine.transport.name !== expected) await new Promise((resolve) => engine.once('upgrade', resolve));
    const blob = Buffer.alloc(300_000, visitor);
    const back = await socket.emitWithAck('blob', blob);
    if (Buffer.compare(Buffer.from(back), blob) !== 0) fail('the content has changed');
    if (engine.transport.name !== expected) fail(`the transport is ${engine.transport.name} instead of ${expected}`);
    while (heard < COUNT) await new Promise((resolve) => socket.once('heard', resolve));
    socket.disconnect();
  };
  await Promise.all([talk(name, ['polling', 'websocket']), talk(`${name}-polling`, ['polling'])]);
  console.log('all came back');
  process.exit(0);
}
