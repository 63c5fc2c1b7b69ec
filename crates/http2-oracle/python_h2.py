"""PyPI's h2 on the cases of this crate.

Reads a case on each line, the role and the frames in hexadecimal digits, and prints a line of JSON for each: the verdicts
on the frames, up to a connection error. See `Verdict` in src/lib.rs."""

import json
import sys

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings

ACTION, RESETS = 0xF0, 1
PAYLOAD_BYTES_MAX = 16384
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
OWN_REQUESTS = [(1, "GET", True), (3, "HEAD", True), (5, "POST", False), (7, "GET", True)]
CANCEL = 8


def frames(data):
    while len(data) >= 9:
        length = int.from_bytes(data[:3], "big")
        if len(data) < 9 + length and length <= PAYLOAD_BYTES_MAX:
            return
        frame, data = data[: 9 + length], data[9 + length :]
        yield frame[3], frame[4], int.from_bytes(frame[5:9], "big") & 0x7FFFFFFF, frame


class Endpoint:
    def __init__(self, is_server):
        self.is_server = is_server
        config = h2.config.H2Configuration(client_side=not is_server, header_encoding=None)
        self.connection = h2.connection.H2Connection(config=config)
        codes = h2.settings.SettingCodes
        values = {codes.MAX_HEADER_LIST_SIZE: 16384, codes.INITIAL_WINDOW_SIZE: 65535}
        values |= {codes.MAX_CONCURRENT_STREAMS: 4, codes.ENABLE_CONNECT_PROTOCOL: 1} if is_server else {codes.ENABLE_PUSH: 0}
        self.connection.local_settings = h2.settings.Settings(client=not is_server, initial_values=values)
        self.connection.decoder.max_header_list_size = 16384
        self.connection.initiate_connection()
        # Streams on which the application may act: what has ended, own side and peer's.
        self.streams = {}
        if is_server:
            self.connection.receive_data(PREFACE)
        else:
            for stream, method, ends in OWN_REQUESTS:
                head = [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", "/")]
                self.connection.send_headers(stream, head, end_stream=ends)
                self.streams[stream] = [ends, False]
        self.connection.data_to_send()

    def ended(self, stream, side):
        if stream in self.streams:
            self.streams[stream][side] = True
            if all(self.streams[stream]):
                del self.streams[stream]

    def act(self, resets, stream):
        if stream not in self.streams:
            return
        if resets:
            self.connection.reset_stream(stream, CANCEL)
            del self.streams[stream]
        elif not self.streams[stream][0]:
            if self.is_server:
                self.connection.send_headers(stream, [(":status", "200")], end_stream=True)
            else:
                self.connection.end_stream(stream)
            self.ended(stream, 0)
        self.connection.data_to_send()

    def receive(self, frame):
        try:
            events = self.connection.receive_data(frame)
        except h2.exceptions.ProtocolError as error:
            return ["connection", int(getattr(error, "error_code", 1))]
        except Exception as error:
            # The library's own faults are no verdict.
            return ["fault", type(error).__name__]
        for kind, _, stream, sent in frames(self.connection.data_to_send()):
            if kind == 3:
                self.streams.pop(stream, None)
                return ["stream", stream, int.from_bytes(sent[9:13], "big")]
        ended = {event.stream_id for event in events if isinstance(event, h2.events.StreamEnded)}
        for event in events:
            verdict = self.verdict(event, ended)
            if verdict:
                return verdict
        return ["nothing"]

    def verdict(self, event, ended):
        stream = getattr(event, "stream_id", None)
        messages = (h2.events.RequestReceived, h2.events.ResponseReceived, h2.events.InformationalResponseReceived)
        if isinstance(event, messages):
            if self.is_server:
                self.streams[stream] = [False, False]
            if stream in ended:
                self.ended(stream, 1)
            return ["message", stream, fields(event.headers), stream in ended]
        if isinstance(event, h2.events.DataReceived) and (event.data or stream in ended):
            if stream in ended:
                self.ended(stream, 1)
            return ["data", stream, event.data.hex(), stream in ended]
        if isinstance(event, h2.events.TrailersReceived):
            self.ended(stream, 1)
            return ["trailers", stream, fields(event.headers)]
        if isinstance(event, h2.events.StreamReset):
            self.streams.pop(stream, None)
            return ["reset", stream, int(event.error_code)]
        return None


def fields(headers):
    return [[bytes(name).hex(), bytes(value).hex()] for name, value in headers]


def verdicts(is_server, data):
    endpoint, found = Endpoint(is_server), []
    for kind, flags, stream, frame in frames(data):
        if kind == ACTION:
            try:
                endpoint.act(flags & RESETS, stream)
            except h2.exceptions.H2Error:
                # It can do nothing more after a GOAWAY, for one.
                found.append(["fault", "action"])
                break
            continue
        found.append(endpoint.receive(frame))
        if found[-1][0] in ("connection", "fault"):
            break
    return found


for line in sys.stdin:
    role, digits = line.split(" ")
    print(json.dumps(verdicts(role == "server", bytes.fromhex(digits))))
