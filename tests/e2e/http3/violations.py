"""Violates the rules of HTTP/3 with aioquic, one per connection: `violations.py HOST:PORT NAME…` prints how each ended.

The names are those of h3spec's cases, if it has the case."""

import asyncio
import json
import sys

sys.argv.insert(1, "violations")
from client import TIMEOUT_S, Client, dial  # noqa: E402
from aioquic.buffer import encode_uint_var  # noqa: E402
from aioquic.h3.connection import FrameType, StreamType, encode_frame, encode_settings  # noqa: E402
from pylsqpack import Encoder  # noqa: E402


class Raw(Client):
    raw = True

    def uni(self, kind, data=b"", ends=False):
        stream = self._quic.get_next_available_stream_id(is_unidirectional=True)
        self._quic.send_stream_data(stream, encode_uint_var(kind) + data, ends)
        self.transmit()
        return stream

    def control(self, data=b"", settings=b""):
        return self.uni(StreamType.CONTROL, encode_frame(FrameType.SETTINGS, settings) + data)

    def bidi(self, data, ends=False):
        stream = self._quic.get_next_available_stream_id()
        self._quic.send_stream_data(stream, data, ends)
        self.transmit()
        return stream

    async def reset_control(self):
        stream = self.control()
        # An immediate reset would discard data that has not been sent.
        await asyncio.sleep(0.3)
        self._quic.reset_stream(stream, 0x100)
        self.transmit()

    async def reset_rapidly(self):
        self.control()
        while not self.closed.is_set():
            # Otherwise, aioquic would also reset streams that it may not open yet.
            if self._quic.get_next_available_stream_id() // 4 < self._quic._remote_max_streams_bidi:
                stream = self.bidi(headers(*GET))
                self._quic.reset_stream(stream, 0x10C)
                self._quic.stop_stream(stream, 0x10C)
                self.transmit()
            else:
                await asyncio.sleep(0.001)

    def beyond_the_limit(self):
        self._quic._remote_max_streams_bidi = 1 << 30
        self._quic.send_stream_data(4 * 5000, b"x")
        self.transmit()


def section(fields):
    return Encoder().encode(0, [(k.encode(), v.encode()) for k, v in fields])[1]


def headers(*fields):
    return encode_frame(FrameType.HEADERS, section(fields))


GET = ((":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/"))
POST = ((":method", "POST"), *GET[1:])


def setting(number, value):
    return encode_uint_var(number) + encode_uint_var(value)


def then(*actions):
    def run(client):
        for action in actions:
            action(client)
    return run


CONTROL = Raw.control

# What the client does. A reset applies to the first request stream.
SCENARIOS = {
    # Control stream.
    "data before settings": lambda c: c.uni(StreamType.CONTROL, encode_frame(FrameType.GOAWAY, b"\0")),
    "settings twice": lambda c: c.control(encode_frame(FrameType.SETTINGS, b"")),
    "data on the control stream": lambda c: c.control(encode_frame(FrameType.DATA, b"x")),
    "headers on the control stream": lambda c: c.control(headers(*GET)),
    "push promise on the control stream": lambda c: c.control(encode_frame(FrameType.PUSH_PROMISE, b"\0")),
    "second control stream": then(CONTROL, CONTROL),
    "second encoder stream": then(CONTROL, lambda c: c.uni(2), lambda c: c.uni(2)),
    "second decoder stream": then(CONTROL, lambda c: c.uni(3), lambda c: c.uni(3)),
    "control stream closed": lambda c: c.uni(StreamType.CONTROL, encode_frame(FrameType.SETTINGS, b""), ends=True),
    "control stream reset": lambda c: c.reset_control(),
    "encoder stream closed": then(CONTROL, lambda c: c.uni(2, ends=True)),
    "decoder stream closed": then(CONTROL, lambda c: c.uni(3, ends=True)),
    "client push stream": then(CONTROL, lambda c: c.uni(StreamType.PUSH, b"\0")),
    "setting repeated": lambda c: c.control(settings=setting(6, 100) + setting(6, 100)),
    "setting of http2": lambda c: c.control(settings=setting(2, 0)),
    "setting truncated": lambda c: c.control(settings=b"\x06"),
    "extended connect of two": lambda c: c.control(settings=setting(8, 2)),
    "frame of http2": lambda c: c.control(encode_frame(0x6, b"12345678")),
    "goaway truncated": lambda c: c.control(encode_frame(FrameType.GOAWAY, b"")),
    "goaway increased": lambda c: c.control(encode_frame(FrameType.GOAWAY, b"\0") + encode_frame(FrameType.GOAWAY, b"\4")),
    "max push id decreased": lambda c: c.control(encode_frame(FrameType.MAX_PUSH_ID, b"\4") + encode_frame(FrameType.MAX_PUSH_ID, b"\2")),
    "cancel push unknown": lambda c: c.control(encode_frame(FrameType.CANCEL_PUSH, b"\0")),
    "frame too long": lambda c: c.control(encode_frame(FrameType.MAX_PUSH_ID, b"\4\4\4")),
    # Request streams.
    "data before headers": then(CONTROL, lambda c: c.bidi(encode_frame(FrameType.DATA, b"x"))),
    "settings on a request": then(CONTROL, lambda c: c.bidi(headers(*GET) + encode_frame(FrameType.SETTINGS, b""))),
    "goaway on a request": then(CONTROL, lambda c: c.bidi(headers(*GET) + encode_frame(FrameType.GOAWAY, b"\0"))),
    "cancel push on a request": then(CONTROL, lambda c: c.bidi(encode_frame(FrameType.CANCEL_PUSH, b"\0"))),
    "max push id on a request": then(CONTROL, lambda c: c.bidi(encode_frame(FrameType.MAX_PUSH_ID, b"\0"))),
    "push promise of a client": then(CONTROL, lambda c: c.bidi(encode_frame(FrameType.PUSH_PROMISE, b"\0"))),
    "frame truncated": then(CONTROL, lambda c: c.bidi(headers(*POST) + b"\0\x0axy", ends=True)),
    "http2 frame on a request": then(CONTROL, lambda c: c.bidi(encode_frame(0x8, b"1234"))),
    # QPACK.
    "section invalid": then(CONTROL, lambda c: c.bidi(encode_frame(FrameType.HEADERS, b"\0\0\xff\xff\xff"))),
    "section of a missing entry": then(CONTROL, lambda c: c.bidi(encode_frame(FrameType.HEADERS, b"\0\0\x80"))),
    "static index invalid": then(CONTROL, lambda c: c.bidi(encode_frame(FrameType.HEADERS, b"\0\0\xff\x7f"))),
    "capacity too large": then(CONTROL, lambda c: c.uni(2, b"\x3f\xff\xff\xff\x7f")),
    "encoder names a missing entry": then(CONTROL, lambda c: c.uni(2, b"\x81\0")),
    "decoder increments by zero": then(CONTROL, lambda c: c.uni(3, b"\0")),
    "decoder acknowledges nothing": then(CONTROL, lambda c: c.uni(3, b"\x81")),
    # Malformed requests, which end only their stream.
    "upper case": then(CONTROL, lambda c: c.bidi(headers(*GET, ("Upper", "x")), ends=True)),
    "line feed in a value": then(CONTROL, lambda c: c.bidi(headers(*GET, ("x", "a\nb")), ends=True)),
    "space before a value": then(CONTROL, lambda c: c.bidi(headers(*GET, ("x", " a")), ends=True)),
    "length invalid": then(CONTROL, lambda c: c.bidi(headers(*POST, ("content-length", "+1")), ends=True)),
    "lengths differ": then(CONTROL, lambda c: c.bidi(headers(*POST, ("content-length", "1"), ("content-length", "2")), ends=True)),
    "content longer than declared": then(CONTROL, lambda c: c.bidi(headers(*POST, ("content-length", "1")) + encode_frame(FrameType.DATA, b"abc"))),
    "trailers too large": then(CONTROL, lambda c: c.bidi(headers(*POST) + headers(*[("x", "y" * 10_000)] * 7), ends=True)),
    "request without fields": then(CONTROL, lambda c: c.bidi(encode_frame(0x21, b"x"), ends=True)),
    "pseudo-field repeated": then(CONTROL, lambda c: c.bidi(headers(*GET, (":path", "/")), ends=True)),
    "pseudo-field after fields": then(CONTROL, lambda c: c.bidi(headers(("a", "b"), *GET), ends=True)),
    "pseudo-field unknown": then(CONTROL, lambda c: c.bidi(headers(*GET, (":foo", "x")), ends=True)),
    "path missing": then(CONTROL, lambda c: c.bidi(headers(*GET[:3]), ends=True)),
    "method missing": then(CONTROL, lambda c: c.bidi(headers(*GET[1:]), ends=True)),
    "scheme missing": then(CONTROL, lambda c: c.bidi(headers(GET[0], *GET[2:]), ends=True)),
    "status in a request": then(CONTROL, lambda c: c.bidi(headers(*GET, (":status", "200")), ends=True)),
    "pseudo-field in trailers": then(CONTROL, lambda c: c.bidi(headers(*POST) + headers((":path", "/")), ends=True)),
    "connection field": then(CONTROL, lambda c: c.bidi(headers(*GET, ("connection", "close")), ends=True)),
    "te of gzip": then(CONTROL, lambda c: c.bidi(headers(*GET, ("te", "gzip")), ends=True)),
    "content shorter than declared": then(CONTROL, lambda c: c.bidi(headers(*POST, ("content-length", "5")) + encode_frame(FrameType.DATA, b"abc"), ends=True)),
    # Floods and exceeded limits.
    "fields far too large": then(CONTROL, lambda c: c.bidi(headers(*GET, *[("x", "y" * 60_000)] * 15), ends=True)),
    "rapid reset": lambda c: c.reset_rapidly(),
    "too many streams": then(CONTROL, lambda c: c.beyond_the_limit()),
    # Valid input, which must end neither stream nor connection.
    "unknown frames and streams": then(
        lambda c: c.control(encode_frame(0x21, b"grease") + encode_frame(0x40, b"")),
        lambda c: c.uni(0x21, b"grease"),
        lambda c: c.bidi(encode_frame(0x21, b"x") + headers(*GET), ends=True),
    ),
}


async def one(name):
    async with dial(Raw) as client:
        if asyncio.iscoroutine(running := SCENARIOS[name](client)):
            await asyncio.wait_for(running, TIMEOUT_S)
        client.transmit()
        for _ in range(TIMEOUT_S * 50):
            if client.closed.is_set():
                return ["closed", client.close_event.error_code, client.close_event.reason_phrase]
            resets = [response.reset for response in client.responses.values() if response.reset is not None]
            if resets:
                return ["reset", resets[0], ""]
            if any(stream.receiver.is_finished for key, stream in client._quic._streams.items() if key % 4 == 0) or client.answered:
                return ["answered", 0, ""]
            await asyncio.sleep(0.02)
        return ["nothing", 0, ""]


Raw.answered = False
received = Raw.quic_event_received


def watch(self, event):
    received(self, event)
    if getattr(event, "end_stream", False):
        self.answered = True


Raw.quic_event_received = watch


async def main():
    names = sys.argv[3:] or list(SCENARIOS)
    print(json.dumps({name: await one(name) for name in names}))


asyncio.run(main())
