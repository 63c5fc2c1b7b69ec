"""gRPC with grpcio. `grpc_errors.py server` prints its port and serves. `grpc_errors.py client HOST:PORT` calls every
method and compares statuses, messages and trailing metadata.

Methods take the requested status and message as `CODE message`. A status without any response message is a
Trailers-Only response: HEADERS with END_STREAM.
"""

import sys
import threading
from concurrent import futures

import grpc

CODES = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]
# HTTP/2 does not allow whitespace at the ends of field values (RFC 9113, section 8.2.1).
MESSAGES = ["", "plain", "Größe 100 % \u2713", "two\nlines", " ".join(["long"] * 200)]
CODE_OF = {code.value[0]: code for code in grpc.StatusCode}
WAIT_S = 60


def abort(request, context):
    code, _, message = request.decode().partition(" ")
    if code != "0":
        context.set_trailing_metadata((("reason", "wanted"), ("blob-bin", b"\x00\xff")))
        context.abort(CODE_OF[int(code)], message)


def unary(request, context):
    abort(request, context)
    return request


def stream(request, context):
    """Sends as many messages as the first word says, and then the status."""
    count, _, rest = request.partition(b" ")
    for number in range(int(count)):
        yield b"message %d" % number
    abort(rest, context)


def collect(requests, context):
    """The first message is the status. An error is sent before the rest is read."""
    first = next(requests)
    abort(first, context)
    return b"%d" % (len(first) + sum(len(request) for request in requests))


def chat(requests, context):
    for request in requests:
        if request.startswith(b"end "):
            abort(request[4:], context)
            return
        yield request


def wait(request, context):
    """Waits until the client has disconnected."""
    gone = threading.Event()
    context.add_callback(gone.set)
    gone.wait(WAIT_S)
    return b""


def serve():
    methods = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Stream": grpc.unary_stream_rpc_method_handler(stream),
        "Collect": grpc.stream_unary_rpc_method_handler(collect),
        "Chat": grpc.stream_stream_rpc_method_handler(chat),
        "Wait": grpc.unary_unary_rpc_method_handler(wait),
    }
    server = grpc.server(futures.ThreadPoolExecutor(16))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("probe.Probe", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    server.wait_for_termination()


def check(what, seen, expected):
    assert seen == expected, f"{what}: {seen!r} instead of {expected!r}"


def check_failure(what, call, code, message, is_ours=True):
    try:
        call()
    except grpc.RpcError as error:
        check(what, (error.code(), error.details()), (code, message))
        if is_ours:
            trailing = {key: value for key, value in error.trailing_metadata() if key in ("reason", "blob-bin")}
            check(f"metadata of {what}", trailing, {"reason": "wanted", "blob-bin": b"\x00\xff"})
    else:
        raise AssertionError(f"{what}: no error")


def visit(address, name):
    with grpc.insecure_channel(address) as channel:
        unary = channel.unary_unary("/probe.Probe/Unary")
        stream = channel.unary_stream("/probe.Probe/Stream")
        collect = channel.stream_unary("/probe.Probe/Collect")
        chat = channel.stream_stream("/probe.Probe/Chat")
        for code in CODES:
            for message in MESSAGES:
                status = f"{code.value[0]} {message}".encode()
                what = f"{name}, {code.name} {message[:12]!r}"
                check_failure(f"unary {what}", lambda: unary(status, timeout=WAIT_S), code, message)
                check_failure(
                    f"collect {what}", lambda: collect(iter([status, b"more"]), timeout=WAIT_S), code, message
                )
                for count in (0, 3):
                    responses = stream(b"%d %s" % (count, status), timeout=WAIT_S)
                    seen = []
                    check_failure(
                        f"stream of {count} {what}", lambda: seen.extend(responses), code, message
                    )
                    check(f"messages before {what}", seen, [b"message %d" % number for number in range(count)])
        status = b"5 no such thing"
        seen = []
        check_failure(
            "chat",
            lambda: seen.extend(chat(iter([b"one", b"two", b"end " + status]), timeout=WAIT_S)),
            grpc.StatusCode.NOT_FOUND,
            "no such thing",
        )
        check("chat", seen, [b"one", b"two"])
        check("success", unary(b"0 fine", timeout=WAIT_S), b"0 fine")
        check("stream without messages", list(stream(b"0 0 fine", timeout=WAIT_S)), [])
        large = b"0 " + bytes(3 << 20)
        check("a large message", unary(large, timeout=WAIT_S), large)
        check("many messages", collect(iter([b"0 "] * 1000), timeout=WAIT_S), b"2000")
        unknown = channel.unary_unary("/probe.Probe/Unknown")
        check_failure(
            "unknown", lambda: unknown(b"", timeout=WAIT_S), grpc.StatusCode.UNIMPLEMENTED, "Method not found!", False
        )
        wait = channel.unary_unary("/probe.Probe/Wait")
        check_failure(
            "deadline", lambda: wait(b"", timeout=0.5), grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", False
        )
        call = wait.future(b"")
        call.cancel()
        check("cancelled", call.code(), grpc.StatusCode.CANCELLED)


def main():
    if sys.argv[1] == "server":
        serve()
        return
    with futures.ThreadPoolExecutor() as pool:
        visits = [pool.submit(visit, sys.argv[2], name) for name in ("alice", "bob")]
        for future in visits:
            future.result()
    print("all as expected")


main()
