"""What a compaction on real Spark has written, as unmodified clients receive it: encrypted batches, and tables of keys.

The topic's own ledgers are trimmed first where that is possible, so that nobody else has what the job wrote.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pulsar
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

import daybook
from tests.fixtures.brokers import Brokers
from tests.fixtures.table_views import table_of
from tests.unit.spark.test_compaction import LIMIT_MS, Compact, Message, Topic, compact, last_of, topic
from tests.unit.spark.test_vanishing import admin, ledgers_of, until_trimmed

__all__ = ["compact", "topic"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

KEY_NAME = "a key"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> pulsar.CryptoKeyReader:
    """The keys with which producers encrypt, and consumers decrypt."""
    folder = tmp_path_factory.mktemp("keys")
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return pulsar.CryptoKeyReader(
        _written(
            folder / "public.pem",
            private.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            ),
        ),
        _written(
            folder / "private.pem",
            private.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            ),
        ),
    )


def _written(file: Path, content: bytes) -> str:
    file.write_bytes(content)
    return str(file)


async def publish_behind(
    client: daybook.Client, brokers: Brokers, topic: Topic, tail: Sequence[Message], batch: int = 1
) -> None:
    """Publish a tail, and have the owner drop what was there before: the compaction has replaced it, and no subscription needs it."""
    (own,) = await ledgers_of(client, topic.name)
    await admin(brokers, "PUT", topic.name, "/unload")
    await topic.publish(tail, batch=batch)
    await until_trimmed(client, topic.name, own)


def read_decrypted(
    client: pulsar.Client, topic: str, keys: pulsar.CryptoKeyReader
) -> list[tuple[str, Message]]:
    """What a reader with the keys finds."""
    reader = client.create_reader(
        topic, pulsar.MessageId.earliest, is_read_compacted=True, crypto_key_reader=keys
    )
    found = []
    while reader.has_message_available():
        message = reader.read_next(LIMIT_MS)
        found.append((str(message.message_id()), (message.partition_key() or None, message.data())))
    reader.close()
    return found


def left_of(sent: Sequence[tuple[str, Message]], batched: set[int]) -> list[tuple[str, Message]]:
    """Encrypted batches whole, and of all others the last of each key."""
    others = last_of([each for index, each in enumerate(sent) if index not in batched])
    return [each for index, each in enumerate(sent) if index in batched or each in others]


async def test_encrypted_batches_stay_whole_and_consumers_with_the_key_receive_them(
    client: daybook.Client,
    pulsar_client: pulsar.Client,
    brokers: Brokers,
    topic: Topic,
    compact: Compact,
    keys: pulsar.CryptoKeyReader,
) -> None:
    encrypted = {"encryption_key": KEY_NAME, "crypto_key_reader": keys}
    batch: list[Message] = [("a", b"1"), ("b", b"2"), ("a", b""), (None, b"keyless")]
    await topic.publish([("a", b"before"), ("b", b"before")], batch=2)
    await topic.publish(batch, batch=4, **encrypted)
    await topic.publish([("a", b"alone"), ("c", b"alone")], **encrypted)
    await topic.publish([("c", b"behind"), ("d", b"")], batch=2)
    expected = left_of(topic.sent, set(range(2, 6)))
    assert [message for _, message in expected] == [
        ("b", b"before"),
        *batch,
        ("a", b"alone"),
        ("c", b"behind"),
    ], "what nobody can look into counts for no key; the metadata of a message alone has its key"

    done = await asyncio.to_thread(compact, topic.name)
    assert done is not None
    await publish_behind(client, brokers, topic, [("a", b"last"), ("b", b"")])
    *_, last, deleted = topic.sent
    assert await asyncio.to_thread(read_decrypted, pulsar_client, topic.name, keys) == [
        *expected,
        last,
        deleted,
    ]

    await asyncio.to_thread(compact, topic.name)
    kept = [each for each in expected if each[1] not in {("a", b"alone"), ("b", b"before")}]
    assert await asyncio.to_thread(read_decrypted, pulsar_client, topic.name, keys) == [
        *kept,
        last,
    ], "a compaction of what an earlier one wrote leaves the batch whole, too"


async def test_a_reader_and_a_table_view_have_what_the_job_wrote_and_then_the_tail(
    client: daybook.Client,
    pulsar_client: pulsar.Client,
    brokers: Brokers,
    topic: Topic,
    compact: Compact,
) -> None:
    await topic.publish([(f"k{number % 5}", b"%d" % number) for number in range(20)], batch=4)
    await topic.publish([("k1", b""), ("k2", b"a"), ("k3", b"")], batch=3)
    await asyncio.to_thread(compact, topic.name)
    written = last_of(topic.sent)
    assert await topic.read() == written
    await publish_behind(client, brokers, topic, [("k0", b"later"), ("k7", b"7")], 2)
    tail = topic.sent[-2:]
    assert await topic.read() == [*written, *tail]
    assert await topic.read(is_compacted=False) == tail, "nobody else has what the job wrote"
    assert await asyncio.to_thread(table_of, pulsar_client, topic.name) == {
        "k0": b"later",
        "k2": b"a",
        "k4": b"19",
        "k7": b"7",
    }
