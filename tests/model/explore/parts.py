"""What an explored world is made of: bounds, messages, and the world itself as a tuple of numbers.

Its bookies are durable at once (`tests/fixtures/memory_bookie.py`), so that what the explorer counts out is the protocol
and not a disk.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, TypeVar

from daybook.core.effects import ClearLimbo, SendFence, SendFrame, SendRead
from daybook.core.events import Event
from daybook.core.ids import EntryId
from daybook.core.recovery.recovery import LedgerRecovery
from daybook.core.writer.writer import LedgerWriter

WRITER: Final = 0
NOT_STARTED: Final = -1
ENDED: Final = -2
"""What a client that has ended thinks does not matter any more."""
FAILED: Final = -1


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large the worlds may grow."""

    ensemble: int = 3
    write: int = 3
    ack: int = 2
    spares: int = 1
    entries: int = 1
    recoverers: int = 1
    timeouts: int = 1
    """Requests that their sender gives up; they may still arrive."""
    wipes: int = 0
    repairs: int = 0
    """Repairs that end the limbo of a bookie whose disk was lost."""
    unknown_outcomes: int = 0
    ticks: int = 0
    """Recoverers that lose patience and ask other replicas."""
    closes: int = 0
    """Closes by the writer."""
    answers_take_time: bool = False
    """Whether an answer travels apart from its request; else only those of requests that were given up do."""


class NoDice:
    """A random source for worlds in which nothing is left to chance."""

    def random(self) -> float:
        raise AssertionError("the explored world draws nothing")

    def randrange(self, stop: int, /) -> int:
        raise AssertionError("the explored world draws nothing")


T = TypeVar("T")


Asked: TypeAlias = SendFrame | SendFence | SendRead | ClearLimbo


Machine: TypeAlias = LedgerWriter | LedgerRecovery


class Request(NamedTuple):
    """A request on its way to a bookie. `given_up`: no one waits for the answer."""

    client: int
    asked: Asked
    given_up: bool = False


class Reply(NamedTuple):
    """An answer on its way to a client."""

    client: int
    event: Event


class MetadataRequest(NamedTuple):
    """A read, or with `proposed` a compare-and-set, that has not reached the metadata store yet."""

    client: int
    request_id: int
    proposed: int | None = None
    expected_version: int = -1


Message: TypeAlias = Request | Reply | MetadataRequest


class Left(NamedTuple):
    """How often each limited thing may still happen; see `Bounds`."""

    entries: int
    timeouts: int
    wipes: int
    repairs: int
    unknown_outcomes: int
    ticks: int
    closes: int


class World(NamedTuple):
    """Everything there is, as numbers."""

    clients: tuple[int, ...]
    bookies: tuple[int, ...]
    metadata: int
    version: int
    messages: frozenset[int]
    acked: EntryId
    """The last entry whose append completed."""
    ends: tuple[int | None, ...]
    """What each client believes is the close: a metadata number, FAILED, None while it goes on."""
    wiped: frozenset[int]
    left: Left


class Action(NamedTuple):
    """Something that may happen; `message` is the one it concerns."""

    kind: str
    message: int = -1
    who: int = -1


class InvariantError(AssertionError):
    """An invariant does not hold."""


class Step(NamedTuple):
    """What a machine does with an event: its next state, what it sends, what it reports to its user."""

    machine: int
    messages: tuple[Message, ...] = ()
    completed: tuple[tuple[EntryId, EntryId], ...] = ()
    end: int | None = None


def payload(entry_id: EntryId) -> bytes:
    """What the writer writes as `entry_id`."""
    return f"entry {entry_id}".encode()


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """How often each thing may happen."""

    owners: int = 2
    messages: int = 2
    unknown: int = 0
    """Requests without an answer, carried out or not; a change of the list may also arrive later."""
    fences: int = 0
    """Ledgers that the auditor closes, with what is stored of them by then."""
    deaths: int = 0
    ticks: int = 0
    trims: int = 0
