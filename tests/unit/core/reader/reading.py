"""What the tests of reading share: a cluster with a written ledger, and a reader run against it."""

from daybook.core.effects import Deliver, Effect, ReadFailed, SendRead
from daybook.core.errors import (
    DaybookError,
)
from daybook.core.events import Consumed
from daybook.core.format.entries import Entry
from daybook.core.ids import EntryId
from daybook.core.reader.reader import LedgerReader, ReadPolicy
from tests.unit.core.small_cluster import ENTRY_BYTES, Cluster, Run, entry

SMALL = ReadPolicy(
    piece_bytes=8 * ENTRY_BYTES, read_ahead_bytes=64 * ENTRY_BYTES, entry_bytes_guess=ENTRY_BYTES
)


class Reading(Run):
    """A reader whose user takes what it gets at once, unless `consumes` is off."""

    def __init__(self, cluster: Cluster, reader: LedgerReader, *, consumes: bool = True) -> None:
        super().__init__(cluster, reader.step, reader.start())
        self.reader = reader
        self.consumes = consumes
        self.asked: list[SendRead] = [e for e in self.queue if isinstance(e, SendRead)]

    def feed(self, event: object) -> None:
        effects = self.step(event)
        self.asked += [e for e in effects if isinstance(e, SendRead)]
        self.queue.extend(effects)

    def one(self) -> Effect:
        effect = super().one()
        if isinstance(effect, Deliver) and self.consumes:
            self.feed(Consumed(effect.size_bytes))
        return effect

    @property
    def entries(self) -> list[Entry]:
        return [e for result in self.results if isinstance(result, Deliver) for e in result.entries]

    @property
    def error(self) -> DaybookError:
        result = self.results[-1]
        assert isinstance(result, ReadFailed), result
        return result.error


def closed_cluster(
    ensemble: int = 3, write: int = 3, ack: int = 2, last: EntryId = 99, *, spares: int = 0
) -> Cluster:
    cluster = Cluster(ensemble, write, ack, spares=spares)
    cluster.write_everywhere(0, last)
    cluster.metadata = cluster.meta.closed(last, ENTRY_BYTES * (last + 1))
    return cluster


def read(
    cluster: Cluster, first: EntryId = 0, last: EntryId | None = None, policy: ReadPolicy = SMALL
) -> Reading:
    """Read as far as it goes."""
    end = cluster.meta.last_entry if last is None else last
    reading = Reading(cluster, LedgerReader(cluster.meta, first, end, policy=policy))
    reading.finish()
    return reading


def expected(first: EntryId, last: EntryId) -> list[Entry]:
    return [Entry(i, entry(i)) for i in range(first, last + 1)]
