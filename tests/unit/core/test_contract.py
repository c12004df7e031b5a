"""All machines of a client keep one contract (daybook/core/__init__.py): what each takes, and what it does with the rest."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, get_args

import pytest

from daybook.core.effects import Effect
from daybook.core.errors import Code
from daybook.core.events import (
    AppendRequested,
    BookieFailed,
    BookiesChanged,
    CasAnswered,
    CasOutcome,
    CloseRequested,
    Consumed,
    DeletionEvent,
    Event,
    FenceAnswered,
    FlushRequested,
    ForceAnswered,
    ForceRequested,
    FrameAcked,
    FrameFailed,
    LacAnswered,
    LacEvent,
    LacLost,
    LimboCleared,
    LimboRead,
    LockLost,
    MetadataConnection,
    MetadataRead,
    MetadataUnreadable,
    News,
    ReadAnswered,
    ReaderEvent,
    RecoveryEvent,
    Tick,
    WriterEvent,
)
from daybook.core.machine import Machine
from daybook.core.reader.lac import LacReader
from daybook.core.reader.reader import LedgerReader
from daybook.core.reader.tail import LacTail
from daybook.core.recovery.deletion import DeletionFence, DeletionPolicy
from daybook.core.recovery.recovery import LedgerRecovery
from daybook.core.writer.writer import LedgerWriter
from tests.unit.core.in_order import InOrder
from tests.unit.core.one_ledger import LEDGER
from tests.unit.core.small_cluster import Cluster

AnyMachine = Machine[Any, Effect]

NOBODYS: Final = 10**6
"""The id of a request that no machine made."""

EVENTS: Final[dict[type, Event]] = {
    type(event): event
    for event in (
        AppendRequested(1, [b"x"]),
        FlushRequested(),
        ForceRequested(2),
        CloseRequested(3),
        Tick(1),
        Consumed(1),
        LacLost("b1"),
        FrameAcked("b1", NOBODYS),
        FrameFailed("b1", NOBODYS, Code.TIMEOUT),
        ForceAnswered("b1", NOBODYS, Code.OK),
        FenceAnswered("b1", NOBODYS, Code.OK),
        ReadAnswered("b1", NOBODYS, Code.OK),
        LimboRead("b1", NOBODYS, Code.OK),
        LimboCleared("b1", NOBODYS, Code.OK),
        LacAnswered("b1", NOBODYS, Code.OK),
        BookieFailed("b9"),
        BookiesChanged({}),
        CasAnswered(NOBODYS, CasOutcome.CONFLICT),
        MetadataRead(NOBODYS, None),
        MetadataUnreadable(NOBODYS),
        MetadataConnection(connected=True),
        LockLost(),
    )
}


def recovery() -> AnyMachine:
    return LedgerRecovery(LEDGER, placement=InOrder(), rng=random.Random(1), bookies={})


def deletion() -> AnyMachine:
    return DeletionFence(LEDGER, policy=DeletionPolicy(1_000), bookies={})


def reader() -> AnyMachine:
    return LedgerReader(Cluster().meta.closed(3, 12), 0, 3)


def lac_reader() -> AnyMachine:
    return LacReader(Cluster().meta)


def lac_tail() -> AnyMachine:
    return LacTail(Cluster().meta)


def writer() -> AnyMachine:
    attached = replace(Cluster().meta, writer_token="w1")
    return LedgerWriter(attached, 0, placement=InOrder(), rng=random.Random(1), bookies={})


MACHINES: Final[dict[Callable[[], AnyMachine], Any]] = {
    recovery: RecoveryEvent,
    deletion: DeletionEvent,
    reader: ReaderEvent,
    lac_reader: LacEvent,
    lac_tail: LacEvent,
    writer: WriterEvent,
}
"""How a machine is made, and the union of what it takes."""

each_machine = pytest.mark.parametrize("make", MACHINES, ids=lambda make: make.__name__)


def test_every_event_is_tried() -> None:
    assert set(EVENTS) == set(get_args(Event))


@each_machine
@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_a_machine_takes_the_events_of_its_union_and_refuses_any_other(
    make: Callable[[], AnyMachine], kind: type
) -> None:
    machine = make()
    assert bool(machine.start()) == (make is not writer), "a writer waits for its user"
    assert not machine.is_done
    if kind in get_args(MACHINES[make]):
        machine.step(EVENTS[kind])
    else:
        # a compiled machine has the types of its arguments checked before it begins
        with pytest.raises((AssertionError, TypeError), match=kind.__name__):
            machine.step(EVENTS[kind])


@each_machine
def test_news_goes_to_every_machine(make: Callable[[], AnyMachine]) -> None:
    assert set(get_args(News)) <= set(get_args(MACHINES[make]))


@each_machine
def test_an_answer_that_nobody_waits_for_is_dropped(make: Callable[[], AnyMachine]) -> None:
    machine = make()
    machine.start()
    for kind in get_args(MACHINES[make]):
        if hasattr(EVENTS[kind], "request_id") or hasattr(EVENTS[kind], "send_id"):
            assert machine.step(EVENTS[kind]) == [], kind
    assert not machine.is_done
