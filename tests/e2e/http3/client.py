"""HTTP/3 with aioquic. The first argument is a command below, the second is the server's address.

Every command prints one line of JSON, or fails."""

import asyncio
import hashlib
import json
import socket
import ssl
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.buffer import Buffer, BufferReadError
from aioquic.h3.connection import H3_ALPN, ErrorCode, FrameType, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, StopSendingReceived, StreamDataReceived, StreamReset

HOST, _, PORT = sys.argv[2].rpartition(":")
TIMEOUT_S = 60


class Response:
    def __init__(self):
        self.heads = []
        self.body = bytearray()
        self.size = 0
        self.digest = hashlib.sha256()
        self.ended = asyncio.Event()
        self.head = asyncio.Event()
        self.reset = None
        self.stopped = None
        self.grown = asyncio.Event()

    async def reaches(self, size):
        """Waits until this much content has arrived."""
        while self.size < size:
            self.grown.clear()
            await self.grown.wait()

    @property
    def status(self):
        return int(dict(self.final)[b":status"])

    @property
    def final(self):
        return next(head for head in self.heads if not dict(head).get(b":status", b"").startswith(b"1"))

    def field(self, name):
        return dict(self.final).get(name.encode(), b"").decode()

    def shown(self):
        return {
            "status": self.status,
            "size": self.size,
            "reset": self.reset,
            "sha256": self.digest.hexdigest(),
            "body": bytes(self.body[:200]).decode("latin-1"),
            "interim": [int(dict(head)[b":status"]) for head in self.heads if dict(head).get(b":status", b"").startswith(b"1")],
            "trailers": {k.decode(): v.decode() for head in self.heads if b":status" not in dict(head) for k, v in head},
            "fields": {k.decode(): v.decode() for k, v in self.final if not k.startswith(b":")},
        }


class Client(QuicConnectionProtocol):
    """With `raw`, the HTTP/3 connection is not set up, for clients that break its rules."""

    raw = False

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = None if self.raw else H3Connection(self._quic)
        self.responses = {}
        self.closed = asyncio.Event()
        self.close_event = None

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            self.close_event = event
            self.closed.set()
            for response in self.responses.values():
                response.ended.set()
        elif isinstance(event, StreamReset):
            self.response(event.stream_id).reset = event.error_code
            self.response(event.stream_id).ended.set()
        elif isinstance(event, StopSendingReceived):
            self.response(event.stream_id).stopped = event.error_code
        if self.http is None:
            return
        for found in self.http.handle_event(event):
            response = self.response(found.stream_id)
            if isinstance(found, HeadersReceived):
                response.heads.append(found.headers)
                response.head.set()
            elif isinstance(found, DataReceived):
                response.size += len(found.data)
                response.grown.set()
                response.digest.update(found.data)
                if len(response.body) < 4096:
                    response.body += found.data
            if getattr(found, "stream_ended", False):
                response.ended.set()

    def response(self, stream):
        return self.responses.setdefault(stream, Response())

    def begin(self, method, path, fields=(), ends=True, host="localhost"):
        stream = self._quic.get_next_available_stream_id()
        head = [(b":method", method.encode()), (b":scheme", b"https"), (b":authority", host.encode()), (b":path", path.encode())]
        head += [(name.encode(), value.encode()) for name, value in fields]
        self.http.send_headers(stream, head, end_stream=ends)
        self.transmit()
        return stream, self.response(stream)

    async def ask(self, method, path, fields=(), body=None, trailers=None):
        stream, response = self.begin(method, path, fields, ends=body is None)
        if body is not None:
            for start in range(0, max(len(body), 1), 65536):
                last = start + 65536 >= len(body)
                self.http.send_data(stream, body[start : start + 65536], end_stream=last and not trailers)
                self.transmit()
                await asyncio.sleep(0)
            if trailers:
                self.http.send_headers(stream, [(k.encode(), v.encode()) for k, v in trailers], end_stream=True)
                self.transmit()
        await asyncio.wait_for(response.ended.wait(), TIMEOUT_S)
        return response


def configuration(**options):
    config = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="localhost", **options)
    config.verify_mode = ssl.CERT_NONE
    return config


def dial(protocol=Client, **options):
    return connect(HOST, int(PORT), configuration=configuration(**options), create_protocol=protocol)


def say(value):
    print(json.dumps(value))


async def get():
    async with dial() as client:
        shown = []
        for path in sys.argv[3:]:
            shown.append((await client.ask("GET", path)).shown())
        say(shown)


async def named():
    """named HOST PATH …: sends a GET for each pair of `:authority` and `:path`."""
    async with dial() as client:
        shown = []
        for host, path in zip(sys.argv[3::2], sys.argv[4::2]):
            _, response = client.begin("GET", path, host=host)
            await asyncio.wait_for(response.ended.wait(), TIMEOUT_S)
            shown.append(response.shown())
        say(shown)


async def head():
    async with dial() as client:
        # aioquic wrongly expects the content that a response to GET would have.
        client.http._check_content_length = lambda stream: None
        say((await client.ask("HEAD", sys.argv[3])).shown())


async def post():
    """post PATH BYTES [te]: sends content of this many bytes with its digest, and optionally trailers."""
    body = bytes(index % 251 for index in range(1000)) * (int(sys.argv[4]) // 1000)
    trailers = [("x-checksum", "7")] if "te" in sys.argv else None
    async with dial() as client:
        shown = (await client.ask("POST", sys.argv[3], [("content-type", "application/octet-stream")], body, trailers)).shown()
        say(dict(shown, sent=hashlib.sha256(body).hexdigest()))


async def expect():
    """expect PATH CONTENT: sends the content only after 100 (Continue)."""
    async with dial() as client:
        content = sys.argv[4].encode()
        fields = [("expect", "100-continue"), ("content-length", str(len(content)))]
        stream, response = client.begin("PUT", sys.argv[3], fields, ends=False)
        await asyncio.wait_for(response.head.wait(), TIMEOUT_S)
        sent = dict(response.heads[0])[b":status"] == b"100"
        if sent:
            client.http.send_data(stream, content, end_stream=True)
            client.transmit()
        await asyncio.wait_for(response.ended.wait(), TIMEOUT_S)
        say(dict(response.shown(), sent=sent))


async def many():
    """many PATH CONNECTIONS REQUESTS: sends this many requests at once on each connection."""
    async def one(count):
        async with dial() as client:
            responses = await asyncio.gather(*(client.ask("GET", sys.argv[3]) for _ in range(count)))
            return [response.status for response in responses]

    connections, requests = int(sys.argv[4]), int(sys.argv[5])
    statuses = await asyncio.gather(*(one(requests) for _ in range(connections)))
    say([status for each in statuses for status in each])


async def cancel():
    """Cancels a large response and then reuses the connection."""
    async with dial() as client:
        stream, response = client.begin("GET", sys.argv[3])
        await asyncio.wait_for(response.head.wait(), TIMEOUT_S)
        client._quic.stop_stream(stream, ErrorCode.H3_REQUEST_CANCELLED)
        client.transmit()
        await asyncio.wait_for(response.ended.wait(), TIMEOUT_S)
        again = await client.ask("GET", sys.argv[4])
        say({"reset": response.reset, "size": response.size, "again": again.status})


async def overtake():
    """overtake LARGE URGENT: requests URGENT, also of a mebibyte, once a mebibyte of LARGE has arrived. Prints how many
    bytes of LARGE had arrived then, and when URGENT was complete."""
    begun_bytes, window = 1 << 20, 1 << 28
    # Datagrams are lost when this much of URGENT has arrived. Retransmissions must be as urgent as the originals.
    losses = [1 << 18, 1 << 19, (1 << 20) - (1 << 15)]
    # Only the link and the server limit the transfer.
    async with dial(max_data=window, max_stream_data=window) as client:
        _, large = client.begin("GET", sys.argv[3], [("priority", "u=5")])
        await asyncio.wait_for(large.reaches(begun_bytes), TIMEOUT_S)
        # Datagrams that have arrived were sent before the server can receive the next request. An iteration of the loop
        # reads one, and not each has content.
        before, turns_without = 0, 0
        while turns_without < 10:
            turns_without = turns_without + 1 if large.size == before else 0
            before = large.size
            await asyncio.sleep(0)
        before = large.size
        _, urgent = client.begin("GET", sys.argv[4], [("priority", "u=0")])
        receive = client.datagram_received

        def lose_some(data, address):
            if losses and urgent.size >= losses[0]:
                losses.pop(0)
            else:
                receive(data, address)

        client.datagram_received = lose_some
        await asyncio.wait_for(urgent.ended.wait(), TIMEOUT_S)
        say({"before": before, "after": large.size, "urgent": urgent.size})


async def resume():
    """resume PATH CONNECTIONS: one connection after the other, each with the session ticket of the one before."""
    tickets = asyncio.Queue()
    ticket, shown = None, []
    for _ in range(int(sys.argv[4])):
        config = configuration(session_ticket=ticket)
        async with connect(HOST, int(PORT), configuration=config, create_protocol=Client, session_ticket_handler=tickets.put_nowait) as client:
            status = (await client.ask("GET", sys.argv[3])).status
            ticket = await asyncio.wait_for(tickets.get(), TIMEOUT_S)
            shown.append({"status": status, "resumed": client._quic.tls.session_resumed})
    say(shown)


async def large_head():
    """large_head PATH BYTES FIELDS: a request with so many fields; its head would have so many bytes over HTTP/1.1."""
    size, count = int(sys.argv[4]), int(sys.argv[5])
    own = len(f"GET {sys.argv[3]} HTTP/1.1\r\nHost: localhost\r\n\r\n")
    values = divmod(size - own - count * len("x-0000: \r\n"), count)
    fields = [(f"x-{index:04}", "x" * (values[0] + (index < values[1]))) for index in range(count)]
    async with dial() as client:
        say((await client.ask("GET", sys.argv[3], fields)).shown())


async def migrate():
    """Sends a request, changes the client's port, and sends another one on the same connection."""
    async with dial() as client:
        first = await client.ask("GET", sys.argv[3])
        before = client._transport.get_extra_info("sockname")
        loop = asyncio.get_running_loop()
        shown = [first.shown()]
        old = client._transport
        ports = [before[1]]
        for _ in range(3):
            transport, _ = await loop.create_datagram_endpoint(lambda: Forward(client), local_addr=("::", 0) if ":" in before[0] else ("0.0.0.0", 0))
            client._transport = transport
            ports.append(transport.get_extra_info("sockname")[1])
            shown.append((await client.ask("GET", sys.argv[3])).shown())
        old.close()
        say({"ports": ports, "responses": shown, "closed": client.closed.is_set()})


class Forward(asyncio.DatagramProtocol):
    def __init__(self, client):
        self.client = client

    def datagram_received(self, data, addr):
        self.client.datagram_received(data, addr)


async def hold():
    """hold PATH CONNECTIONS STREAMS: opens streams whose windows stay closed. Waits for a line on standard input."""
    connections, streams = int(sys.argv[4]), int(sys.argv[5])
    clients = []
    for _ in range(connections):
        context = dial(max_stream_data=300, max_data=100_000_000)
        client = await context.__aenter__()
        # No credit beyond the initial window.
        client._quic._write_stream_limits = lambda *_, **__: None
        clients.append((context, client))
        for _ in range(streams):
            client.begin("GET", sys.argv[3])
        await asyncio.sleep(0)
    if streams:
        for _, client in clients:
            for response in list(client.responses.values()):
                await asyncio.wait_for(response.head.wait(), TIMEOUT_S)
    say({"held": len(clients)})
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def slow():
    """slow PATH CONNECTIONS: opens streams whose windows stay closed until there is a line on standard input."""
    clients = []
    for _ in range(int(sys.argv[4])):
        context = dial(max_stream_data=300)
        client = await context.__aenter__()
        grant = client._quic._write_stream_limits
        client._quic._write_stream_limits = lambda *_, **__: None
        stream, response = client.begin("GET", sys.argv[3])
        await asyncio.wait_for(response.head.wait(), TIMEOUT_S)
        clients.append((context, client, grant, stream, response))
    say({"held": len(clients)})
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    shown = []
    for context, client, grant, stream, response in clients:
        client._quic._write_stream_limits = grant
        client._quic._streams[stream].max_stream_data_local = 1 << 24
        client.transmit()
        await asyncio.wait_for(response.ended.wait(), TIMEOUT_S)
        shown.append({"size": response.size, "sha256": response.digest.hexdigest()})
        await context.__aexit__(None, None, None)
    say(shown)


async def pause():
    """pause PATH UPLOAD: opens a stream whose window stays closed, and sends content on another until the first is
    reset."""
    async with dial(max_stream_data=300) as client:
        grant = client._quic._write_stream_limits
        paused, response = client.begin("GET", sys.argv[3])
        client._quic._write_stream_limits = lambda *arguments, stream, **named: (
            stream.stream_id == paused or grant(*arguments, stream=stream, **named)
        )
        await asyncio.wait_for(response.head.wait(), TIMEOUT_S)
        stream, answer = client.begin("POST", sys.argv[4], ends=False)
        sent = 0
        while not response.ended.is_set():
            assert sent < 600_000
            client.http.send_data(stream, bytes(100), end_stream=False)
            client.transmit()
            sent += 100
            await asyncio.sleep(0.02)
        client.http.send_data(stream, b"", end_stream=True)
        client.transmit()
        await asyncio.wait_for(answer.ended.wait(), TIMEOUT_S)
        say({"reset": response.reset, "sent": sent, "upload": answer.shown()})


async def trickle():
    """trickle BYTES MILLISECONDS PATH...: sends content of this declared length to each path, a byte at a time, and again
    without the last byte."""
    length, pause_s = int(sys.argv[3]), int(sys.argv[4]) / 1000
    async with dial() as client:

        async def one(path, count):
            stream, response = client.begin("POST", path, [("content-length", str(length))], ends=False)
            for index in range(1, count + 1):
                await asyncio.sleep(pause_s)
                if response.ended.is_set():
                    break
                client.http.send_data(stream, b"b", end_stream=index == length)
                client.transmit()
            await asyncio.wait_for(response.ended.wait(), TIMEOUT_S)
            return [response.status, response.body.decode()]

        say(await asyncio.gather(*(one(path, count) for path in sys.argv[5:] for count in (length, length - 1))))


async def upload():
    """upload PATH BYTES CREDIT: sends a request whose content does not end until there is a line on standard input and
    the server has granted this credit for all streams."""
    async with dial() as client:
        stream, _ = client.begin("POST", sys.argv[3], ends=False)
        client.http.send_data(stream, bytes(int(sys.argv[4])), end_stream=False)
        client.transmit()
        # The server has read it by then.
        await client.ask("GET", "/kept")
        say({"sent": True})
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        while client._quic._remote_max_data < int(sys.argv[5]):
            assert not client.closed.is_set()
            await asyncio.sleep(0.01)
        say({"credit": client._quic._remote_max_data})


async def keep():
    """keep PATH BYTES: sends a request with content of a declared length, and then keeps the connection idle until
    there is a line on standard input."""
    async with dial() as client:
        body = bytes(int(sys.argv[4]))
        response = await client.ask("POST", sys.argv[3], [("content-length", str(len(body)))], body)
        say(response.shown()["status"])
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        say("idle")


async def silent():
    """silent PATH: receives two mebibytes of a response, and then nothing until there is a line on standard input."""
    async with dial(max_data=1 << 28, max_stream_data=1 << 28) as client:
        stream, response = client.begin("GET", sys.argv[3])
        await asyncio.wait_for(response.reaches(2 << 20), TIMEOUT_S)
        client.datagram_received = lambda *_: None
        say({"size": response.size})
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        say({"size": response.size})


async def storm():
    """storm PATH COUNT: starts this many handshakes that never complete, and then sends a request."""
    loop = asyncio.get_running_loop()
    for _ in range(int(sys.argv[4])):
        connection = QuicConnection(configuration=configuration())
        connection.connect((HOST, int(PORT)), now=loop.time())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for data, address in connection.datagrams_to_send(now=loop.time()):
                sender.sendto(data, address)
    async with dial() as client:
        say((await client.ask("GET", sys.argv[3])).shown())


async def flood():
    """flood PATH COUNT yes|no: this many handshakes whose clients go silent after the server's first flight. With `yes`,
    they prove their address when asked. A client with another address makes a request. Waits for a line on standard input."""
    loop = asyncio.get_running_loop()
    counts, held = {"accepted": 0, "retried": 0, "refused": 0}, []

    def exchange(connection, sender):
        """The server's next datagram. What is lost is sent again."""
        sent = [data for data, _ in connection.datagrams_to_send(now=loop.time())]
        while True:
            for data in sent:
                sender.send(data)
            try:
                return sender.recv(65536)
            except TimeoutError:
                continue

    for _ in range(int(sys.argv[4])):
        connection = QuicConnection(configuration=configuration())
        connection.connect((HOST, int(PORT)), now=loop.time())
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.settimeout(2)
        sender.connect((HOST, int(PORT)))
        held.append((connection, sender))
        data = exchange(connection, sender)
        is_retry = data[0] & 0xF0 == 0xF0
        if is_retry:
            counts["retried"] += 1
            if sys.argv[5] == "no":
                continue
            connection.receive_datagram(data, (HOST, int(PORT)), now=loop.time())
            data = exchange(connection, sender)
        connection.receive_datagram(data, (HOST, int(PORT)), now=loop.time())
        counts["refused" if connection._close_event else "accepted"] += 1
    say(counts)
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.readline)
    honest = QuicConnection(configuration=configuration())
    _, client = await loop.create_datagram_endpoint(lambda: Client(honest), local_addr=("127.0.0.2", 0))
    client.connect((HOST, int(PORT)))
    await asyncio.wait_for(client.wait_connected(), TIMEOUT_S)
    say((await client.ask("GET", sys.argv[3])).shown())


async def load():
    """load PATH CONNECTIONS: sends requests on each connection until there is a line on standard input. Prints how many
    failed."""
    stop = asyncio.Event()
    done, failed, closes = 0, [], 0

    async def one():
        nonlocal done, closes
        while not stop.is_set():
            async with dial() as client:
                while not stop.is_set() and not client.closed.is_set():
                    stream, response = client.begin("GET", sys.argv[3])
                    try:
                        await asyncio.wait_for(response.ended.wait(), TIMEOUT_S)
                    except asyncio.TimeoutError:
                        failed.append("timeout")
                        break
                    if response.heads and response.size == int(sys.argv[5]):
                        done += 1
                    elif response.reset == ErrorCode.H3_REQUEST_REJECTED or client.goaway_before(stream):
                        # Not processed, so it is sent again on another connection.
                        closes += 1
                        break
                    else:
                        event = client.close_event
                        failed.append(f"{event and (event.error_code, event.reason_phrase)} {response.reset} {response.size} stream {stream} goaway {client.goaway}")
                        break
                    if client.goaway is not None:
                        closes += 1
                        break

    tasks = [asyncio.create_task(one()) for _ in range(int(sys.argv[4]))]
    say({"started": True})
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    stop.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    failed += [repr(result) for result in results if result]
    say({"done": done, "failed": failed, "farewells": closes})


class GoawayClient(Client):
    """Stores the stream ID of the last GOAWAY, which aioquic ignores. Our server opens its control stream first."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.goaway = None
        self.control = b""

    def quic_event_received(self, event):
        if isinstance(event, StreamDataReceived) and event.stream_id == 3:
            self.control += event.data
            frames = Buffer(data=self.control)
            frames.pull_uint_var()
            try:
                while not frames.eof():
                    kind, payload = frames.pull_uint_var(), frames.pull_bytes(frames.pull_uint_var())
                    if kind == FrameType.GOAWAY:
                        self.goaway = Buffer(data=payload).pull_uint_var()
            except BufferReadError:
                pass
        super().quic_event_received(event)

    def goaway_before(self, stream):
        return self.goaway is not None and stream >= self.goaway


COMMANDS = {"get": get, "named": named, "head": head, "post": post, "expect": expect, "many": many, "cancel": cancel, "overtake": overtake, "resume": resume, "large_head": large_head, "migrate": migrate, "hold": hold, "slow": slow, "pause": pause, "trickle": trickle, "upload": upload, "keep": keep, "silent": silent, "storm": storm, "flood": flood, "load": load}

if __name__ == "__main__":
    if sys.argv[1] == "load":
        plain, dial_with = dial, GoawayClient
        dial = lambda **options: plain(dial_with, **options)
    asyncio.run(COMMANDS[sys.argv[1]]())
