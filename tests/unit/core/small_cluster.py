"""A cluster in memory around the core's machines, for tests that decide every answer themselves.

Effects are carried out at once, in order, unless the bookie is `down` (every request fails), `silent` (nothing ever
answers) or the test takes the effect out of the queue itself.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from daybook.core.bookie.ledger import Purpose
from daybook.core.effects import CasMetadata, Effect, ReadMetadata, SendFence, SendFrame, SendRead
from daybook.core.errors import Code
from daybook.core.events import Event
from daybook.core.format.checksums import entry_crcs
from daybook.core.format.frame import encode_frame
from daybook.core.ids import BookieId, EntryId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.quorum import check_quorum, stripe_of
from tests.fixtures.memory_bookie import RECOVERER, Request, failed
from tests.unit.core.one_ledger import KEY, LEDGER, LedgerBookie, OneLedger, kept_in

WRITER = 1
ENTRY_BYTES = 3


class Cluster(OneLedger[LedgerBookie]):
    """Bookies b1 … bN, of which the first E hold the ledger."""

    def __init__(
        self,
        ensemble: int = 3,
        write: int = 3,
        ack: int = 2,
        *,
        spares: int = 0,
        start: tuple[EntryId, int] | None = None,
        called: str = "",
        pool: str = "",
    ) -> None:
        """`called`: the names of all bookies, separated by spaces. The ledger stays in `pool`."""
        names = called.split() or [f"b{i + 1}" for i in range(ensemble + spares)]
        self.quorum = check_quorum(ensemble, write, ack)
        fragments = [Fragment(0, 0, tuple(names[:ensemble]))]
        if start is not None:
            fragments.append(Fragment(start[0], start[1], tuple(names[:ensemble])))
        metadata = kept_in(
            pool,
            LedgerMetadata(LEDGER, self.quorum, tuple(fragments), password_hash=KEY, writer_token="w"),
        )
        super().__init__(metadata, {name: LedgerBookie(name) for name in names})
        for name in self.meta.last_fragment.bookies:
            self.bookies[name].attach(WRITER, LEDGER, KEY, Purpose.WRITE, self.meta)
        self.down: set[BookieId] = set()
        self.silent: set[BookieId] = set()
        self.held: list[Effect] = []
        """What silent bookies were sent."""
        self.frames: defaultdict[BookieId, list[bytes]] = defaultdict(list)
        """Every frame that reached a bookie."""

    @property
    def meta(self) -> LedgerMetadata:
        assert self.metadata is not None
        return self.metadata

    def write(
        self,
        entry_id: EntryId,
        on: Iterable[BookieId],
        *,
        lac: EntryId | None = None,
        data: bytes | None = None,
        length_at_lac: int | None = None,
    ) -> dict[BookieId, Code]:
        """The writer's add of one entry (3 bytes), on some bookies only; the answers."""
        payload = entry(entry_id) if data is None else data
        known = entry_id - 1 if lac is None else lac
        frame = encode_frame(
            LEDGER,
            entry_id,
            [payload],
            entry_crcs(LEDGER, [entry_id], [payload]),
            last_add_confirmed=known,
            length_at_lac=ENTRY_BYTES * (known + 1) if length_at_lac is None else length_at_lac,
        )
        codes = {}
        for name in on:
            self.frames[name].append(frame)
            codes[name] = self.bookies[name].append(WRITER, KEY, frame, self.metadata)
        return codes

    def write_everywhere(self, first: EntryId, last: EntryId, *, lac: EntryId | None = None) -> None:
        """Entries on every bookie of their write set."""
        for entry_id in range(first, last + 1):
            self.write(entry_id, self.holders(entry_id), lac=lac)

    def holders(self, entry_id: EntryId) -> list[BookieId]:
        ensemble = self.meta.last_fragment.bookies
        return [name for p, name in enumerate(ensemble) if stripe_of(self.quorum, p).holds(entry_id)]

    def wipe(self, name: BookieId, nonce: str = "nonce") -> None:
        """The bookie loses its disk, and comes back with the ledger in limbo."""
        self.bookies[name].lose_disk(nonce)

    def send(self, request: Request, stream: int) -> list[Any]:
        """The bookie's answer, unless it is down or silent."""
        name = request.bookie
        if name in self.silent:
            self.held.append(request)
            return []
        if name in self.down:
            return [failed(request, Code.CONNECTION_LOST)]
        if isinstance(request, SendFrame):
            self.frames[name].append(request.frame)
        return super().send(request, stream)


def entry(entry_id: EntryId) -> bytes:
    """The payload that tests give to `entry_id`."""
    return f"{entry_id:03}".encode()


class Run:
    """A machine and the effects it waits for; `finish` carries out everything that can be."""

    def __init__(
        self,
        cluster: Cluster,
        step: Callable[[Any], Sequence[Effect]],
        effects: Sequence[Effect],
        stream: int = RECOVERER,
    ) -> None:
        self.cluster = cluster
        self.step = step
        self.queue: deque[Effect] = deque(effects)
        self.results: list[Effect] = []
        self.stream = stream

    def feed(self, event: Event) -> None:
        self.queue.extend(self.step(event))

    def one(self) -> Effect:
        """Carry out the next effect."""
        effect = self.queue.popleft()
        if isinstance(effect, (SendFence, SendRead, SendFrame, ReadMetadata, CasMetadata)):
            for event in self.cluster.perform(effect, self.stream):
                self.feed(event)
        else:
            self.results.append(effect)
        return effect

    def until(self, kind: type[Effect]) -> None:
        """Carry out effects until one of `kind` is next."""
        while not isinstance(self.queue[0], kind):
            self.one()

    def finish(self) -> list[Effect]:
        while self.queue:
            self.one()
        return self.results

    def up_to_the_cas(self) -> CasMetadata:
        """Carry out everything but compare-and-sets; the one that is left over."""
        held: list[CasMetadata] = []
        while self.queue:
            effect = self.queue[0]
            if isinstance(effect, CasMetadata):
                held.append(effect)
                self.queue.popleft()
            else:
                self.one()
        self.queue.extend(held)
        (cas,) = held
        return cas
