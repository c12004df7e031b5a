"""What a hostile client sends before the broker knows it, and within CONNECT; some of them say nothing, and none of them reads an answer.

An attack is the bytes of some connections that are open at the same time, one item for each.
"""

from collections.abc import Callable
from random import Random
from typing import Final, TypeAlias

from daybook.wire.pulsar.frames import CONNECT_BYTES_MAX, encode_frame, frame_head
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand
from tests.process.fuzz.mutations import mutate
from tests.process.fuzz.pulsar_frames import command, make_odd, opening, random_edit, session

CONNECTIONS: Final = 5
SILENT: Final = 20
UNREAD: Final = 3_000
"""Commands whose answers nobody reads; test_connection.py fills all buffers, which takes more of them."""
UNKNOWN: Final = frame_head(b"\x08\x64", 0)
"""A command of a type that nobody knows, which is answered and does not end the connection."""

Greeting: TypeAlias = Callable[[Random], list[bytes]]


def _hello() -> BaseCommand:
    return command("CONNECT", "connect", client_version="hostile", protocol_version=21)


def garbage(random: Random) -> list[bytes]:
    """What no client of Pulsar says: another protocol, TLS on the plain port, anything."""
    tls = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    noise = [random.randbytes(random.choice((1, 7, 100, 5_000))) for _ in range(CONNECTIONS)]
    return [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", tls + random.randbytes(500), bytes(1_000), *noise]


def wrong_sizes(random: Random) -> list[bytes]:
    """Frames that are too long before CONNECT, that have no room for a command, or whose command is longer than they are."""
    sizes = (0, 1, 3, 4, 5, CONNECT_BYTES_MAX, CONNECT_BYTES_MAX + 1, 2**23, 2**31, 2**32 - 1)
    hello = _hello().SerializeToString()
    return [
        b"".join(random.choice(sizes).to_bytes(4, "big") for _ in range(2))
        + hello
        + bytes(random.choice((0, 100, CONNECT_BYTES_MAX)))
        for _ in range(CONNECTIONS)
    ]


def odd_connects(random: Random) -> list[bytes]:
    """CONNECT, perhaps twice, with fields that make no sense, and a session behind it that waits for no answer."""
    found = []
    for _ in range(CONNECTIONS):
        hello = _hello()
        for _ in range(1 + random.randrange(3)):
            make_odd(hello.connect, random)
        frame = frame_head(hello.SerializePartialToString(), 0)
        rest = [encode_frame(each) for each in opening("persistent://public/default/hostile")]
        found.append(frame * random.choice((1, 2)) + b"".join(rest))
    return found


def flipped_connects(random: Random) -> list[bytes]:
    """CONNECT with bytes changed anywhere, sizes too."""
    hello = encode_frame(_hello())
    return [
        mutate(hello, [random_edit(random) for _ in range(1 + random.randrange(3))])
        for _ in range(CONNECTIONS)
    ]


def commands_before_connect(random: Random) -> list[bytes]:
    """A session that forgets to say CONNECT."""
    frames = session("persistent://public/default/hostile", random)
    return [encode_frame(*frame) + encode_frame(_hello()) for frame in random.sample(frames, CONNECTIONS)]


def silent(random: Random) -> list[bytes]:
    """Half-open connections: a part of CONNECT, or nothing, and silence."""
    hello = encode_frame(_hello())
    return [hello[: random.choice((0, random.randrange(len(hello))))] for _ in range(SILENT)]


def unread(_: Random) -> list[bytes]:
    """Clients that ask and never read, one of them before CONNECT."""
    return [UNKNOWN * UNREAD, encode_frame(_hello()) + UNKNOWN * UNREAD]


GREETINGS: Final[dict[str, Greeting]] = {
    "garbage for a greeting": garbage,
    "wrong sizes for a greeting": wrong_sizes,
    "odd CONNECTs": odd_connects,
    "flipped CONNECTs": flipped_connects,
    "commands before CONNECT": commands_before_connect,
    "silent": silent,
    "unread": unread,
}
