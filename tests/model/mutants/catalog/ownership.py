"""Mutants of the ownership of topics: bundles, their leases and lookups; and of the policies that a ledger is created by."""

from dataclasses import replace
from functools import partial
from typing import Any

from daybook_broker import process
from daybook_broker.broker import Broker
from daybook_broker.cut_off import CutOff
from daybook_broker.ownership import held
from daybook_broker.ownership.ownership import Ownership
from daybook_broker.topics.publishing import Publishing

from daybook.core.quorum import Quorum
from daybook.core.topics import policy
from daybook.core.topics.ownership import lookup
from daybook.metadata import bundles
from daybook.metadata.store.store import Create, Put
from tests.model.mutants.registry import around, instead_of, mutant

_NOT_SIMULATED = "the simulator has no brokers"
by_test = partial(mutant, not_simulated=_NOT_SIMULATED)

LOOKUP = "tests/unit/core/topics/ownership/test_lookup.py"
DOUBT = "tests/unit/broker/ownership/test_doubt.py"
STORE = "tests/unit/metadata/test_brokers.py"
POLICY = "tests/unit/core/topics/test_policy.py"
CONNECTION = "tests/unit/broker/connection/test_connection.py"
CUT_OFF = "tests/unit/broker/test_cut_off.py"
PROCESS = "tests/unit/broker/test_process.py"
OWNERSHIP = "tests/unit/broker/ownership/test_ownership.py"


@by_test(46, f"{LOOKUP}::test_rule_46_an_owner_in_doubt_answers_no_lookup")
@around(lookup, "decide")
def an_owner_in_doubt_answers_a_lookup(decide: Any, facts: Any) -> Any:
    """A broker answers as if its session certainly lived."""
    return decide(replace(facts, is_certain=True))


@by_test(46, f"{DOUBT}::test_rule_46_an_owner_in_doubt_owns_nothing_and_answers_no_lookup", slow=True)
@instead_of(held.HeldBundles, "owns")
def what_is_held_is_owned_in_doubt_as_well(self: Any, bundle: Any) -> bool:
    """A broker owns what it has a lease of, whatever has become of its session."""
    return bool(self.holding(bundle) is lookup.Holding.OWNED)


@by_test(46, f"{CONNECTION}::test_rule_46_receipts_are_held_while_ownership_is_in_doubt", slow=True)
@around(Publishing, "published")
def receipts_are_sent_in_doubt(published: Any, self: Publishing, result: Any) -> Any:
    """A broker that may have lost a topic answers its producers as if it certainly had it."""
    found = published(self, result)
    while self._held:
        self._send_receipts(*self._held.pop(0))
    return found


@by_test(46, f"{CUT_OFF}::test_rule_46_a_broker_in_doubt_is_not_ready_and_says_so_to_the_others", slow=True)
@instead_of(Broker, "unready")
def readiness_ignores_the_session(self: Broker) -> str | None:
    """A broker that is registered is ready, whatever has become of its session."""
    return self.problem()


@by_test(46, f"{PROCESS}::test_rule_46_a_broker_in_doubt_of_its_session_is_alive_and_not_ready", slow=True)
@around(process, "checks")
def liveness_asks_zookeeper(checks: Any, progress: Any, state: process.State) -> process.Checks:
    """An outage of ZooKeeper restarts every broker."""
    found: process.Checks = checks(progress, state)
    return {**found, "liveness": [*found["liveness"], state.problem]}


@by_test(46, f"{CUT_OFF}::test_rule_46_clients_are_kept_while_zookeeper_answers_nobody", slow=True)
@around(CutOff, "__init__")
def clients_are_let_go_whoever_serves(init: Any, self: CutOff, *terms: Any, **_serves: Any) -> None:
    """A broker lets its clients go although nobody could serve them."""

    async def always(_broker: Any) -> bool:
        return True

    init(self, *terms[:3], serves=always)


@by_test(38, f"{OWNERSHIP}::test_a_broker_that_stops_hands_all_over", slow=True)
@instead_of(Ownership, "unload")
async def a_broker_stops_without_an_unload(_: Ownership, _topic: Any, _to: str = "") -> None:
    """A rolling update leaves each topic without an owner until the session of the broker has ended."""


@by_test(42, f"{STORE}::test_rule_42_a_release_whose_reply_was_lost_leaves_the_next_owner_alone")
@instead_of(bundles, "Create")
def a_release_happens_as_often_as_it_is_sent(path: str, data: bytes, *, ephemeral: bool = False) -> Any:
    """Nothing distinguishes the first attempt of a release from later ones."""
    return Put("/", data, None) if "/released-" in path else Create(path, data, ephemeral)


@by_test(45, f"{POLICY}::test_rule_45_a_ledger_shrinks_to_what_can_be_placed_never_below_qa")
@instead_of(policy, "placeable")
def bookies_that_share_a_node_are_counted_apart(terms: Any, _: Any) -> Any:
    """A ledger is created for as many bookies as there are, wherever they stand."""
    return terms


@by_test(45, f"{POLICY}::test_rule_45_a_ledger_shrinks_to_the_bookies_that_are_there_never_below_qa")
@around(policy, "ledger_terms")
def a_ledger_shrinks_below_its_ack_quorum(ledger_terms: Any, found: Any, writable: Any) -> Any:
    """A ledger is created on the bookies that are there, however few."""
    there = list(writable)
    terms = ledger_terms(found, there)
    few = max(1, len(there))
    return terms._replace(quorum=Quorum(*(min(size, few) for size in terms.quorum)))


@by_test(45, f"{POLICY}::test_rule_45_a_topic_that_must_not_degrade_keeps_its_quorum")
@around(policy, "ledger_terms")
def every_topic_may_degrade(ledger_terms: Any, found: Any, writable: Any) -> Any:
    """What a policy says about degrading is not asked."""
    allowed = replace(found, durability=policy.Durability.SEMI_SYNC, degrade=policy.Degrade.TO_ACK_QUORUM)
    return ledger_terms(allowed, writable)
