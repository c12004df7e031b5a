"""Asks brokers what they know of their topics, at Daybook's own paths: for the operator, the plugin and jobs.

A broker reports from its memory, so each broker is asked for its own topics. Whoever wants all topics asks all registered brokers; one that
does not answer hides no other one's topics. Every function blocks.
"""

from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote

from pydantic import ValidationError

from daybook.client.broker_admin import AdminError, BrokerAdmin
from daybook.client.topic_reports import BrokerReport, SubscriptionReport, TopicPage, TopicReport
from daybook.core.topics.compaction.commit import CompactionCommit
from daybook.core.topics.ledger_list import ListedLedger
from daybook.core.topics.name import TopicName
from daybook.core.topics.offload.changes import WrittenFile
from daybook.core.topics.offload.restore import RestoredLedger
from daybook.metadata.brokers import BrokerInfo

TOPICS_PATH: Final = "/daybook/v1/topics"


def admin_urls(brokers: Iterable[BrokerInfo], *, secure: bool) -> list[str]:
    """Where the admin HTTP of registered brokers is, by https where it is there and `secure`; one without any is left out."""
    found = [info.admin_urls for info in brokers]
    urls = [(secure and each.tls) or each.plain or each.tls for each in found]
    return [url for url in urls if url]


def pages(admin: BrokerAdmin, url: str, *, limit: int | None = None) -> Iterator[TopicPage]:
    """All topics that the broker at `url` has in memory, page by page, by name. Raises AdminError."""
    after = ""
    while True:
        rest = f"?after={quote(after, safe='')}" + ("" if limit is None else f"&limit={limit}")
        page = _page(admin.ask_broker("GET", url, TOPICS_PATH + rest))
        yield page
        if page.next is None:
            return
        after = page.next


def topic(admin: BrokerAdmin, name: TopicName) -> tuple[BrokerReport, TopicReport]:
    """What the owner knows of a topic, with all its subscriptions; the owner takes an idle topic over. Raises AdminError."""
    subscriptions: list[SubscriptionReport] = []
    path, after = topic_path(name), ""
    while True:
        page = _page(admin.ask_any("GET", f"{path}?after={quote(after, safe='')}"))
        if len(page.topics) != 1:
            msg = f"a broker answered with {len(page.topics)} topics instead of {name}: does a proxy change paths?"
            raise AdminError(msg)
        (found,) = page.topics
        subscriptions += found.subscriptions
        if found.next_subscription is None:
            return page.broker, found.model_copy(update={"subscriptions": tuple(subscriptions)})
        after = found.next_subscription


def trim(admin: BrokerAdmin, name: TopicName, planned: Iterable[ListedLedger]) -> None:
    """Ask the owner to drop these ledgers, which a plan names as the list had them; it drops no others.

    Raises AdminError: 409 if one of them has changed, 412 if somebody needs one or the retention keeps it.
    """
    ledgers = [
        {"ledgerId": each.ledger_id, "entries": each.entries, "size": each.size_bytes} for each in planned
    ]
    admin.ask_any("POST", topic_path(name, "trim"), {"ledgers": ledgers})


def commit_compaction(admin: BrokerAdmin, name: TopicName, commit: CompactionCommit) -> None:
    """Ask the owner to name what a compaction job wrote; the same request twice is one.

    Raises AdminError: 409 if something that the job planned on has changed, 412 if the owner does not find what the job says that it
    wrote, 503 while the topic is compacted by somebody else or changes its owner.
    """
    admin.ask_any("POST", topic_path(name, "compaction"), commit.record())


def begin_offload(admin: BrokerAdmin, name: TopicName, job: str) -> None:
    """Tell the owner that the run `job` begins: from now on the list names files of no other run (rule 70). Raises AdminError."""
    admin.ask_any("POST", topic_path(name, "offload"), {"job": job})


def commit_offload(
    admin: BrokerAdmin, name: TopicName, job: str, files: Iterable[WrittenFile], *, lag_ms: int | None
) -> None:
    """Ask the owner to name files that were written, read back and verified; the replicas go `lag_ms` later, or never.

    Raises AdminError: 409 if a ledger has changed or another run has begun, 412 if the owner cannot read a file.
    """
    ledgers = [
        {
            "ledgerId": each.ledger.ledger_id,
            "entries": each.ledger.entries,
            "size": each.ledger.size_bytes,
            "place": each.place,
            "formatVersion": each.format_version,
            "fileSize": each.size_bytes,
            "crc": each.crc,
        }
        for each in files
    ]
    body = {"job": job, "ledgers": ledgers, "replicasForMs": lag_ms}
    admin.ask_any("POST", topic_path(name, "offload"), body)


def commit_restore(
    admin: BrokerAdmin, name: TopicName, job: str, restored: Iterable[RestoredLedger], *, lag_ms: int
) -> None:
    """Ask the owner to name copies of ledgers in place of their files, which stay `lag_ms` longer; the same request twice is one.

    Raises AdminError: 409 if a ledger has changed, 412 if the owner does not find the copy that the job says it wrote, 503 if it cannot
    read it now.
    """
    ledgers = [
        {
            "ledgerId": each.ledger.ledger_id,
            "entries": each.ledger.entries,
            "size": each.ledger.size_bytes,
            "place": each.place,
            "crc": each.crc,
            "storedAs": each.stored_as,
        }
        for each in restored
    ]
    admin.ask_any("POST", topic_path(name, "restore"), {"job": job, "ledgers": ledgers, "fileForMs": lag_ms})


def topic_path(name: TopicName, action: str = "") -> str:
    """The path of one topic; without the scheme, since proxies make one slash of two."""
    encoded = quote(f"{name.tenant}/{name.namespace}/{name.local}", safe="")
    return f"{TOPICS_PATH}/{encoded}" + (f"/{action}" if action else "")


def _page(answer: object) -> TopicPage:
    try:
        return TopicPage.model_validate(answer)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the answer"
        msg = f"a broker's answer about its topics cannot be read: {where}: {first['msg']}; is the broker of another release?"
        raise AdminError(msg) from error
