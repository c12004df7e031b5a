"""Open ledgers with a gap: the condition names them and who closes them, as long as they are open."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from daybook_operator.plan.open_gaps import NAMED_MAX, OpenGap, OpenGaps
from daybook_operator.plan.pool.replication import replication_of
from daybook_operator.reconcile.open_gaps import open_gaps

from daybook.core.errors import NoSuchLedgerError
from daybook.core.ledger.metadata import TOPIC_KEY
from daybook.metadata.store.store import Versioned
from tests.unit.operator.pool_sim import grown

ORDERS = "persistent://public/default/orders"


def said(gaps: OpenGaps, last_audit: str = "") -> Any:
    sim = grown()
    sim.crash(1)
    sim.kubelet(1)
    sim.reconcile()
    world = sim.world()
    assert world.cluster is not None
    seen = replace(world.cluster, open_gaps=gaps, last_audit=last_audit)
    found = replication_of(replace(world, cluster=seen), sim.now_ms)
    assert found.is_full is False
    return found.condition


def test_without_a_gap_the_next_audit_is_awaited() -> None:
    assert (said(OpenGaps()).reason, said(OpenGaps(more=3)).reason) == ("AuditPending", "AuditPending")


def test_the_condition_names_a_ledger_its_topic_and_the_commands_that_close_it() -> None:
    condition = said(OpenGaps((OpenGap(17, ORDERS),)), last_audit="open-gap: 1 ledgers")
    assert condition.reason == "OpenGaps"
    for part in (
        f"Ledger 17 (of {ORDERS}) is open",
        "the last one says: open-gap: 1 ledgers",
        f"`kubectl daybook topic unload {ORDERS}`",
        "`daybook ledger recover 17`",
    ):
        assert part in condition.message
    assert "without a topic" not in condition.message


def test_a_ledger_without_a_topic_is_closed_by_its_number() -> None:
    message = said(OpenGaps((OpenGap(9), OpenGap(17, ORDERS)), more=3)).message
    assert f"Ledgers 9, 17 (of {ORDERS}) and 3 more are open" in message
    assert "`daybook ledger recover 9` closes it; it fences" in message
    alone = said(OpenGaps((OpenGap(9),))).message
    assert "topic unload" not in alone


class Link:
    """A link whose last full audit found gaps in the ledgers of `topics`, and of some that nobody asks for."""

    def __init__(self, topics: Mapping[int, bytes | None], *, closed: frozenset[int] = frozenset()) -> None:
        self.asked: list[int] = []

        async def read(ledger_id: int) -> Any:
            self.asked.append(ledger_id)
            if (topic := topics[ledger_id]) is None:
                raise NoSuchLedgerError("it was deleted meanwhile")
            marks = {TOPIC_KEY: topic} if topic else {}
            return Versioned(SimpleNamespace(is_closed=ledger_id in closed, custom_metadata=marks), 0)

        report = SimpleNamespace(found=SimpleNamespace(by_reason={"gap": (99,), "open-gap": tuple(topics)}))
        self.client = SimpleNamespace(ledgers=SimpleNamespace(read=read))
        self.audits = SimpleNamespace(last_full_report=report)


async def seen(link: Any) -> OpenGaps:
    return await open_gaps(link)


async def test_what_was_closed_or_deleted_since_the_audit_is_not_named() -> None:
    link = Link({3: ORDERS.encode(), 4: b"", 5: None, 6: b""}, closed=frozenset({4}))
    assert await seen(link) == OpenGaps((OpenGap(3, ORDERS), OpenGap(6)))
    assert not await seen(Link({4: b""}, closed=frozenset({4})))


async def test_only_the_first_few_are_read() -> None:
    link = Link(dict.fromkeys(range(100), b""))
    found = await seen(link)
    assert link.asked == list(range(NAMED_MAX))
    assert (len(found.named), found.more) == (NAMED_MAX, 100 - NAMED_MAX)


async def test_before_the_first_full_audit_nothing_is_known() -> None:
    link = Link({})
    link.audits.last_full_report = None
    assert await seen(link) == OpenGaps()
