"""Rules whose object is in a bookie's server or in ZooKeeper, taken out of the simulator's models of those.

The mutants of the servers themselves are in `server.py`, `storage.py` and `metadata.py`; these show that a seed would
notice if such a part broke its rule.
"""

from typing import Any

import pytest

from daybook.core.bookie.ledger import BookieLedger
from daybook.core.bookie.life import BookieLife
from daybook.core.bookie.machine import BookieMachine
from daybook.core.effects import SendForce
from daybook.core.errors import Code
from daybook.core.events import ForceAnswered
from tests.model.mutants.catalog.swarms import EXPIRIES, LOST_DISKS, RESTARTS, TWO_PROCESSES
from tests.model.mutants.registry import around, instead_of, mutant
from tests.model.sim.auditing import Inspector, WorkerClient
from tests.model.sim.bookie_calls import BookieCalls
from tests.model.sim.bookie_model import SimBookie
from tests.model.sim.bookie_storage import SimStorage
from tests.model.sim.metadata_model import MetadataStore


@mutant(11)
def compare_and_set_does_not_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version of a compare-and-set is dropped, so that every party overwrites the others."""
    monkeypatch.setattr(MetadataStore, "version_matches", staticmethod(lambda actual, expected: True))


@mutant(22, swarm=RESTARTS)
@instead_of(BookieCalls, "force")
def forces_are_answered_before_the_sync(
    self: BookieCalls, ledger_id: int, call: SendForce, reply: object
) -> None:
    """A bookie answers a force while deferred frames wait for their sync."""
    assert callable(reply)
    reply(ForceAnswered(self.name, call.request_id, Code.OK, self.boot_id))


@mutant(23)
def bookies_answer_before_they_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame is answered when it is in memory."""
    monkeypatch.setattr(BookieLedger, "may_ack_before_sync", lambda self, header: True)


@mutant(29, swarm=LOST_DISKS)
def replaced_disks_are_not_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie that lost its disk vouches for every ledger."""
    monkeypatch.setattr(BookieLife, "must_mark", lambda self, metadata: False)


@mutant(34, swarm=EXPIRIES)
def workers_outlive_their_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose session expired takes a new one and goes on with its repair."""
    monkeypatch.setattr(WorkerClient, "session_expired", super(Inspector, Inspector).session_expired)


@mutant(48)
@around(BookieMachine, "publish")
def rows_are_told_before_they_are_synced(
    publish: Any, self: BookieMachine[Any], stream_id: int, rows: Any, decided: Any
) -> None:
    """A long poll is answered with a row that is in memory alone."""
    publish(self, stream_id, rows, decided)
    for ledger_id, lac in decided.news:
        decided._bookie.polls.wake(ledger_id, lac)


@mutant(57, swarm={**TWO_PROCESSES, "twins": 12})
def registrations_do_not_compare_incarnations(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old process registers again beside the cookie of its replacement, and takes first frames."""
    monkeypatch.setattr(MetadataStore, "was_replaced", lambda self, bookie, place: False)


@mutant(43)
def frames_are_found_only_after_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame that waits for its sync is met by no fence and no read."""
    monkeypatch.setattr(SimStorage, "cache_entries", lambda self, ledger_id, entries: None)
    durable = SimBookie.report_durable

    def cache_late(self: SimBookie, written: object) -> None:
        entries = getattr(written, "entries", None)
        if isinstance(entries, dict):
            self.storage.caches.setdefault(written.ledger_id, {}).update(entries)  # type: ignore[attr-defined]  # it is a FrameWritten
        durable(self, written)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(SimBookie, "report_durable", cache_late)
