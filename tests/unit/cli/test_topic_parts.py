"""The parts of `daybook topic` that need no broker: partitions of keys, what a message looks like, an admin HTTP that redirects or refuses."""

import json
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest

from daybook.cli.topic.consumer import _all_but, _decoded, _is_set
from daybook.cli.topic.partitions import partition_of, partitions_of
from daybook.client.broker_admin import Admin, AdminError, subscription_path
from daybook.core.topics.name import TopicName
from daybook.wire.pulsar.entries import encode_entry, split_entry
from daybook.wire.pulsar.errors import EntryError
from daybook.wire.pulsar.pulsar_pb2 import CompressionType, MessageMetadata

TOPIC = TopicName.parse("t")
JAVA_HASHES = {"": 0, "abc": 96354, "polygenelubricants": -(1 << 31)}


@pytest.mark.parametrize("key", ["", "abc", "polygenelubricants"])
def test_a_key_has_the_partition_that_javas_hash_gives_it(key: str) -> None:
    java = JAVA_HASHES[key] & 0x7FFFFFFF
    for count in (1, 3, 7):
        assert partition_of(key, range(count)) == java % count


def test_a_key_beyond_the_first_plane_counts_as_two_characters_as_in_java() -> None:
    high, low = 0xD83D, 0xDE00
    assert partition_of("😀", range(1000)) == (31 * high + low) % 1000


def test_a_topic_without_partitions_carries_its_messages_itself() -> None:
    assert partitions_of(TOPIC, 0) == [TOPIC]
    assert [each.local for each in partitions_of(TOPIC, 2)] == ["t-partition-0", "t-partition-1"]


@pytest.mark.parametrize("batch", [1, 5, 64, 65, 130])
def test_an_ack_set_leaves_all_but_the_named_messages(batch: int) -> None:
    named = {0, batch - 1}
    words = _all_but(named, batch)
    assert all(-(1 << 63) <= word < 1 << 63 for word in words), "they are signed in the protocol"
    assert {index for index in range(batch) if not _is_set(words, index)} == named


def entry_of(payload: bytes, **fields: Any) -> tuple[MessageMetadata, Any]:
    """An entry and its metadata."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=0, **fields)
    return metadata, split_entry(encode_entry(metadata, payload))


def test_a_payload_is_decompressed_where_that_is_possible_and_named_where_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = b"a" * 1000
    assert _decoded(*entry_of(plain)) == (plain, "")
    packed = entry_of(zlib.compress(plain), compression=CompressionType.ZLIB, uncompressed_size=len(plain))
    assert _decoded(*packed) == (plain, "")
    other = pa.Codec("zstd").compress(plain, asbytes=True)
    packed = entry_of(other, compression=CompressionType.ZSTD, uncompressed_size=len(plain))
    assert _decoded(*packed) == (plain, "")
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed
    assert _decoded(*packed) == (other, "ZSTD")


def test_a_payload_that_is_larger_than_it_says_is_not_unpacked_any_further() -> None:
    bomb = entry_of(zlib.compress(b"a" * 1000), compression=CompressionType.ZLIB, uncompressed_size=2000)
    with pytest.raises(EntryError, match="does not have the 2000 bytes that its metadata says"):
        _decoded(*bomb)
    for size_bytes, why in ((0, "its metadata says, once ZLIB is undone"), (1 << 30, "are allowed")):
        bomb = entry_of(
            zlib.compress(b"a" * 1000), compression=CompressionType.ZLIB, uncompressed_size=size_bytes
        )
        with pytest.raises(EntryError, match=why):
            _decoded(*bomb)


@contextmanager
def admin_server(answers: dict[str, tuple[int, dict[str, str], bytes]]) -> Iterator[tuple[str, list[str]]]:
    """An admin HTTP with these answers by path; its address, and what was asked. With a status of 0 it takes a request and does not answer."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            asked.append(f"{self.command} {self.path} {self.rfile.read(length).decode()}".strip())
            status, headers, body = answers[self.path]
            if not status:
                return  # the connection ends without an answer
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = _answer  # noqa: N815 - the library's names

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_request_follows_the_topic_to_its_owner_with_its_method_and_body() -> None:
    path = "/admin/v2/persistent/public/default/t/partitions"
    with admin_server({path: (204, {}, b"")}) as (owner, asked_owner):
        redirect = (307, {"Location": f"{owner}{path}"}, b"")
        with admin_server({path: redirect}) as (first, asked_first):
            assert Admin([first]).ask("PUT", TOPIC, "partitions", 3) is None
    assert asked_first == asked_owner == [f"PUT {path} 3"]


def test_an_error_is_what_the_broker_says() -> None:
    path = "/admin/v2/persistent/public/default/t/stats"
    body = json.dumps({"reason": "topic t does not exist: create it first"}).encode()
    with admin_server({path: (404, {}, body)}) as (url, _), pytest.raises(AdminError) as raised:
        Admin([url]).ask("GET", TOPIC, "stats")
    assert (raised.value.status, str(raised.value)) == (404, "topic t does not exist: create it first")


def test_a_broker_that_is_gone_is_passed_over() -> None:
    path = "/admin/v2/persistent/public/default/t/stats"
    with admin_server({path: (200, {}, b'{"msgInCounter": 1}')}) as (url, _):
        assert Admin(["http://127.0.0.1:1", url]).ask("GET", TOPIC, "stats") == {"msgInCounter": 1}
    with pytest.raises(AdminError, match="does not answer"):
        Admin(["http://127.0.0.1:1"]).ask("GET", TOPIC, "stats")
    with pytest.raises(AdminError, match="no broker with an admin address"):
        Admin([]).ask("GET", TOPIC, "stats")


def test_a_change_whose_answer_was_lost_is_sent_to_no_other_broker() -> None:
    rest = subscription_path("s", "skip/100")
    path = f"/admin/v2/persistent/public/default/t/{rest}"
    with (
        admin_server({path: (0, {}, b"")}) as (silent, asked_silent),
        admin_server({path: (200, {}, b"1")}) as (other, asked_other),
    ):
        with pytest.raises(
            AdminError, match=r"may have been carried out: read `daybook topic stats`"
        ) as raised:
            Admin([silent, other]).ask("POST", TOPIC, rest)
        assert (raised.value.status, raised.value.is_outcome_unknown) == (0, True)
        assert (asked_silent, asked_other) == ([f"POST {path}"], [])
        assert Admin(["http://127.0.0.1:1", other]).ask("POST", TOPIC, rest) == 1, "no connection, no request"
        assert Admin([silent, other]).ask("GET", TOPIC, rest) == 1, "twice read is once read"


def test_a_subscription_of_any_name_is_one_part_of_a_path() -> None:
    assert subscription_path("a b/c", "skip/3") == "subscription/a%20b%2Fc/skip/3"
