"""What `topic explain` says of a snapshot: its whole text, each mistake alone, and nothing fine that was not read."""

from typing import Any

import pytest

from daybook.cli.topic.explain.dialect import SHELL, kubectl
from daybook.cli.topic.explain.explain import ORDER, explain, is_wrong, record_of, text_of
from daybook.cli.topic.explain.facts import Resource, Snapshot, StoredTopic
from daybook.cli.topic.explain.step import Step, Verdict, age
from daybook.client.topic_reports import QuotaReport, Serving
from daybook.core.topics.manager import Manager
from daybook.core.topics.name import TopicName
from daybook.core.topics.ownership.lookup import BundleOwner
from daybook.core.topics.policy import Degrade, Durability, Policy
from tests.unit.cli.topic.snapshots import (
    BOOKIES,
    NOW_MS,
    OWNER,
    TOKEN,
    TOPIC,
    broker,
    open_ledger,
    report,
    snapshot,
    subscription,
)

ORDERS = Manager("data", "orders", "uid-1")
MINE = Resource("data", "orders", "uid-1")
FENCED = "ledger 7 is fenced: another client recovers it"


def text(seen: Snapshot, dialect: Any = SHELL) -> str:
    return text_of(seen, explain(seen, dialect)) + "\n"


def wrong(seen: Snapshot) -> Step:
    """The one step that is wrong."""
    (found,) = [step for step in explain(seen, SHELL) if step.verdict is Verdict.WRONG]
    return found


GOLDEN_FINE = """\
persistent://public/default/orders
  ok      resource        no Topic resource manages it
  ok      policy          durability semi-sync (E=3 Qw=3 Qa=2), degrade to-ack-quorum
  ok      owner           broker data.broker-1 owns it, by the lease of bundle public/default/0xb0000000_0xb8000000
  ok      session         broker data.broker-1 is registered, and its ZooKeeper session 0x1000a certainly lives
  ok      fencing         ledger 7 is open, and its writer was not fenced
  ok      ensemble        3 of 3 registered bookies take writes; ledger 7 is written to data.bk-0, data.bk-1, data.bk-2
  ok      quota           the largest backlog has 4,096 bytes, and there is no quota
  ok      permits         12 entries wait for 1 subscriptions with 2 consumers
  ok      unacked limits  consumers have 12 messages that they have not acknowledged, within the limits
  ok      holes           subscription 'billing' has 2 acknowledged ranges beyond 7:40; 10,000 are stored
  ok      oldest message  the message behind 7:40 has waited 4 s for subscription 'billing', and no other one longer
"""


def test_the_text_of_a_topic_that_is_fine() -> None:
    seen = snapshot()
    assert text(seen) == GOLDEN_FINE
    assert not is_wrong(explain(seen, SHELL))


def everything_wrong() -> Snapshot:
    """A topic whose every step has something to say."""
    slow = subscription(
        "audit log",
        backlog_entries=1_204_331,
        oldest_age_s=93_784,
        consumers=0,
        permits=0,
        unacked_messages=0,
    )
    stuck = subscription("billing", is_blocked=True, unacked_messages=200_000, holes=10_001, permits=0)
    quota = QuotaReport(
        backlog_bytes=10_000_000,
        limit_bytes=5_000_000,
        action="producer_request_hold",
        refusal="the backlog is over its quota",
    )
    return snapshot(
        manager=ORDERS,
        resources=(Resource("data", "orders", "uid-1", ("Ready is False (ResourceConflict): it is taken",)),),
        policy_problem="durability=sync cannot continue with fewer copies: set degrade=never",
        policy=Policy(ttl_ms=3_600_000),
        brokers={"data.broker-0": "", OWNER: "its ZooKeeper session may have ended"},
        report=report(
            stuck,
            slow,
            serving=Serving.UNLOADING,
            error=FENCED,
            is_degraded=True,
            open_ledger=open_ledger(error=FENCED, missing=("data.bk-1",)),
            quota=quota,
        ),
        bookies={"data.bk-0": False, "data.bk-1": True},
        under_replicated=(3, 5),
    )


GOLDEN_WRONG = """\
persistent://public/default/orders
  wrong   resource        Topic data/orders is not as it should be
                          Ready is False (ResourceConflict): it is taken
                          next: kubectl describe topic -n data orders
  wrong   policy          what is set for the topic cannot hold
                          durability=sync cannot continue with fewer copies: set degrade=never
                          next: kubectl describe topic -n data orders
  wrong   owner           broker data.broker-1 gives the topic up
                          ledger 7 is fenced: another client recovers it
                          next: daybook broker start data.broker-1
  wrong   session         broker data.broker-1 does not serve
                          its ZooKeeper session may have ended
                          next: daybook broker start data.broker-1
  wrong   fencing         the owner cannot write the topic any more
                          ledger 7 is fenced: another client recovers it
                          next: daybook topic unload persistent://public/default/orders
  wrong   ensemble        1 bookies take writes, and the topic's next ledger needs 2
                          ledger 7 is written to bookie data.bk-0, which takes no writes
                          ledger 7 is written to bookie data.bk-1, which does not answer the owner
                          ledger 7 is written to bookie data.bk-2, which is not registered
                          new messages have fewer copies than the policy says
                          ledgers that lack a replica: 3, 5
                          next: daybook bookie list
  wrong   quota           the largest backlog has 10,000,000 bytes, and the quota is 5,000,000
                          the backlog is over its quota
                          producers wait until the backlog is smaller
                          next: kubectl describe topic -n data orders
  wrong   permits         12 entries wait for subscription 'billing', and its 2 consumers asked for no more messages
                          1,204,331 entries wait for subscription 'audit log', and no consumer is connected
                          next: daybook topic peek persistent://public/default/orders billing
  wrong   unacked limits  subscription 'billing' delivers nothing: its consumers have 200,000 messages that they have not acknowledged, and must acknowledge half of them first
                          next: daybook topic peek persistent://public/default/orders billing
  wrong   holes           subscription 'billing' has 10,001 acknowledged ranges beyond 7:40, of which 10,000 are stored: after a fail-over the broker delivers the others again
                          next: daybook topic peek persistent://public/default/orders billing
  wrong   oldest message  the message behind 7:40 has waited 1 d 2 h for subscription 'audit log', and should have expired after 1 h
                          next: daybook topic peek persistent://public/default/orders 'audit log'
"""


def test_the_text_of_a_topic_with_which_everything_is_wrong() -> None:
    """In the order in which things depend on each other, each with evidence and the next command."""
    seen = everything_wrong()
    assert text(seen) == GOLDEN_WRONG
    assert is_wrong(explain(seen, SHELL))


def test_kubectl_has_the_same_text_and_commands_of_its_own() -> None:
    """Only the commands differ; logs are those of the pod that the broker is named after."""
    said = text(everything_wrong(), kubectl("data")).splitlines()
    of_shell = GOLDEN_WRONG.splitlines()
    assert len(said) == len(of_shell)
    changed = {line.strip() for line, other in zip(said, of_shell, strict=True) if line != other}
    assert changed == {
        "next: kubectl logs -n data broker-1 --tail 50",
        "next: kubectl daybook topic unload -n data persistent://public/default/orders",
        "next: kubectl daybook bookies -n data",
        "next: kubectl daybook topic backlog -n data persistent://public/default/orders",
    }
    assert "kubectl daybook topic unload -A" in text(everything_wrong(), kubectl(""))


OTHER = Resource("data", "older", "uid-2")
FAR = subscription(backlog_entries=5, permits=0, consumers=0, oldest_age_s=7_200)


@pytest.mark.parametrize(
    ("changes", "step", "says", "next_command"),
    [
        ({"resources": (MINE,)}, "resource", "names no manager", "kubectl describe topic -n data orders"),
        (
            {"manager": ORDERS, "resources": (OTHER,)},
            "resource",
            "Topic data/orders, which the topic's policy names as its manager, does not exist",
            "kubectl get topics -A",
        ),
        ({"manager": ORDERS, "resources": (MINE, OTHER)}, "resource", "Topic data/older has no effect", "kubectl describe topic -n data older"),
        ({"policy_problem": "no"}, "policy", "what is set for the topic cannot hold", f"daybook topic policy {TOPIC}"),
        ({"owner": BundleOwner(OWNER, released=True, to="b-2")}, "owner", "for b-2", "daybook broker start b-2"),
        ({"broker": broker(broker="data.broker-0")}, "owner", "broker data.broker-0 reports", f"daybook topic unload {TOPIC}"),
        (
            {"report": report(serving=Serving.TAKING_OVER, phase="RECOVERING", taken_over_at_ms=NOW_MS - 61_000)},
            "owner",
            "began to take the topic over 1 min 1 s ago, and is still at RECOVERING",
            f"daybook broker start {OWNER}",
        ),
        ({"brokers": {"data.broker-0": ""}}, "session", "is not registered", f"daybook broker start {OWNER}"),
        ({"stored": StoredTopic(TOKEN, 7, "IN_RECOVERY")}, "fencing", "IN_RECOVERY", f"daybook topic unload {TOPIC}"),
        ({"stored": StoredTopic(TOKEN, 7, "")}, "fencing", "does not exist", "daybook ledger show 7"),
        ({"report": report(open_ledger=open_ledger(error=FENCED))}, "fencing", "takes no more", f"daybook topic unload {TOPIC}"),
        ({"report": report(open_ledger=open_ledger(missing=("data.bk-1",)))}, "ensemble", "data.bk-1, which does not answer", "daybook bookie list"),
        ({"report": report(refusal="2 bookies are needed")}, "ensemble", "2 bookies are needed", "daybook bookie list"),
        ({"under_replicated": (3,)}, "ensemble", "lack a replica: 3", "daybook audit"),
        (
            {"policy": Policy(durability=Durability.SYNC, degrade=Degrade.NEVER, ensemble_size=4)},
            "ensemble",
            "3 bookies take writes, and the topic's next ledger needs 4",
            "daybook bookie list",
        ),
        ({"policy": Policy(pool="data.other")}, "ensemble", "0 bookies of pool data.other take writes", "daybook bookie list"),
        (
            {"report": report(subscription(oldest_age_s=7_200), quota=QuotaReport(limit_ms=3_600_000, action="producer_exception"))},
            "quota",
            "has waited 2 h for subscription 'billing', and the quota is 1 h",
            f"daybook topic policy {TOPIC}",
        ),
        ({"report": report(FAR)}, "permits", "no consumer is connected", f"daybook topic peek {TOPIC} billing"),
        ({"report": report(subscription(paused_consumers=2))}, "permits", "take nothing now", f"daybook topic peek {TOPIC} billing"),
        ({"report": report(subscription(blocked_consumers=1))}, "unacked limits", "1 of 2 consumers", f"daybook topic peek {TOPIC} billing"),
        ({"report": report(subscription(holes=10_001))}, "holes", "10,001 acknowledged ranges", f"daybook topic peek {TOPIC} billing"),
        (
            {"policy": Policy(ttl_ms=60_000), "report": report(subscription(oldest_age_s=7_200))},
            "oldest message",
            "should have expired after 1 min",
            f"daybook topic peek {TOPIC} billing",
        ),
    ],
)  # fmt: skip
def test_each_mistake_alone_is_found_by_its_step(
    changes: dict[str, Any], step: str, says: str, next_command: str
) -> None:
    found = wrong(snapshot(**changes))
    assert found.name == step
    assert says in " ".join((found.what, *found.evidence))
    assert found.next_command == next_command


def test_rule_38_a_list_that_another_broker_wrote_is_wrong_whatever_the_owner_reports() -> None:
    found = wrong(snapshot(stored=StoredTopic("b" * 32, 7, "OPEN")))
    assert (found.name, found.next_command) == ("fencing", f"daybook topic unload {TOPIC}")
    assert f"of the broker: {TOKEN}" in found.evidence[0]


def test_rule_46_an_owner_that_is_not_certain_of_its_session_is_wrong() -> None:
    seen = snapshot(broker=broker(is_certain=False), report=report(held_receipts=31))
    found = wrong(seen)
    assert (found.name, found.next_command) == ("session", f"daybook broker start {OWNER}")
    assert found.evidence == ("the receipts of 31 entries wait for that",)


@pytest.mark.parametrize(
    "changes",
    [
        {"manager": ORDERS},
        {"manager": ORDERS, "resources": (MINE,)},
        {"resources": (Resource("data", "watch", "uid-3", is_managing=False),)},
        {"report": report(state="Terminated", refusal="the topic is terminated", open_ledger=None), "stored": StoredTopic(TOKEN)},
        {"report": report(serving=Serving.TAKING_OVER, taken_over_at_ms=NOW_MS - 1_000)},
        {"report": report(subscription(backlog_entries=0, permits=0, consumers=0, oldest_age_s=None))},
        {"policy": Policy(ttl_ms=60_000), "report": report(subscription(oldest_age_s=300))},
        {"bookies": {**BOOKIES, "data.bk-3": False}},
        {"policy": Policy(pool="data.bk")},
    ],
)  # fmt: skip
def test_what_is_usual_is_not_wrong(changes: dict[str, Any]) -> None:
    """A managed topic, a terminated one, one that a broker has just taken over, a backlog that will expire, a full bookie elsewhere."""
    seen = snapshot(**changes)
    assert [step for step in explain(seen, SHELL) if step.verdict is not Verdict.FINE] == []


def test_without_an_owner_the_answer_of_the_brokers_is_the_evidence() -> None:
    seen = snapshot(owner=None, report=None, broker=None, stored=None, refusal="ledger 7 cannot be recovered")
    found = {step.name: step for step in explain(seen, SHELL)}
    assert found["owner"].verdict is Verdict.WRONG
    assert found["owner"].evidence == ("ledger 7 cannot be recovered",)
    assert found["permits"].what == "ledger 7 cannot be recovered"
    nobody = wrong_names(snapshot(owner=None, report=None, brokers={}))
    assert nobody[0] == "owner"


def wrong_names(seen: Snapshot) -> list[str]:
    return [step.name for step in explain(seen, SHELL) if step.verdict is Verdict.WRONG]


def test_what_was_not_read_is_unknown_and_never_fine() -> None:
    names = [step.name for step in explain(snapshot(), SHELL)]
    assert len(names) == len(ORDER)
    blind = Snapshot(TOPIC, NOW_MS, unread=dict.fromkeys(names, "pods is forbidden"))
    found = explain(blind, SHELL)
    assert {step.verdict for step in found} == {Verdict.UNKNOWN}
    assert {step.what for step in found if step.name != "session"} == {"pods is forbidden"}


def test_names_are_quoted_for_a_shell_and_records_have_every_step() -> None:
    name = TopicName("public", "default", "a b;c")
    seen = snapshot(topic=name, policy_problem="no")
    assert wrong(seen).next_command == "daybook topic policy 'persistent://public/default/a b;c'"
    record = record_of(seen, explain(seen, SHELL))
    assert record["topic"] == str(name)
    assert [step["step"] for step in record["steps"]][:3] == ["resource", "policy", "owner"]
    assert record["steps"][1] == {
        "step": "policy",
        "verdict": "wrong",
        "what": "what is set for the topic cannot hold",
        "evidence": ["no"],
        "nextCommand": "daybook topic policy 'persistent://public/default/a b;c'",
    }


@pytest.mark.parametrize(
    ("span_ms", "said"),
    [(0, "0 s"), (999, "0 s"), (61_000, "1 min 1 s"), (3_600_000, "1 h"), (90_061_000, "1 d 1 h")],
)
def test_spans_of_time_have_their_two_largest_units(span_ms: int, said: str) -> None:
    assert age(span_ms) == said
