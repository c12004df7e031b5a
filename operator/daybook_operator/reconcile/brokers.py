"""Asks the brokers of a cluster: who they are and how they know the operator, and what they report of all their topics.

Brokers report from memory, page by page. So all topics of a cluster cost one request for some hundreds of them, at most once in a resync,
however many Topics there are.
"""

import asyncio
import ssl
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from daybook.client.broker_admin import Admin, AdminError
from daybook.client.broker_topics import admin_urls, pages
from daybook.client.topic_reports import BrokerReport, TopicReport
from daybook.metadata.brokers import BrokerDirectory
from daybook.runtime.clock import monotonic_ms
from daybook_operator.clusters.link import ClusterLink
from daybook_operator.plan.effects import ClusterRef
from daybook_operator.plan.topic.reports import OwnersReports, SubscriptionBacklog, TopicAtOwner

_SECOND_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """How the operator shows brokers who it is, and knows them: a file with a token, a CA of their admin ports; None: neither."""

    token_file: Path | None = None
    ca: Path | None = None

    async def admin(self, link: ClusterLink, manager_uid: str = "") -> tuple[Admin, list[str]]:
        """The admin HTTP of the cluster's registered brokers, and where each has it. Raises AdminError, MetadataUnavailableError."""
        view = await BrokerDirectory(link.client.store, link.client.layout).view()
        try:
            tls = None if self.ca is None else ssl.create_default_context(cafile=str(self.ca))
            token = "" if self.token_file is None else _token_in(self.token_file)
        except OSError as error:
            msg = f"the token or the CA for brokers cannot be read: {error}"
            raise AdminError(msg) from error
        urls = admin_urls(view.brokers.values(), secure=tls is not None)
        return Admin(urls, tls, token, manager_uid), urls


def _token_in(file: Path) -> str:
    """The token, checked before it becomes a header: the error of a header that cannot be one repeats it. Raises AdminError, OSError."""
    token = file.read_bytes().strip()
    if not token.isascii() or len(token.split()) > 1:
        msg = f"the token for brokers, in {file}, is no JWT: operator.brokerToken has to name a Secret with a token alone, in one line"
        raise AdminError(msg)
    return token.decode()


class BrokerReports:
    """What the owners of topics know, remembered for a while."""

    def __init__(self, brokers: BrokerAccess, max_age_ms: int) -> None:
        """Nobody has been asked yet."""
        self._brokers: Final = brokers
        self._max_age_ms: Final = max_age_ms
        self._found: dict[ClusterRef, tuple[int, OwnersReports]] = {}
        self._asking: defaultdict[ClusterRef, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def of(self, ref: ClusterRef, link: ClusterLink) -> OwnersReports:
        """What the cluster's brokers report, at most `max_age_ms` old. Raises MetadataUnavailableError."""
        async with self._asking[ref]:
            asked_at_ms, found = self._found.get(ref, (0, None))
            if found is None or monotonic_ms() - asked_at_ms > self._max_age_ms:
                found = await self.ask(link)
                self._found[ref] = monotonic_ms(), found
            return found

    async def ask(self, link: ClusterLink) -> OwnersReports:
        """What the cluster's brokers report now, in one request for some hundreds of topics. Raises MetadataUnavailableError."""
        try:
            admin, urls = await self._brokers.admin(link)
        except AdminError as error:
            return OwnersReports({}, str(error))
        if not urls:
            return OwnersReports({}, "no broker is registered")
        answers = await asyncio.gather(
            *(asyncio.to_thread(_read, admin, url) for url in urls), return_exceptions=True
        )
        topics: dict[str, TopicAtOwner] = {}
        silent = ""
        for answer in answers:
            if isinstance(answer, AdminError):
                silent = str(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                topics |= answer
        return OwnersReports(topics, silent)


def _read(admin: Admin, url: str) -> dict[str, TopicAtOwner]:
    return {
        report.topic: _at_owner(page.broker, report) for page in pages(admin, url) for report in page.topics
    }


def _at_owner(broker: BrokerReport, report: TopicReport) -> TopicAtOwner:
    """The time of the oldest message is by the broker's clock, as its age is."""
    backlogs = (
        SubscriptionBacklog(
            each.name,
            each.backlog_entries,
            None if each.oldest_age_s is None else broker.now_ms - _SECOND_MS * each.oldest_age_s,
        )
        for each in report.subscriptions
        if each.is_durable
    )
    return TopicAtOwner(broker.broker, tuple(backlogs), report.quota.refusal)
