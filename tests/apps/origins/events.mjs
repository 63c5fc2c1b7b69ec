// Server-sent events. `node events.mjs server` prints its port. `node events.mjs client URL NAME` prints the events
// that NAME gets. There are `silence` milliseconds between two events. Every visitor has a separate stream.
import http from 'node:http';

const [role, url, name] = process.argv.slice(2);

if (role === 'server') {
  const server = http.createServer((request, response) => {
    const silence = Number(new URL(request.url, 'http://a').searchParams.get('silence'));
    const visitor = /name=(\w+)/.exec(request.headers.cookie ?? '')?.[1] ?? 'nobody';
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    response.write(`data: first of ${visitor}\n\n`);
    setTimeout(() => response.end(`data: last of ${visitor}\n\n`), silence);
  });
  server.listen(0, '127.0.0.1', () => console.log(server.address().port));
} else {
  const headers = name ? { Cookie: `name=${name}` } : {};
  http.get(url, { headers }, (response) => {
    response.setEncoding('utf8');
    let text = '';
    response.on('data', (piece) => (text += piece));
    response.on('error', (error) => { console.log(`cut after ${JSON.stringify(text)}: ${error.message}`); process.exit(1); });
    response.on('end', () => console.log(text.split('\n\n').filter(Boolean).join('|')));
  });
}
