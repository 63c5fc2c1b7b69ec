"""PyPI's hpack for comparison with our own: `oracle.py SEED CONNECTIONS`.

Prints a line of JSON per connection: its field blocks in hexadecimal, and what hpack decodes from each, or
the name of its error, after which the connection has no more blocks. Every second connection has a corrupted block, and
every twentieth ends with an unusual one.

`oracle.py decode` instead reads blocks in hexadecimal, one connection per line, and prints what hpack decodes
from them."""

import json
import random
import sys

from hpack import Decoder, Encoder, HPACKError

NAMES = [b":method", b":path", b":status", b"accept", b"cookie", b"content-length", b"date", b"x-a", b"x-long-name", b""]
VALUES = [b"GET", b"/", b"200", b"", b"*/*", b"gzip, deflate", b"a=b; c=d", b"0", b"\xff\xfe\x00", b" ~^|"]


def text(chosen, known):
    if chosen.random() < 0.6:
        return chosen.choice(known)
    return bytes(chosen.randrange(256) for _ in range(chosen.choice([1, 3, 9, 30, 200, 3000])))


def section(chosen):
    lines = [(text(chosen, NAMES), text(chosen, VALUES), chosen.random() < 0.1) for _ in range(chosen.randrange(12))]
    return lines + lines[: chosen.randrange(3)]


def corrupted(chosen, block):
    block = bytearray(block or b"\x82")
    for _ in range(chosen.choice([1, 1, 2, 5])):
        at = chosen.randrange(len(block))
        change = chosen.randrange(4)
        if change == 0:
            block[at] ^= 1 << chosen.randrange(8)
        elif change == 1:
            block[at] = chosen.choice([0, 0x1F, 0x20, 0x3F, 0x40, 0x7F, 0x80, 0xFF])
        elif change == 2:
            block.insert(at, chosen.randrange(256))
        else:
            del block[at : at + chosen.choice([1, 1, 5, len(block)])]
        if not block:
            block = bytearray(b"\x80")
    return bytes(block)


# An integer with more bytes than necessary, and three size updates.
UNUSUAL = [b"\x00\x01a\x7f\x80\x80\x80\x80\x00" + b"v" * 127, b"\x20\x20\x3f\xe1\x1f"]


def decoded(decoder, block):
    try:
        fields = decoder.decode(block, raw=True)
    except HPACKError as error:
        return type(error).__name__
    except Exception as error:
        # Other exceptions are bugs in the library, not errors in the block.
        return f"fault {type(error).__name__}"
    return [[name.hex(), value.hex()] for name, value in fields]


def new_decoder():
    return Decoder(max_header_list_size=1 << 40)


def generated(seed, connections):
    chosen = random.Random(seed)
    for number in range(connections):
        encoder, decoder, found = Encoder(), new_decoder(), []
        blocks = chosen.randrange(1, 8)
        wrong = chosen.randrange(blocks) if number % 2 else None
        for index in range(blocks):
            if chosen.random() < 0.2:
                encoder.header_table_size = chosen.choice([0, 64, 300, 4096])
            block = encoder.encode(section(chosen), huffman=chosen.random() < 0.7)
            if index == wrong:
                block = corrupted(chosen, block)
            elif number % 20 == 0 and index == blocks - 1:
                block = UNUSUAL[number // 20 % 2] + block
            found.append([block.hex(), decoded(decoder, block)])
            if isinstance(found[-1][1], str):
                break
        yield found


if sys.argv[1] == "decode":
    for line in sys.stdin:
        decoder = new_decoder()
        print(json.dumps([decoded(decoder, bytes.fromhex(block)) for block in line.split()]))
else:
    for found in generated(int(sys.argv[1]), int(sys.argv[2])):
        print(json.dumps(found))
