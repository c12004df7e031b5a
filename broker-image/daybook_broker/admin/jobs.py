"""What jobs ask a topic's owner for, at Daybook's own paths: it alone changes the topic's list (rule 38).

A trim, and the commit of a compaction whose ledgers the job has written and closed (rule 41).

A request names the ledgers that the job planned on, and not the version of the list, which rises with each ledger of a busy topic.
"""

from typing import Any, Final

from aiohttp import web

from daybook.core.errors import MetadataError
from daybook.core.ids import MAX_ID
from daybook.core.topics.compaction.commit import CompactionCommit
from daybook.core.topics.trim_plan import PlannedLedger
from daybook.runtime.logs import get_logger
from daybook_broker.admin.api import Api, BadRequestError, Route, object_of, topic_of
from daybook_broker.admin.known import TOPIC
from daybook_broker.topics.planned_trims import trim_planned

log = get_logger(__name__)


async def trim(api: Api, request: web.Request) -> None:
    """Drop the first ledgers of a topic, if nobody needs them."""
    name, planned = topic_of(request), _planned(await object_of(request))
    await api.own(request, name)
    topic = await api.broker.registry.load(name, create=False)
    await trim_planned(topic, planned)
    log.info(
        "ledgers were trimmed as requested", topic=str(name), ledgers=[plan.ledger_id for plan in planned]
    )


async def compact(api: Api, request: web.Request) -> None:
    """Name the ledgers that a compaction job wrote, with their horizon, in place of those that the topic has."""
    name, commit = topic_of(request), _commit(await object_of(request))
    await api.own(request, name)
    topic = await api.broker.registry.load(name, create=False)
    await topic.compaction.commit(commit)
    log.info(
        "a compaction was named as requested",
        topic=str(name),
        job=commit.job,
        horizon=str(commit.written.horizon),
        ledgers=[ledger.ledger_id for ledger in commit.written.ledgers],
    )


def _commit(body: dict[str, Any]) -> CompactionCommit:
    """The compaction that a body describes. Raises BadRequestError."""
    try:
        return CompactionCommit.of(body)
    except MetadataError as error:
        msg = (
            'the body is to describe a compaction: {"job": "id", "former": null, "planned": [{"ledgerId": 3, "entries": 10, "size": 1000}], '
            '"compaction": {"horizon": "3:9", "ledgers": [{"ledgerId": 7, "entries": 2, "size": 200, "through": "3:9"}]}} '
            f"({error})"
        )
        raise BadRequestError(msg) from error


def _planned(body: dict[str, Any]) -> list[PlannedLedger]:
    """The ledgers that a body names. Raises BadRequestError."""
    found = body.get("ledgers")
    try:
        if not isinstance(found, list):
            raise TypeError
        planned = [PlannedLedger(each["ledgerId"], each["entries"], each["size"]) for each in found]
    except (TypeError, KeyError):
        planned = []
    if not planned or any(
        type(number) is not int or not 0 <= number <= MAX_ID for each in planned for number in each
    ):
        msg = 'the body is to name the ledgers of the plan: {"ledgers": [{"ledgerId": 3, "entries": 10, "size": 1000}]}'
        raise BadRequestError(msg)
    return planned


ROUTES: Final[tuple[Route, ...]] = (
    ("POST", f"{TOPIC}/trim", trim),
    ("POST", f"{TOPIC}/compaction", compact),
)
