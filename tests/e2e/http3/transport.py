"""Violates the rules of QUIC with aioquic, one per connection: `transport.py HOST:PORT NAME…` prints the error code
with which the server closed each connection. The names are those of h3spec's cases for QUIC servers."""

import asyncio
import contextlib
import json
import sys
from unittest import mock

sys.argv.insert(1, "transport")
from client import HOST, PORT, Client, configuration  # noqa: E402
from aioquic.asyncio.client import connect  # noqa: E402
from aioquic.buffer import Buffer, encode_uint_var as number  # noqa: E402
from aioquic.quic.connection import QuicConnection  # noqa: E402
from aioquic.quic.crypto import CryptoPair  # noqa: E402
from aioquic.quic.packet import pull_quic_transport_parameters, push_quic_transport_parameters  # noqa: E402
from aioquic.tls import Epoch  # noqa: E402

# A hanging case fails. No other case takes this long.
TIMEOUT_S = 60

HANDSHAKE_PACKET, PACKET_TYPE = 0xE0, 0xF0
RESERVED_BITS_LONG, RESERVED_BITS_SHORT = 0x0C, 0x18
TOKEN = bytes(range(16))


class Raw(Client):
    raw = True


def send_packet(client, payload, bits=0):
    """Sends a 1-RTT packet with this payload and these bits in the first byte."""
    quic = client._quic
    crypto = quic._cryptos[Epoch.ONE_RTT]
    # Four bytes of packet number, so that even an empty payload has enough bytes for header protection.
    header = bytes([0x43 | crypto.key_phase << 2 | bits]) + quic._peer_cid.cid + quic._packet_number.to_bytes(4, "big")
    client._transport.sendto(crypto.encrypt_packet(header, payload, quic._packet_number), quic._network_paths[0].addr)
    quic._packet_number += 1


def frames(*values, bits=0):
    """Sends a packet with these frames after the handshake. Values are bytes, or numbers to encode."""
    payload = b"".join(value if isinstance(value, bytes) else number(value) for value in values)
    return contextlib.nullcontext(), lambda client: send_packet(client, payload, bits)


def nothing(client):
    pass


def parameters(**changed):
    """Changes the transport parameters."""
    original = QuicConnection._serialize_transport_parameters

    def serialize(self):
        told = pull_quic_transport_parameters(Buffer(data=original(self)))
        for name, value in changed.items():
            setattr(told, name, value)
        output = Buffer(capacity=4096)
        push_quic_transport_parameters(output, told)
        return output.data

    return mock.patch.object(QuicConnection, "_serialize_transport_parameters", serialize), nothing


def preferred_address():
    """Appends the encoded parameter, which aioquic never sends as a client."""
    original = QuicConnection._serialize_transport_parameters
    value = b"\x7f\0\0\1" + b"\1\xbb" + bytes(18) + b"\x08" + bytes(range(8)) + TOKEN
    serialize = lambda self: original(self) + number(0x0D) + number(len(value)) + value  # noqa: E731
    return mock.patch.object(QuicConnection, "_serialize_transport_parameters", serialize), nothing


def extensions(change):
    """Changes the additional TLS extensions."""
    original = QuicConnection._initialize

    def initialize(self, peer_cid):
        original(self, peer_cid)
        self.tls.handshake_extensions = change(self.tls.handshake_extensions)

    return mock.patch.object(QuicConnection, "_initialize", initialize), nothing


def handshake_packets(change):
    """Changes Handshake packets. `change` gets the header, ending in length and packet number, and the payload."""
    original = CryptoPair.encrypt_packet

    def encrypt(self, header, payload, packet_number):
        if header[0] & PACKET_TYPE == HANDSHAKE_PACKET:
            header, payload = change(header, payload)
        return original(self, header, payload, packet_number)

    return mock.patch.object(CryptoPair, "encrypt_packet", encrypt), nothing


def set_reserved_bits(header, payload):
    return bytes([header[0] | RESERVED_BITS_LONG]) + header[1:], payload


def add_path_challenge(header, payload):
    frame = b"\x1a01234567"
    length = int.from_bytes(header[-4:-2], "big") + len(frame)
    return header[:-4] + length.to_bytes(2, "big") + header[-2:], frame + payload


def handshake_messages(change):
    """Changes the TLS messages in the client's Handshake packets, where aioquic sends only Finished."""
    original = QuicConnection._push_crypto_data

    def push(self):
        buffer = self._crypto_buffers[Epoch.HANDSHAKE]
        if message := buffer.data:
            buffer.seek(0)
            buffer.push_bytes(change(message))
        original(self)

    return mock.patch.object(QuicConnection, "_push_crypto_data", push), nothing


KEY_UPDATE = b"\x18\0\0\1\1"
END_OF_EARLY_DATA = b"\5\0\0\0"
CRYPTO, RESET_STREAM, STOP_SENDING, NEW_TOKEN, STREAM = 0x06, 0x04, 0x05, 0x07, 0x0F
MAX_STREAM_DATA, MAX_STREAMS, STREAMS_BLOCKED, NEW_CONNECTION_ID, HANDSHAKE_DONE = 0x11, 0x12, 0x16, 0x18, 0x1E

# What is patched while the client connects, and what the client then does.
SCENARIOS = {
    "flow control": lambda: frames(STREAM, 0, 100_000_000, 1, b"x"),
    "stream limit": lambda: frames(STREAM, 1_000_000_000, 0, 1, b"x"),
    "initial_source_connection_id missing": lambda: parameters(initial_source_connection_id=None),
    "original_destination_connection_id": lambda: parameters(original_destination_connection_id=b"DUMMY"),
    "preferred_address": preferred_address,
    "retry_source_connection_id": lambda: parameters(retry_source_connection_id=b"DUMMY"),
    "stateless_reset_token": lambda: parameters(stateless_reset_token=TOKEN),
    "max_udp_payload_size below 1200": lambda: parameters(max_udp_payload_size=1090),
    "ack_delay_exponent above 20": lambda: parameters(ack_delay_exponent=30),
    "max_ack_delay of 2^14": lambda: parameters(max_ack_delay=1 << 14),
    "unknown frame": lambda: frames(0x20),
    "no frames": lambda: frames(),
    "reserved bits in Handshake": lambda: handshake_packets(set_reserved_bits),
    "PATH_CHALLENGE in Handshake": lambda: handshake_packets(add_path_challenge),
    "reserved bits in Short": lambda: frames(1, bits=RESERVED_BITS_SHORT),
    "RESET_STREAM of a send-only stream": lambda: frames(RESET_STREAM, 3, 0, 0),
    "STOP_SENDING of a missing stream": lambda: frames(STOP_SENDING, 101, 0),
    "NEW_TOKEN": lambda: frames(NEW_TOKEN, 5, b"DUMMY"),
    "STREAM of a server's stream": lambda: frames(STREAM, 1, 0, 0),
    "STREAM of a send-only stream": lambda: frames(STREAM, 3, 0, 0),
    "MAX_STREAM_DATA of a missing stream": lambda: frames(MAX_STREAM_DATA, 101, 1_000_000),
    "MAX_STREAM_DATA of a receive-only stream": lambda: frames(MAX_STREAM_DATA, 2, 1_000_000),
    "MAX_STREAMS invalid": lambda: frames(MAX_STREAMS, (1 << 60) + 1),
    "STREAMS_BLOCKED invalid": lambda: frames(STREAMS_BLOCKED, (1 << 60) + 1),
    "Retire_Prior_To invalid": lambda: frames(NEW_CONNECTION_ID, 9, 19, b"\x08", bytes(range(8)), TOKEN),
    "connection ID of no bytes": lambda: frames(NEW_CONNECTION_ID, 9, 0, b"\0", TOKEN),
    "HANDSHAKE_DONE": lambda: frames(HANDSHAKE_DONE),
    "KeyUpdate in Handshake": lambda: handshake_messages(lambda finished: finished + KEY_UPDATE),
    "KeyUpdate in 1-RTT": lambda: frames(CRYPTO, 0, len(KEY_UPDATE), KEY_UPDATE),
    "application protocol unknown": lambda: (contextlib.nullcontext(), nothing),
    "transport parameters missing": lambda: extensions(lambda _: []),
    "transport parameters of another number": lambda: extensions(lambda given: [(0xFFA5, value) for _, value in given]),
    "EndOfEarlyData": lambda: handshake_messages(lambda finished: END_OF_EARLY_DATA + finished),
}


async def one(name):
    patched, act = SCENARIOS[name]()
    settings = configuration()
    if name == "application protocol unknown":
        settings.alpn_protocols = ["dummy"]
    with patched:
        async with connect(HOST, int(PORT), configuration=settings, create_protocol=Raw, wait_connected=False) as client:
            client.transmit()
            connected = asyncio.create_task(client.wait_connected())
            closed = asyncio.create_task(client.closed.wait())
            await asyncio.wait([connected, closed], timeout=TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
            if not client.closed.is_set():
                act(client)
            await asyncio.wait([closed], timeout=TIMEOUT_S)
            closed.cancel()
            with contextlib.suppress(ConnectionError):
                await connected
            event = client.close_event
            # The QUIC error, or None if the server has not closed the connection.
            return event and {"code": event.error_code, "quic": event.frame_type is not None, "reason": event.reason_phrase}


async def main():
    print(json.dumps({name: await one(name) for name in sys.argv[3:] or SCENARIOS}))


asyncio.run(main())
