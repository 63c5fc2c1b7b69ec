// A typical Express application. Usage: node express.mjs MODULES
// Every personal page takes 300 ms, so that requests of several visitors reach the cache at the same time.
import { createRequire } from 'node:module';

const require = createRequire(`${process.argv[2]}/`);
const express = require('express');
const cookieParser = require('cookie-parser');
const session = require('express-session');

const app = express();
app.use(cookieParser());

const later = (send) => setTimeout(send, 300);
const sessions = (name, saveUninitialized) =>
  session({ name, secret: 'a secret', resave: false, saveUninitialized });

// No Cache-Control; Express adds an ETag.
app.get('/hello', (request, response) => later(() => response.send('Hello ' + request.cookies.name)));

// One application creates a session for every visitor, as express-session does by default, and one only on login.
for (const [base, saveUninitialized] of [['/stock', true], ['/app', false]]) {
  app.use(base, sessions('connect.sid', saveUninitialized));
  app.get(`${base}/login`, (request, response) => {
    request.session.name = request.query.name;
    request.session.save(() => response.redirect(`${base}/account`));
  });
  app.get(`${base}/account`, (request, response) =>
    later(() => response.send(`account of ${request.session.name ?? 'nobody'}`)));
  app.get(`${base}/`, (request, response) =>
    later(() => response.send(`welcome ${request.session.name ?? 'guest'}`)));
}

// A page that declares itself public.
app.get('/news', (request, response) =>
  later(() => response.set('Cache-Control', 'public, max-age=60').send('news')));

const server = app.listen(0, '127.0.0.1', () => console.log(server.address().port));
