"""Trims that somebody else has planned: the retention job (rule 71), whose plan the owner judges anew.

A trim that cannot begin at once is dropped, since its positions would be old when it could. So it is judged and ordered again after
each change of the list, until it is carried out.
"""

from collections.abc import Collection

from daybook.core.errors import LedgersNeededError
from daybook.core.topics.trim_plan import PlannedLedger, check_plan
from daybook.runtime.clock import unix_ms
from daybook_broker.topics.topic import Topic


async def trim_planned(topic: Topic, planned: Collection[PlannedLedger]) -> None:
    """Drop these ledgers from the topic's list, and no others; they are deleted after that.

    Raises PlanOutdatedError, LedgersNeededError, NotReadyError if that takes too long, and why the policy cannot be read.
    """
    ids = {plan.ledger_id for plan in planned}

    def is_done() -> bool:
        if ids.isdisjoint(topic.ledger_list.ids):
            return True
        _order(topic, planned)
        return False

    await topic.subscriptions.opened()
    await topic.read_policy()
    topic.check_open()
    _order(topic, planned)
    await topic.changed(is_done)


def _order(topic: Topic, planned: Collection[PlannedLedger]) -> None:
    if topic.compaction.mark is not None:
        msg = f"topic {topic.name} is being compacted, which reads its ledgers: wait until that has ended"
        raise LedgersNeededError(msg)
    marks = topic.subscriptions.marks_by_name()
    end = check_plan(topic.ledger_list, planned, marks, topic.policy.retention, unix_ms())
    topic.trim_to((*marks.values(), end))
