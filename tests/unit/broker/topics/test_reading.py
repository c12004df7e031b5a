"""What a topic's consumers read, over real bookies: from memory, ahead, shared, and what becomes of errors."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
from daybook_broker.errors import NotReadyError
from daybook_broker.topics.ledger_reads import LedgerReads, ReadDelayedError
from daybook_broker.topics.reading import TopicReads
from daybook_broker.topics.tail_cache import TailCache

import daybook
from daybook.core.ids import EntryId, LedgerId
from daybook.core.topics.dispatch.entries import TopicEntry
from daybook.core.topics.ledger_list import NO_POSITION, Position
from daybook.wire.pulsar.entries import encode_entry
from daybook.wire.pulsar.pulsar_pb2 import MessageMetadata

pytestmark = pytest.mark.integration

LARGE = 2**20


class Ledgers:
    """A topic's ledgers, each with the last entry that may be read; the extent that readers ask."""

    def __init__(self, *ledgers: tuple[LedgerId, EntryId]) -> None:
        self.ends = dict(ledgers)

    def run(self, position: Position, entries_max: int) -> tuple[LedgerId, EntryId, EntryId] | None:
        """The entries of one ledger from `position`, or the next existing one, on."""
        for ledger_id, last in sorted(self.ends.items()):
            first = position.entry_id if position.ledger_id == ledger_id else 0
            if position.ledger_id <= ledger_id and first <= last:
                return ledger_id, max(first, 0), min(last, max(first, 0) + entries_max - 1)
        return None

    def contains(self, position: Position) -> bool:
        """Whether the entry can be read."""
        return 0 <= position.entry_id <= self.ends.get(position.ledger_id, -1)


def entry(number: int, messages: int = 1, size_bytes: int = 1000) -> bytes:
    """An entry as a producer sends it."""
    record = MessageMetadata(
        producer_name="p", sequence_id=number, publish_time=1, num_messages_in_batch=messages
    )
    return encode_entry(record, bytes(size_bytes))


async def written(client: daybook.Client, entries: Sequence[bytes], *, is_closed: bool = True) -> LedgerId:
    """A ledger with these entries on all its bookies: one that had only some of them would answer with fewer."""
    ledger = await client.create_ledger(ack_quorum=3)
    for part in (entries[:1], entries[1:]):
        if part:  # the second one reports to the bookies that the first one is confirmed
            await ledger.append_many(part)
    if is_closed:
        await ledger.close()
    else:
        await ledger.abandon()
    return ledger.id


def numbers(entries: Sequence[TopicEntry]) -> list[int]:
    """Their ids in their ledgers."""
    return [one.position.entry_id for one in entries]


@pytest.fixture
async def reads(client: daybook.Client) -> AsyncIterator[LedgerReads]:
    """The reads of a broker."""
    made = LedgerReads(client, TailCache(LARGE))
    yield made
    await made.close()


async def still_ours() -> None:
    """The topic's list has this owner's token."""


def of_topic(
    reads: LedgerReads, ledgers: Ledgers, confirm_owner: Callable[[], Awaitable[None]] = still_ours
) -> TopicReads:
    """The reads of a topic that this broker does not write."""
    return TopicReads(reads, ledgers, lambda _: None, confirm_owner)


async def read_all(topic: TopicReads, entries_max: int = 10, bytes_max: int = LARGE) -> list[TopicEntry]:
    """All entries, as a consumer that catches up reads them."""
    found: list[TopicEntry] = []
    at = NO_POSITION
    while batch := await topic.read(at, entries_max, bytes_max):
        found += batch
        at = Position(batch[-1].position.ledger_id, batch[-1].position.entry_id + 1)
    return found


async def test_a_backlog_is_read_over_all_ledgers_with_the_messages_of_each_entry(
    client: daybook.Client, reads: LedgerReads
) -> None:
    sent = [entry(number, 1 + number % 7) for number in range(300)]
    first, second = await written(client, sent[:120]), await written(client, sent[120:])
    empty = await written(client, [entry(0)])
    found = await read_all(of_topic(reads, Ledgers((first, 119), (second, 179), (empty, -1))))
    assert [bytes(one.data) for one in found] == sent
    assert [one.messages for one in found] == [1 + number % 7 for number in range(300)]
    assert [one.position for one in found] == [
        *((first, number) for number in range(120)),
        *((second, number) for number in range(180)),
    ]


async def test_the_next_run_is_on_its_way_while_one_is_dispatched(
    client: daybook.Client, reads: LedgerReads
) -> None:
    count = 500
    ledger_id = await written(client, [entry(number) for number in range(count)])
    topic = of_topic(reads, Ledgers((ledger_id, count - 1)))
    batch = await topic.read(Position(ledger_id, 0), 10, 65536)
    assert numbers(batch) == list(range(10))
    ahead = reads.ahead.at(ledger_id, 70)
    assert ahead is not None
    assert ahead.reading is not None, "a second run, which nobody has asked for"
    await ahead.reading
    assert topic.cached(Position(ledger_id, 10), 10, LARGE) is not None, "the rest of the first run"
    at = 10
    async with asyncio.timeout(40):
        while at < count:
            batch = await topic.read(Position(ledger_id, at), 100, LARGE)
            at += len(batch)
    assert reads.reads <= 5, "each run is larger than the one before"


async def test_nothing_beyond_the_end_is_read_and_nothing_is_an_answer(
    client: daybook.Client, reads: LedgerReads
) -> None:
    ledger_id = await written(client, [entry(number) for number in range(5)])
    ledgers = Ledgers((ledger_id, 2))
    topic = of_topic(reads, ledgers)
    assert numbers(await topic.read(NO_POSITION, 100, LARGE)) == [0, 1, 2]
    assert await topic.read(Position(ledger_id, 3), 100, LARGE) == []
    assert topic.cached(Position(ledger_id, 3), 100, LARGE) == []
    ledgers.ends[ledger_id] = 4
    assert topic.cached(Position(ledger_id, 3), 100, LARGE) is None
    assert numbers(await topic.read(Position(ledger_id, 3), 100, LARGE)) == [3, 4]


async def test_who_keeps_up_never_asks_a_bookie(client: daybook.Client, reads: LedgerReads) -> None:
    topic = TopicReads(reads, Ledgers((10**12, 3)), lambda _: None, still_ours)  # there is no such ledger
    reads.cache.add(10**12, 0, [(entry(number), 2) for number in range(4)])
    assert numbers(topic.cached(NO_POSITION, 3, LARGE) or ()) == [0, 1, 2]
    assert numbers(await topic.read(Position(10**12, 2), 9, LARGE)) == [2, 3]
    assert numbers(await topic.read_exact([Position(10**12, 1)])) == [1]
    assert (reads.reads, reads.totals.cache_hits, reads.totals.cache_misses) == (0, 5, 0)


async def test_subscriptions_side_by_side_share_their_reads(
    client: daybook.Client, reads: LedgerReads
) -> None:
    ledger_id = await written(client, [entry(number) for number in range(200)])
    topic = of_topic(reads, Ledgers((ledger_id, 199)))
    alone = await read_all(topic)
    once = reads.reads
    reads.forget([ledger_id])
    for same in await asyncio.gather(*(read_all(topic) for _ in range(10))):
        assert same == alone
    assert reads.reads == 2 * once


async def test_an_open_ledger_is_read_through_its_handle_and_after_its_end_as_well(
    client: daybook.Client, reads: LedgerReads
) -> None:
    ledger = await client.create_ledger()
    ledgers = Ledgers((ledger.id, 2))
    topic = TopicReads(reads, ledgers, {ledger.id: ledger}.get, still_ours)
    await ledger.append_many([entry(number) for number in range(3)])
    assert numbers(await topic.read(NO_POSITION, 100, LARGE)) == [0, 1, 2]
    await ledger.append_many([entry(number) for number in range(3, 6)])
    ledgers.ends[ledger.id] = 5
    assert numbers(await topic.read(Position(ledger.id, 3), 100, LARGE)) == [3, 4, 5]
    await ledger.append_many([entry(6)])
    await ledger.close()
    ledgers.ends[ledger.id] = 6
    assert numbers(await topic.read(Position(ledger.id, 6), 100, LARGE)) == [6]


async def test_a_ledger_that_was_open_and_is_recovered_is_read_to_its_new_end(
    client: daybook.Client, reads: LedgerReads
) -> None:
    ledger_id = await written(client, [entry(number) for number in range(4)], is_closed=False)
    ledgers = Ledgers((ledger_id, 0))
    topic = of_topic(reads, ledgers)
    assert numbers(await topic.read(NO_POSITION, 1, LARGE)) == [0]
    await client.recover((await client.ledgers.read(ledger_id)).value)
    ledgers.ends[ledger_id] = 3
    assert numbers(await topic.read(Position(ledger_id, 1), 9, LARGE)) == [1, 2, 3]


async def test_entries_are_read_again_one_by_one_in_any_order(
    client: daybook.Client, reads: LedgerReads
) -> None:
    first = await written(client, [entry(number) for number in range(100)])
    second = await written(client, [entry(number, size_bytes=70_000) for number in range(5)])
    topic = of_topic(reads, Ledgers((first, 99), (second, 4)))
    wanted = [
        *(Position(first, number) for number in (3, 5, 6, 90)),
        Position(first, 100),
        *(Position(second, number) for number in (0, 1, 4)),
        Position(first, 4),
    ]
    found = await topic.read_exact(wanted)
    assert [one.position for one in found] == [position for position in wanted if position != (first, 100)]
    assert reads.reads == 5, "entries near each other come by one read, unless they are large"
    assert await topic.read_exact([]) == []


async def test_rule_70_a_missing_ledger_is_skipped_only_if_the_list_says_that_it_was_trimmed(
    client: daybook.Client, reads: LedgerReads
) -> None:
    first, second = await written(client, [entry(0)]), await written(client, [entry(1)])
    ledgers = Ledgers((first, 0), (second, 0))
    topic = of_topic(reads, ledgers)
    await client.delete_ledger(first)
    for _ in range(2):
        with pytest.raises(ReadDelayedError, match="is missing, and its topic still has it"):
            await topic.read(NO_POSITION, 10, LARGE)
        with pytest.raises(ReadDelayedError, match="is missing, and its topic still has it"):
            await topic.read_exact([Position(first, 0), Position(second, 0)])

    async def superseded() -> None:
        msg = "another owner"
        raise NotReadyError(msg)

    of_another = of_topic(reads, ledgers, superseded)
    with pytest.raises(NotReadyError, match="another owner"):
        await of_another.read(NO_POSITION, 10, LARGE)
    with pytest.raises(NotReadyError, match="another owner"):
        await of_another.read_exact([Position(first, 0)])

    async def trimmed() -> None:
        del ledgers.ends[first]

    (found,) = await of_topic(reads, ledgers, trimmed).read(NO_POSITION, 10, LARGE)
    assert found.position == (second, 0), "the list has changed while it was asked for"


async def test_a_ledger_that_was_trimmed_meanwhile_is_gone_and_the_next_one_is_read(
    client: daybook.Client, reads: LedgerReads
) -> None:
    first, second = await written(client, [entry(0)]), await written(client, [entry(1)])
    ledgers = Ledgers((first, 0), (second, 0))
    topic = of_topic(reads, ledgers)
    await client.delete_ledger(first)
    reading = asyncio.create_task(topic.read(NO_POSITION, 10, LARGE))
    await asyncio.sleep(0)
    del ledgers.ends[first]
    topic.forget([first])
    (found,) = await reading
    assert found.position == (second, 0)
    assert await topic.read_exact([Position(first, 0)]) == []


async def test_what_cannot_be_read_now_is_delayed_and_read_later(
    client: daybook.Client, reads: LedgerReads
) -> None:
    ledger_id = await written(client, [entry(0)])
    ledgers = Ledgers((ledger_id, 1))  # as if the metadata were older than the topic's list
    topic = of_topic(reads, ledgers)
    with pytest.raises(ReadDelayedError, match="cannot be read now"):
        await topic.read(Position(ledger_id, 1), 10, LARGE)
    with pytest.raises(ReadDelayedError):
        await topic.read_exact([Position(ledger_id, 1)])
    assert numbers(await topic.read(Position(ledger_id, 0), 1, LARGE)) == [0]
    await reads.close()
    assert reads.ahead.asked_bytes == 0


async def test_reads_take_turns_within_the_bound_and_readers_are_bounded(client: daybook.Client) -> None:
    ledger_ids = [await written(client, [entry(number)]) for number in range(6)]
    reads = LedgerReads(client, TailCache(LARGE), bytes_max=150_000, readers_max=2)
    topic = of_topic(reads, Ledgers(*((ledger_id, 0) for ledger_id in ledger_ids)))
    reading = [
        asyncio.create_task(topic.read(Position(ledger_id, 0), 1, LARGE // 16)) for ledger_id in ledger_ids
    ]
    given_up = asyncio.create_task(topic.read(Position(ledger_ids[-1], 0), 1, LARGE // 16))
    await asyncio.sleep(0)
    assert reads.reads == 2
    given_up.cancel()
    found = await asyncio.gather(*reading)
    assert [numbers(batch) for batch in found] == [[0]] * 6
    assert reads.ahead.size_bytes + reads.ahead.asked_bytes <= 150_000
    assert len(reads._readers) == 2
    await reads.close()
