"""The part of a snapshot that brokers give, the same for both commands: in a shell by HTTP, in kubectl by the API server's pod proxy."""

from collections.abc import Callable
from typing import Any, Final

from daybook.cli.topic.explain.facts import Snapshot
from daybook.client.broker_admin import AdminError, BrokerAdmin
from daybook.client.broker_topics import topic
from daybook.core.errors import PolicyError
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import Policy, PolicyLayer

_NOT_FOUND: Final = 404
_MISTAKES: Final = frozenset({400, 500})
"""What a broker answers if what is set cannot be read, or does not go together."""


def ask_brokers(admin: BrokerAdmin, name: TopicName, now_ms: int) -> Snapshot:
    """What brokers know of a topic. What they do not say is unread. Raises AdminError if the topic does not exist.

    The owner is asked as a client asks it, so a topic without an owner gets one, or the reason why not.
    """
    unread: dict[str, str] = {}
    found: dict[str, Any] = {}

    def read(*steps: str, question: Callable[[], Any]) -> Any:
        """The answer; None and the reason for these steps if there is none."""
        try:
            return question()
        except AdminError as error:
            if error.status == _NOT_FOUND:
                raise
            unread.update(dict.fromkeys(steps, str(error)))
            return None

    layer = read("resource", question=lambda: admin.ask("GET", name, "policy"))
    if layer is not None:
        found["manager"] = PolicyLayer.from_record(layer).managed_by
    found |= _policy(admin, name, unread)
    try:
        found["broker"], found["report"] = topic(admin, name)
    except AdminError as error:
        if error.status == _NOT_FOUND:
            raise
        found["refusal"] = str(error)
    else:
        ledgers = read("ensemble", question=lambda: admin.ask("GET", name, "internalStats")["ledgers"])
        found["under_replicated"] = tuple(
            ledger["ledgerId"] for ledger in ledgers or () if ledger["underReplicated"]
        )
    return Snapshot(name, now_ms, **found, unread=unread)


def _policy(admin: BrokerAdmin, name: TopicName, unread: dict[str, str]) -> dict[str, Any]:
    try:
        record = admin.ask("GET", name, "policy/applied")
        return {"policy": Policy(**PolicyLayer.from_record(record).known)}
    except PolicyError as error:
        unread["policy"] = f"the broker's answer cannot be read: {error}"
    except AdminError as error:
        if error.status in _MISTAKES:
            return {"policy_problem": str(error)}
        unread["policy"] = str(error)
    return {}
