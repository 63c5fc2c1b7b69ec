"""An HTTP/3 server with aioquic. Arguments: certificate, key, and mode. Prints its port, and runs until it is killed.

`serve` echoes every request after a 103, with field sections that use the dynamic table. `goaway` does the same for the
first requests of a connection, then announces that it processes no more, and `reject` rejects one request of each
connection. Every other mode is a way to fail."""

import asyncio
import sys

from aioquic.asyncio import serve
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.buffer import encode_uint_var
from aioquic.h3.connection import H3_ALPN, FrameType, H3Connection, encode_frame
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated

CHAIN, KEY, MODE = sys.argv[1:4]

# The first stream of a connection that the mode `goaway` does not process, and the one that `reject` rejects.
UNPROCESSED = 40

REQUEST_REJECTED = 0x10B
INTERNAL_ERROR = 0x102


class Protocol(QuicConnectionProtocol):
    http = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.requests = {}
        self.is_closing = False

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            if MODE == "no-settings":
                control = self._quic.get_next_available_stream_id(is_unidirectional=True)
                goaway = encode_frame(FrameType.GOAWAY, encode_uint_var(0))
                self._quic.send_stream_data(control, encode_uint_var(0) + goaway)
            else:
                self.http = H3Connection(self._quic)
        for http_event in self.http.handle_event(event) if self.http else []:
            self.handle(http_event)
        self.transmit()

    def handle(self, event):
        stream = event.stream_id
        if MODE == "goaway" and stream >= UNPROCESSED:
            if not self.is_closing:
                goaway = encode_frame(FrameType.GOAWAY, encode_uint_var(UNPROCESSED))
                self._quic.send_stream_data(self.http._local_control_stream_id, goaway)
            self.is_closing = True
            return
        if isinstance(event, HeadersReceived):
            self.requests[stream] = dict(event.headers), bytearray()
        elif isinstance(event, DataReceived):
            self.requests[stream][1].extend(event.data)
        if not event.stream_ended:
            return
        if MODE == "reset" or (MODE == "reject" and stream == UNPROCESSED):
            self._quic.reset_stream(stream, REQUEST_REJECTED)
        elif MODE == "close":
            self._quic.close(INTERNAL_ERROR)
        else:
            self.respond(stream)

    def respond(self, stream):
        fields, content = self.requests.pop(stream)
        link = (b"link", b"</style.css>; rel=preload")
        self.http.send_headers(stream, [(b":status", b"103"), link])
        head = [(b":status", b"200"), (b"x-request", fields[b":path"]), (b"x-agent", fields[b"user-agent"])]
        length = len(content) + (1 if MODE == "length" else 0)
        self.http.send_headers(stream, [*head, link, (b"content-length", str(length).encode())], not content)
        if content:
            self.http.send_data(stream, bytes(content), True)


async def main():
    configuration = QuicConfiguration(alpn_protocols=["hq" if MODE == "no-http3" else H3_ALPN[0]], is_client=False)
    configuration.load_cert_chain(CHAIN, KEY)
    server = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=Protocol)
    print(server._transport.get_extra_info("sockname")[1], flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
