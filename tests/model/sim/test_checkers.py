"""A check that cannot fail is none: each has failed in a known seed of a mutant, or fails here on a history that is known to be bad."""

import ast
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final

import pytest

from daybook.core import effects as fx
from daybook.core import events as ev
from daybook.core.bookie.ledger import LedgerRecord
from daybook.core.format.entries import Entry
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.placement.policies import make_policy
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import Quorum
from daybook.core.writer.writer import LedgerWriter
from tests.model.mutants.seeds import load_seeds
from tests.model.sim import queues
from tests.model.sim.checkers import Checkers
from tests.model.sim.disk import Stored
from tests.model.sim.healed_checks import misplaced, orphans
from tests.model.sim.metadata_model import MetadataStore
from tests.model.sim.placement_checks import check_new_ledger
from tests.model.sim.replay_checks import check_replay
from tests.model.sim.shipped.reading import ReadingUser
from tests.model.sim.test_models import QUIET
from tests.model.sim.topics.bad_histories import TOPIC_CASES
from tests.model.sim.transitions import Party, why_illegal
from tests.model.sim.twins import Twins
from tests.model.sim.world import ViolationError, World
from tests.model.sim.writer_checks import WriterChecks

OPEN: Final = LedgerMetadata(
    0, Quorum(3, 3, 2), (Fragment(0, 0, ("b0", "b1", "b2")),), password_hash="key", writer_token="t"
)
LATER: Final = OPEN.with_ensemble(2, 2, ("b0", "b1", "b3"))
RECOVERING: Final = LATER.in_recovery()
CLOSED: Final = RECOVERING.closed(3, 4)
ENDED: Final = OPEN.in_recovery().closed(2, 3)
TICK: Final = ev.Tick(1)


@dataclass
class FakeDisk:
    """A bookie as the checkers see it."""

    held: dict[LedgerId, set[EntryId]] = field(default_factory=dict)
    limbo: bool = False
    replaced: bool = False

    def holds_durably(self, ledger_id: LedgerId, entry_id: EntryId) -> bool:
        return entry_id in self.held.get(ledger_id, ())

    holds = holds_durably

    def vouches(self, ledger_id: LedgerId) -> bool:
        return not self.limbo

    def is_in_limbo(self, ledger_id: LedgerId) -> bool:
        return self.limbo

    def is_fenced_durably(self, ledger_id: LedgerId) -> bool:
        return True

    def everything_held(self) -> dict[LedgerId, set[EntryId]]:
        return self.held


class Scene(Checkers):
    """Four bookies, and one ledger of three one-byte entries that three of them hold."""

    def __init__(self) -> None:
        super().__init__(World(0))
        self.disks = {f"b{i}": FakeDisk() for i in range(4)}
        self.bookies = self.disks
        self.ledger_created(OPEN)
        for entry in range(3):
            self.appended(0, entry, b"x")
        for name in OPEN.last_fragment.bookies:
            self.disks[name].held[0] = {0, 1, 2}
            self.became_durable(name, 0, range(3))
        machine = LedgerWriter(OPEN, 0, placement=make_policy(), rng=Random(0), bookies={})
        self.writer = WriterChecks(self, machine, 9)

    def close(self) -> "Scene":
        self.metadata_changed(OPEN.in_recovery(), ENDED)
        return self

    def delete(self) -> "Scene":
        self.ledger_deleted(0)
        return self

    def lose(self, bookie: BookieId, entry: EntryId) -> "Scene":
        self.oracles[0].durable_ever[entry].discard(bookie)
        return self

    def deliver(self, entry: EntryId, data: bytes = b"x", after: EntryId | None = None) -> None:
        self.delivered(0, [Entry(entry, data)], entry - 1 if after is None else after, unconfirmed=False)

    def say(self, *effects: fx.Effect) -> None:
        """The writer reports this of two appends of one entry each."""
        for token in (0, 1):
            self.writer.appending(token, [token])
        self.writer.stepped(TICK, effects)

    def promises_twice(self) -> None:
        """The user counts on an id, and a later append gets it."""
        self.writer.appending(0, [0])
        self.writer.promised(0)
        self.writer.appending(1, [0])

    def denies(self) -> None:
        """A bookie that was replaced vouches, without an entry that it has acknowledged."""
        self.oracles[0].counted["b0"] = {0, 1}
        twins: Any = SimpleNamespace(split={"b0"}, _cluster=SimpleNamespace(checkers=self))
        process: Any = SimpleNamespace(name="b0", place="b0/2")
        Twins.testifies(twins, process, 0, {0}, limbo=False)

    def ends_reading(self, metadata: LedgerMetadata) -> None:
        """A user that has read nothing is at the end of a reader."""
        process: Any = SimpleNamespace(
            name="p", cluster=SimpleNamespace(checkers=self), world=self.world, note=lambda _: None
        )
        ReadingUser(process, "r", 0)._has_ended(SimpleNamespace(metadata=metadata), was_open=False)  # type: ignore[arg-type] # a reader's one field

    def replays(self, **lost: Any) -> None:
        """A bookie comes back with less than it had."""
        record = LedgerRecord(0, fenced=True, limbo_nonce="n")
        had = Stored(record, {0: b"x"}, 0, 1)
        records = {name: lost.pop(name) for name in ("fenced", "limbo_nonce") if name in lost}
        now = replace(had, record=replace(record, **records), **lost)
        check_replay(self.fail, {0: had}, {0: now}, [], {0: {0: b"x"}})

    def deletes(self) -> None:
        store = MetadataStore(self.world, QUIET, self)
        store.create(OPEN)
        store.delete(0, 0)


CASES: Final[list[tuple[str, Callable[[Scene], object]]]] = [
    ("LAC never goes back", lambda scene: scene.writer_lac(0, 2, 1)),
    ("LAC never goes back", lambda scene: scene.reader_lac(0, 2, 1)),
    ("NoDivergenceBetweenClientAndMetaData", lambda scene: scene.close().lac_seen(0, 3)),
    ("NoOutOfOrderEntries", lambda scene: scene.completed(OPEN, 1, 1)),
    ("NoOutOfOrderEntries", lambda scene: scene.deliver(1, after=-1)),
    ("a LAC survives a restart", lambda scene: scene.replays(last_add_confirmed=-1)),
    ("a fence survives a restart", lambda scene: scene.replays(fenced=False)),
    ("a limbo mark survives a restart", lambda scene: scene.replays(limbo_nonce=None)),
    ("a replay gives back what was written", lambda scene: scene.replays(entries={0: b"y"})),
    (
        "a deleted ledger is never written again",
        lambda scene: scene.delete().metadata_changed(OPEN, LATER),
    ),
    (
        "a force is answered by the whole ensemble",
        lambda scene: scene.lose("b2", 0).completed(OPEN, 0, 0, everywhere=True),
    ),
    ("a reader comes to the end", lambda scene: scene.close().ends_reading(ENDED)),
    ("a reader sees the close", lambda scene: scene.ends_reading(OPEN)),
    ("a reader never sees different bytes", lambda scene: scene.deliver(0, b"y")),
    ("a reader sees nothing beyond the close", lambda scene: scene.close().deliver(3)),
    ("a promised id is given once", lambda scene: scene.promises_twice()),
    ("a repair ends with a read of the metadata", lambda scene: scene.audits.finished(0, has_read=False)),
    (
        "limbo ends only when all is copied",
        lambda scene: scene.close().limbo_cleared("b0", 0, {0, 1}),
    ),
    ("nothing is acknowledged with other ids", lambda scene: scene.say(fx.Complete(1, 0, 0))),
    ("nothing is answered twice", lambda scene: scene.say(fx.Complete(1, 1, 1), fx.Complete(1, 1, 1))),
    ("nothing that is owed is removed", lambda scene: removes(scene.close(), "b0")),
    ("only of closed ledgers", lambda scene: removes(scene, "b3")),
    ("only closed ledgers are deleted", lambda scene: scene.deletes()),
    ("what a bookie acknowledged is not denied", lambda scene: scene.denies()),
    ("what is placed badly is reported", lambda scene: placed_badly(scene)),
    *TOPIC_CASES,
]
"""Each check that no mutant's known seed fails by, on a bad history."""

PROVED_ELSEWHERE: Final = {"bounded queues": "test_a_queue_that_grows_beyond_its_limit_is_named"}


def removes(scene: Scene, bookie: BookieId) -> None:
    scene.removed(bookie, 0, [1], raised=True, added_to=False)


def placed_badly(scene: Scene) -> None:
    """Nobody reports an ensemble within one rack."""
    racks = {f"b{i}": BookieInfo(f"b{i}", rack="r1" if i == 3 else "r0", writable=i < 3) for i in range(4)}
    with pytest.MonkeyPatch.context() as patch:
        policy = make_policy()
        patch.setattr(type(policy), "problems", lambda *_: [])
        check_new_ledger(scene, policy, OPEN, racks)


@pytest.mark.parametrize(("name", "history"), CASES, ids=[name for name, _ in CASES])
def test_a_bad_history_fails_the_check(name: str, history: Callable[[Scene], object]) -> None:
    with pytest.raises(ViolationError, match=f"^{name}: "):
        history(Scene())


def test_every_check_has_failed_in_a_known_seed_or_fails_here() -> None:
    proved = {catch.check for catch in load_seeds().values()} | dict(CASES).keys() | PROVED_ELSEWHERE.keys()
    assert sorted(names_of_checks() - proved) == [], (
        "add a bad history to CASES, or a mutant that the check catches"
    )


def names_of_checks() -> set[str]:
    """The first argument of every call of `fail` in the simulator."""
    calls = [
        node
        for path in Path(__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and node.args
    ]
    return {
        str(call.args[0].value)
        for call in calls
        if isinstance(call.args[0], ast.Constant)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("fail", "_fail")
    }


# What is wrong once everything has healed


def test_an_orphan_is_found_after_a_deletion_or_a_move() -> None:
    scene = Scene().close()
    assert orphans(scene) == []
    scene.disks["b3"].held[0] = {1}
    assert orphans(scene) == ["b3 still has [1] of ledger 0, which it does not owe"]
    scene.ledger_deleted(0)
    assert len(orphans(scene)) == 4


def test_a_bookie_whose_entries_a_repair_has_moved_owes_them_no_more() -> None:
    scene = Scene()
    scene.metadata_changed(OPEN, LATER)
    scene.oracles[0].counted["b2"] = {0, 1}
    with pytest.raises(ViolationError, match="limbo ends only when all is copied"):
        scene.limbo_cleared("b2", 0, ())
    scene.metadata_changed(LATER, LATER.with_replica(0, "b2", "b4"))
    scene.limbo_cleared("b2", 0, ())


@pytest.mark.parametrize(("racks", "found"), [("0010", 0), ("0000", 0), ("0001", 1)])
def test_a_fragment_in_one_rack_is_misplaced_only_if_a_move_would_help(racks: str, found: int) -> None:
    here = {f"b{i}": BookieInfo(f"b{i}", rack=rack) for i, rack in enumerate(racks)}
    assert len(misplaced(Scene().close(), here)) == found


# Metadata

REPAIRED: Final = CLOSED.with_replica(0, "b2", "b4")
OTHER_TOKEN: Final = replace(OPEN, writer_token="other")
LEGAL = [
    (Party.WRITER, OPEN, LATER),
    (Party.WRITER, LATER, LATER.with_ensemble(2, 2, ("b0", "b4", "b3"))),
    (Party.WRITER, OPEN, OPEN.closed(1, 1)),
    (Party.WRITER, replace(OPEN, writer_token=None), OPEN),
    (Party.RECOVERY, OPEN, OPEN.in_recovery()),
    (Party.RECOVERY, RECOVERING, RECOVERING),
    (Party.RECOVERY, RECOVERING, RECOVERING.with_ensemble(3, 3, ("b0", "b1", "b4")).closed(3, 4)),
    (Party.REPAIR, LATER, LATER.with_replica(0, "b2", "b4")),
    (Party.REPAIR, CLOSED, REPAIRED),
    (Party.COLLECTOR, CLOSED, CLOSED),
]
ILLEGAL = [
    (Party.WRITER, RECOVERING, CLOSED, "rule 11"),
    (Party.WRITER, LATER, OPEN, "rule"),
    (Party.WRITER, LATER, LATER.with_replica(0, "b2", "b4"), "rule"),
    (Party.WRITER, LATER, LATER.with_replica(0, "b2", "b4").with_ensemble(3, 3, ("b0", "b1", "b2")), "rule 19"),
    (Party.WRITER, OPEN, OTHER_TOKEN, "rule 53"),
    (Party.RECOVERY, OPEN, OPEN.closed(1, 1), "mark"),
    (Party.RECOVERY, RECOVERING, RECOVERING.with_ensemble(3, 3, ("b0", "b1", "b4")), "rule 9"),
    (Party.RECOVERY, RECOVERING, CLOSED.with_replica(0, "b2", "b4"), "rule 56"),
    (Party.RECOVERY, CLOSED, CLOSED, "rule 11"),
    (Party.REPAIR, CLOSED, CLOSED.closed(4, 5), "rule 11"),
    (Party.REPAIR, LATER, LATER.with_replica(2, "b3", "b4"), "rule 31"),
    (Party.REPAIR, CLOSED, REPAIRED.with_replica(2, "b3", "b4"), "one fragment"),
    (Party.REPAIR, CLOSED, replace(CLOSED, fragments=(Fragment(0, 0, ("b1", "b0", "b4")), CLOSED.fragments[1])), "32"),
    (Party.COLLECTOR, CLOSED, REPAIRED, "rule 47"),
    (Party.COLLECTOR, LATER, LATER, "rule 47"),
]  # fmt: skip


@pytest.mark.parametrize(("party", "old", "new"), LEGAL)
def test_a_legal_transition_passes(party: Party, old: LedgerMetadata, new: LedgerMetadata) -> None:
    assert why_illegal(party, old, new) is None


@pytest.mark.parametrize(("party", "old", "new", "why"), ILLEGAL)
def test_an_illegal_transition_is_refused(
    party: Party, old: LedgerMetadata, new: LedgerMetadata, why: str
) -> None:
    assert why in (why_illegal(party, old, new) or "it passes")


# Queues


def test_a_queue_that_grows_beyond_its_limit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = LedgerWriter(OPEN, 0, placement=make_policy(), rng=Random(0), bookies={})
    machine.step(ev.AppendRequested(1, [b"x"] * 3))
    machine.step(ev.FlushRequested())
    assert queues.over_limit(machine) is None
    monkeypatch.setitem(queues.LIMITS, "Member", queues.limits_of({"outstanding": 0}))
    assert queues.over_limit(machine) == "Member.outstanding holds 1, at most 0 are allowed"
    assert queues.unlisted(machine) == set()
    monkeypatch.delitem(queues.QUEUES, ("BatchWindow", "lagging"))
    assert queues.unlisted(machine) == {("BatchWindow", "lagging")}
