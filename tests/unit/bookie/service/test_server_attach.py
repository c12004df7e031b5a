"""Many attachments at once: they share their reads of metadata, and none harms another (rule 20, rule 46)."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from daybook_bookie.service.questions import ReadMetadata

from daybook.core.errors import Code, DaybookError, MetadataUnavailableError
from daybook.core.ledger.metadata import LedgerMetadata, LedgerState
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.memory import Fault, FaultKind, MemoryStore
from daybook.wire import bookie_pb2 as pb
from tests.unit.bookie.server_kit import OVER_BOTH, RunningBookie, eventually, frame_of
from tests.unit.bookie.stream_kit import KEY, WAIT_S, Stream

pytestmark = OVER_BOTH

StartBookie = Callable[..., RunningBookie]


def ask(stream: Stream, *ledger_ids: int) -> None:
    """Ask for attachments, and wait for no answer."""
    for ledger_id in ledger_ids:
        stream.say(pb.ClientControl(attach=pb.Attach(ledger_id=ledger_id, key=KEY, purpose=pb.PURPOSE_WRITE)))


def answers(stream: Stream, count: int) -> dict[int, Code]:
    """The next answers, by ledger."""
    taken = [stream.take().attached for _ in range(count)]
    assert len({each.ledger_id for each in taken}) == count
    return {each.ledger_id: Code(each.code) for each in taken}


def create(bookie: RunningBookie, *ledger_ids: int) -> None:
    """Open ledgers with these ids, which rise."""
    for ledger_id in ledger_ids:
        bookie.create_ledger(ledger_id)


@contextmanager
def counted_requests(bookie: RunningBookie) -> Iterator[Counter[str]]:
    """How often the bookie asks ZooKeeper for what, apart from its collector, which ends."""
    bookie.bookie.collector.close()
    requests: Counter[str] = Counter()
    fault_for = bookie.metadata.fault_for

    def count(operation: str, path: str) -> Fault | None:
        requests[operation] += 1
        return fault_for(operation, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bookie.metadata, "fault_for", count)
        yield requests


class SlowReads:
    """Reads of metadata that wait for the test; `asked` has the ledgers of each."""

    def __init__(self, bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Sequence[int]] = []
        self.begun, self.released = threading.Event(), threading.Event()
        self.error: DaybookError | None = None
        self._read: ReadMetadata = bookie.link.read_ledgers
        monkeypatch.setattr(bookie.bookie.questions, "_read_metadata", self._slowly)

    def _slowly(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata | DaybookError | None]:
        self.asked.append(ledger_ids)
        self.begun.set()
        assert self.released.wait(WAIT_S)
        if self.error is not None:
            raise self.error
        return self._read(ledger_ids)


def all_wait(bookie: RunningBookie, count: int) -> bool:
    """Whether so many attachments have come to the bookie."""
    return eventually(lambda: bookie.bookie.attacher._taken == count)


def test_attachments_that_wait_together_share_a_sync(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = range(2, 62)
    create(bookie, *others)
    stream = bookie.open_stream()
    reads = SlowReads(bookie, monkeypatch)
    with counted_requests(bookie) as requests:
        ask(stream, 1)
        assert reads.begun.wait(WAIT_S)
        ask(stream, *others)
        assert all_wait(bookie, 61)
        reads.released.set()
        assert set(answers(stream, 61).values()) == {Code.OK}
    assert [len(each) for each in reads.asked] == [1, 60]
    assert requests["sync"] == 2
    assert stream.add(*(frame_of(each, 0, [b"x"]) for each in others)) == {}
    assert all_wait(bookie, 0)


def test_rule_20_the_metadata_is_read_after_a_sync_that_begins_after_the_attachment(
    bookie: RunningBookie,
) -> None:
    """Until the sync is answered, what this bookie's server shows may be as old as it likes."""
    stream = bookie.open_stream()
    with counted_requests(bookie) as requests:
        bookie.metadata.inject(Fault(FaultKind.HOLD, "sync", times=1))
        ask(stream, 1)
        assert eventually(lambda: requests["sync"] == 1)

        async def recover_and_continue() -> None:
            store = MemoryStore(bookie.metadata)
            manager = LedgerManager(store, bookie.link.layout)
            found = await manager.read(1)
            await manager.cas(found, found.value.in_recovery())
            bookie.metadata.release()
            await store.close()

        bookie.link.run(recover_and_continue())
        assert answers(stream, 1) == {1: Code.NOT_OPEN}


def test_one_ledger_that_cannot_be_read_harms_no_other(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie.create_ledger(2)
    bookie.create_ledger(3, state=LedgerState.IN_RECOVERY)
    create(bookie, 4, 5)
    bookie.delete_ledger(4)
    bookie.link.run(bookie.link.store.put(bookie.link.layout.ledger(2), b"damaged", None))
    stream = bookie.open_stream()
    reads = SlowReads(bookie, monkeypatch)
    ask(stream, 5)
    assert reads.begun.wait(WAIT_S)
    ask(stream, 1, 2, 3, 4)
    assert all_wait(bookie, 5)
    reads.released.set()
    assert answers(stream, 5) == {
        5: Code.OK,
        1: Code.OK,
        2: Code.UNAVAILABLE,
        3: Code.NOT_OPEN,
        4: Code.NO_SUCH_LEDGER,
    }


def test_rule_46_without_zookeeper_all_that_wait_are_answered_after_one_attempt(
    start_bookie: StartBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = start_bookie(attaches_at_once=2)
    ledger_ids = range(1, 8)
    create(bookie, *ledger_ids)
    stream = bookie.open_stream()
    reads = SlowReads(bookie, monkeypatch)
    reads.error = MetadataUnavailableError("no answer")
    ask(stream, *ledger_ids)
    assert all_wait(bookie, 7)
    reads.released.set()
    assert set(answers(stream, 7).values()) == {Code.UNAVAILABLE}
    assert len(reads.asked) == 1
    reads.error = None
    ask(stream, *ledger_ids)
    assert set(answers(stream, 7).values()) == {Code.OK}


def test_an_error_that_nobody_expected_is_answered_as_well(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(ledger_ids: Sequence[int]) -> list[LedgerMetadata | DaybookError | None]:
        raise AssertionError(ledger_ids)

    stream = bookie.open_stream()
    with monkeypatch.context() as patch:
        patch.setattr(bookie.bookie.questions, "_read_metadata", fail)
        assert stream.attach(1) is Code.UNAVAILABLE
    assert stream.attach(1) is Code.OK, "the thread lives"


def test_a_counter_that_cannot_be_read_harms_no_newer_ledger(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only for a ledger up to the highest that this bookie holds does the guard need it (rule 62)."""
    create(bookie, 2, 3, 4)
    bookie.bookie.collector.close()
    bookie.bookie.roll_back.judge(2, 4)

    def fail() -> int:
        raise MetadataUnavailableError("no answer")

    monkeypatch.setattr(bookie.link, "next_ledger_id", fail)
    stream = bookie.open_stream()
    reads = SlowReads(bookie, monkeypatch)
    ask(stream, 4)
    assert reads.begun.wait(WAIT_S)
    ask(stream, 1, 3)
    assert all_wait(bookie, 3)
    reads.released.set()
    assert answers(stream, 3) == {4: Code.OK, 3: Code.OK, 1: Code.UNAVAILABLE}


def test_as_many_attachments_wait_as_may_and_the_next_is_told_at_once_to_come_again(
    start_bookie: StartBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = start_bookie(attaches_at_once=1, attaches_waiting_max=1)
    create(bookie, 1, 2, 3, 4)
    stream, other = bookie.open_stream(), bookie.open_stream()
    assert stream.attach(4) is Code.OK
    reads = SlowReads(bookie, monkeypatch)
    ask(stream, 1, 2)
    assert reads.begun.wait(WAIT_S)
    assert eventually(lambda: not bookie.bookie.attacher.has_place)
    assert other.attach(3) is Code.TOO_MANY_REQUESTS
    assert other.attach(4) is Code.OK, "what the bookie knows waits for nobody"
    assert bookie.metric("attach_total", code="TOO_MANY_REQUESTS") == 1
    reads.released.set()
    assert [stream.take().attached.ledger_id for _ in range(2)] == [1, 2]
    assert other.attach(3) is Code.OK, "there is room again"


def test_a_stream_that_ends_while_its_attachments_wait_harms_no_other(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = range(2, 6)
    create(bookie, *others)
    gone, stays = bookie.open_stream(), bookie.open_stream()
    reads = SlowReads(bookie, monkeypatch)
    ask(gone, 1)
    assert reads.begun.wait(WAIT_S)
    ask(gone, *others[:2])
    ask(stays, *others)
    assert all_wait(bookie, 7)
    gone.close()
    assert eventually(lambda: bookie.bookie.streams.count == 1)
    reads.released.set()
    assert set(answers(stays, 4).values()) == {Code.OK}
    machine = bookie.bookie.table.machine
    with bookie.bookie.table.lock:
        assert machine.ledgers.get(1) is None, "nobody is attached to it"


def test_a_client_that_is_done_with_a_ledger_is_attached_no_more(start_bookie: StartBookie) -> None:
    bookie = start_bookie()
    create(bookie, 1)
    stream = bookie.open_stream()
    assert stream.hello.takes_detach
    assert stream.attach(1) is Code.OK
    assert stream.add(frame_of(1, 0, [b"a"])) == {}
    stream.say(pb.ClientControl(detach=pb.Detach(ledger_id=1, purpose=pb.PURPOSE_WRITE)))
    assert stream.add(frame_of(1, 1, [b"b"])) == {0: Code.NOT_ATTACHED}
    assert bookie.bookie.table.machine.ledgers.get(1) is None, (
        "its memory does not grow with what was written"
    )
    assert stream.attach(1) is Code.OK
    assert stream.add(frame_of(1, 1, [b"b"])) == {}
