"""A gRPC server that fails in every way, and a client that reports what it observed.

    grpc_errors.py serve            prints the port it serves on
    grpc_errors.py call HOST:PORT   prints one line for each call
    grpc_errors.py rest HOST:PORT   the same for calls in which one side is silent for a second
"""

import collections
import os
import sys
import threading
import time
from concurrent import futures

import grpc

CODES = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]


def fail(request, context):
    """Fails before any message: the status is in the only HEADERS frame (Trailers-Only)."""
    context.set_trailing_metadata((("x-seen", request.decode()),))
    context.abort(CODES[int(request)], "no %s" % request.decode())


def succeed(request, context):
    context.set_trailing_metadata((("x-seen", request.decode()),))
    return request[::-1]


def stream_and_fail(request, context):
    for _ in range(3):
        yield request
    context.abort(CODES[int(request)], "late %s" % request.decode())


def talk(requests, context):
    for request in requests:
        yield request.upper()


# Events that are set when the call with this request has ended.
ENDED = collections.defaultdict(threading.Event)


def hang(request, context):
    """Ends only when the client cancels the call."""
    context.add_callback(ENDED[request].set)
    yield b"begun"
    ENDED[request].wait(60)


def has_ended(request, context):
    """Reports whether the call with this request ends in time."""
    return b"ended" if ENDED[request].wait(50) else b"goes on"


# Longer than the timeouts that do not apply to streams.
REST_S = 1.0


def rest_first(request, context):
    time.sleep(REST_S)
    return request


def rest_between(request, context):
    yield request
    time.sleep(REST_S)
    yield request


def join(requests, context):
    return b"".join(requests)


def serve():
    server = grpc.server(futures.ThreadPoolExecutor(8))
    methods = {
        "Fail": grpc.unary_unary_rpc_method_handler(fail),
        "Succeed": grpc.unary_unary_rpc_method_handler(succeed),
        "StreamAndFail": grpc.unary_stream_rpc_method_handler(stream_and_fail),
        "RestFirst": grpc.unary_unary_rpc_method_handler(rest_first),
        "RestBetween": grpc.unary_stream_rpc_method_handler(rest_between),
        "Join": grpc.stream_unary_rpc_method_handler(join),
        "Hang": grpc.unary_stream_rpc_method_handler(hang),
        "HasEnded": grpc.unary_unary_rpc_method_handler(has_ended),
        "Talk": grpc.stream_stream_rpc_method_handler(talk),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Errors", methods),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    # The parent process stops this one by closing its standard input.
    sys.stdin.read()
    server.stop(None)


def describe(error):
    return "%s %s" % (error.code().name, error.details())


def call(target):
    with grpc.insecure_channel(target) as channel:
        unary = lambda name: channel.unary_unary("/test.Errors/" + name)
        for index, code in enumerate(CODES):
            number = str(index).encode()
            try:
                unary("Fail")(number, timeout=60)
                print("fail", index, "no error")
            except grpc.RpcError as error:
                seen = dict(error.trailing_metadata() or ()).get("x-seen")
                print("fail", code.name, describe(error), seen == str(index))
            got = []
            try:
                for message in channel.unary_stream("/test.Errors/StreamAndFail")(number, timeout=60):
                    got.append(message)
                print("stream", index, "no error")
            except grpc.RpcError as error:
                print("stream", code.name, describe(error), len(got))
        answer, under_way = unary("Succeed").with_call(b"abc", timeout=60)
        print("succeed", answer.decode(), under_way.code().name, dict(under_way.trailing_metadata()).get("x-seen"))
        # Each message is sent after the response to the previous one.
        turn = threading.Semaphore(1)

        def words():
            for word in (b"one", b"two", b"three"):
                turn.acquire()
                yield word

        heard = []
        for message in channel.stream_stream("/test.Errors/Talk")(words(), timeout=60):
            heard.append(message.decode())
            turn.release()
        print("talk", " ".join(heard))
        request = os.urandom(8)
        messages = channel.unary_stream("/test.Errors/Hang")(request, timeout=60)
        first = next(messages).decode()
        messages.cancel()
        print("cancel", first, messages.code().name, unary("HasEnded")(request, timeout=60).decode())


def rest(target):
    def words():
        yield b"a"
        time.sleep(REST_S)
        yield b"b"

    with grpc.insecure_channel(target) as channel:
        print("late head", channel.unary_unary("/test.Errors/RestFirst")(b"a", timeout=60).decode())
        messages = channel.unary_stream("/test.Errors/RestBetween")(b"a", timeout=60)
        print("late messages", *(message.decode() for message in messages))
        print("late content", channel.stream_unary("/test.Errors/Join")(words(), timeout=60).decode())


if sys.argv[1] == "serve":
    serve()
elif sys.argv[1] == "rest":
    rest(sys.argv[2])
else:
    call(sys.argv[2])
