"""All Topics of a cluster cost one request to each broker, and a silent broker hides no other one's topics."""

import asyncio
from typing import Any, cast

from daybook_operator.clusters.link import ClusterLink
from daybook_operator.plan.effects import ClusterRef
from daybook_operator.reconcile.brokers import BrokerAccess, BrokerReports

from daybook.client.broker_admin import Admin, AdminError

REF = ClusterRef("zk:2181", "daybook")
LINK = cast("ClusterLink", None)
HOUR_MS = 3_600_000


class Brokers:
    """Two brokers with a topic each, in place of `BrokerAccess` and `Admin`; `asked` has the requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.silent = ""

    async def admin(self, _link: ClusterLink) -> tuple[Admin, list[str]]:
        return cast("Admin", self), ["http://a", "http://b"]

    def ask_broker(self, _method: str, url: str, path: str, _body: object = None) -> Any:
        self.asked.append(url)
        assert path.startswith("/daybook/v1/topics?")
        if url == self.silent:
            msg = f"{url} does not answer"
            raise AdminError(msg)
        name = url.removeprefix("http://")
        subscriptions = [
            {"name": "slow", "backlogEntries": 4, "oldestAgeS": 9},
            {"name": "reader", "isDurable": False, "backlogEntries": 100},
        ]
        topic = {"topic": f"persistent://t/n/{name}", "serving": "served", "subscriptions": subscriptions}
        broker = {"broker": f"broker-{name}", "nowMs": HOUR_MS}
        return {"broker": broker, "topics": [topic], "next": None}


def reports_of(brokers: Brokers, max_age_ms: int) -> BrokerReports:
    return BrokerReports(cast("BrokerAccess", brokers), max_age_ms)


async def test_each_broker_is_asked_once_for_all_its_topics() -> None:
    brokers = Brokers()
    reports = reports_of(brokers, HOUR_MS)
    found = await asyncio.gather(*(reports.of(REF, LINK) for _ in range(100)))
    assert sorted(brokers.asked) == ["http://a", "http://b"]
    topic = found[0].topics["persistent://t/n/b"]
    assert topic.broker == "broker-b"
    oldest_ms = HOUR_MS - 9_000
    assert [(each.name, each.entries, each.oldest_published_ms) for each in topic.backlogs] == [
        ("slow", 4, oldest_ms)
    ]


async def test_what_was_reported_too_long_ago_is_asked_again() -> None:
    brokers = Brokers()
    reports = reports_of(brokers, -1)
    await reports.of(REF, LINK)
    await reports.of(REF, LINK)
    assert len(brokers.asked) == 4


async def test_a_silent_broker_hides_no_other_ones_topics() -> None:
    brokers = Brokers()
    brokers.silent = "http://a"
    found = await reports_of(brokers, HOUR_MS).of(REF, LINK)
    assert found.topics.keys() == {"persistent://t/n/b"}
    assert found.silent == "http://a does not answer"
