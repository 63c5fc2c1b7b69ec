"""HTTP/2 with PyPI's h2: `urgent.py http|https HOST:PORT LARGE URGENT` requests LARGE with urgency 5 and, once a
mebibyte of it has arrived, URGENT with urgency 0. Prints how many bytes of LARGE had arrived when URGENT was requested,
and when it was complete."""

import json
import select
import socket
import ssl
import sys

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, StreamEnded, StreamReset
from h2.settings import SettingCodes

SCHEME, (HOST, _, PORT), LARGE, URGENT = sys.argv[1], sys.argv[2].rpartition(":"), sys.argv[3], sys.argv[4]
BEGUN_BYTES = 1 << 20
# Larger than all content, so that only the link and the server limit the transfer.
WINDOW = 1 << 28
# The largest record of TLS (RFC 8446 §5.2).
RECORD_BYTES = (1 << 14) + 256 + 5


class Tls:
    """TLS that takes everything from the socket at once: a part of a record that stays there looks like content that
    waits."""

    def __init__(self, plain):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        self.plain, self.received, self.unsent = plain, ssl.MemoryBIO(), ssl.MemoryBIO()
        self.session = context.wrap_bio(self.received, self.unsent, server_hostname="localhost")
        self.exchange(self.session.do_handshake)

    def exchange(self, step):
        """Repeats `step` with more from the socket until it has a result."""
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self.flush()
                data = self.plain.recv(65536)
                if not data:
                    return b""
                self.received.write(data)
            finally:
                self.flush()

    def flush(self):
        self.plain.sendall(self.unsent.read())

    def sendall(self, data):
        if data:
            self.session.write(data)
            self.flush()

    def recv(self, size):
        return self.exchange(lambda: self.session.read(size))

    def has_record(self):
        """Returns true if what was taken from the socket has more content, or its beginning."""
        return self.session.pending() > 0 or self.received.pending > RECORD_BYTES


def dial():
    plain = socket.create_connection((HOST, int(PORT)), timeout=60)
    return plain if SCHEME == "http" else Tls(plain)


def has_more(peer):
    """Returns true if more has arrived, which the server sent before it can receive the next request."""
    if isinstance(peer, Tls):
        return peer.has_record() or bool(select.select([peer.plain], [], [], 0)[0])
    return bool(select.select([peer], [], [], 0)[0])


def main():
    connection, peer = H2Connection(H2Configuration(client_side=True)), dial()

    def ask(path, priority):
        stream = connection.get_next_available_stream_id()
        head = [(":method", "GET"), (":scheme", SCHEME), (":authority", "localhost"), (":path", path), ("priority", priority)]
        connection.send_headers(stream, head, end_stream=True)
        peer.sendall(connection.data_to_send())
        return stream

    connection.initiate_connection()
    connection.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: WINDOW})
    connection.increment_flow_control_window(WINDOW)
    large, urgent, before = ask(LARGE, "u=5"), None, 0
    sizes = {large: 0}
    while True:
        data = peer.recv(16384)
        if not data:
            raise EOFError(sizes)
        for event in connection.receive_data(data):
            if isinstance(event, StreamReset):
                raise EOFError(event)
            if isinstance(event, DataReceived):
                sizes[event.stream_id] += len(event.data)
            if isinstance(event, StreamEnded):
                # Also if this is the large response: then nothing was overtaken, and the figures show that.
                print(json.dumps({"before": before, "after": sizes[large], "urgent": sizes.get(urgent, 0)}))
                return
        if urgent is None and sizes[large] >= BEGUN_BYTES and not has_more(peer):
            before, urgent = sizes[large], ask(URGENT, "u=0")
            sizes[urgent] = 0
        peer.sendall(connection.data_to_send())


main()
