"""What this broker knows of its topics, all of them or one, at Daybook's own paths.

The operator, the plugin and jobs ask every broker for all its topics, now and then and by one request for hundreds of them. So the answer is
made from memory, its size is bounded, and other requests have their turn of the event loop meanwhile.
"""

import asyncio
import json
from collections.abc import Sequence
from heapq import nlargest, nsmallest
from typing import Final

from aiohttp import web

from daybook.client.topic_reports import TopicReport
from daybook_broker.admin.api import Api, Route, number, topic_of
from daybook_broker.admin.reports import broker_report, topic_report
from daybook_broker.topics.subscription import Subscription
from daybook_broker.topics.topic import Topic

TOPICS_MAX: Final = 500
"""Topics of one answer."""
SUBSCRIPTIONS_SHOWN: Final = 20
"""Subscriptions of each topic of a list: those with the largest backlogs."""
SUBSCRIPTIONS_MAX: Final = 1_000
"""Subscriptions of one answer about one topic."""
PAGE_BYTES_MAX: Final = 4 * 2**20
"""An answer with so much takes no further topic; names may have a thousand bytes, and nothing else is long."""
_TURN_TOPICS: Final = 20
"""Topics of one turn of the event loop: about two milliseconds."""


async def topics(api: Api, request: web.Request) -> web.Response:
    """The broker's topics behind `after`, in the order of their names, with the largest backlogs of each."""
    registry = api.broker.registry
    after, limit = request.query.get("after", ""), _limit(request, TOPICS_MAX)
    names = {text: name for name in registry.names() if (text := str(name)) > after}
    parts: list[bytes] = []
    size_bytes, last = 0, ""
    for count, last in enumerate(nsmallest(limit, names), 1):
        name = names[last]
        if name in registry:  # it may have ended in another's turn
            parts.append(_encoded(topic_report(name, registry, _largest(registry.known(name)))))
            size_bytes += len(parts[-1])
        if size_bytes >= PAGE_BYTES_MAX:
            break
        if count % _TURN_TOPICS == 0:
            await asyncio.sleep(0)
    return _page(api, parts, last if any(each > last for each in names) else None)


async def topic(api: Api, request: web.Request) -> web.Response:
    """One topic with its subscriptions behind `after`, in the order of their names; taken over if it is to be this broker's and is idle."""
    name, registry = topic_of(request), api.broker.registry
    after, limit = request.query.get("after", ""), _limit(request, SUBSCRIPTIONS_MAX)
    if name not in registry:
        await api.own(request, name)
        loaded = await registry.load(name, create=False)
        await loaded.subscriptions.opened()
    found = registry.known(name)
    behind = [] if found is None else [each for each in found.subscriptions.all() if each.name > after]
    shown = nsmallest(limit, behind, key=lambda each: each.name)
    following = shown[-1].name if len(shown) < len(behind) else None
    return _page(api, [_encoded(topic_report(name, registry, shown, following=following))], None)


def _largest(found: Topic | None) -> list[Subscription]:
    every = [] if found is None else found.subscriptions.all()
    return nlargest(SUBSCRIPTIONS_SHOWN, every, key=lambda each: each.acks.unacked_entries())


def _limit(request: web.Request, maximum: int) -> int:
    """How many a page may have. Raises BadRequestError."""
    return min(number(request.query.get("limit", str(maximum)), "limit", minimum=1), maximum)


def _encoded(report: TopicReport) -> bytes:
    return report.model_dump_json(by_alias=True).encode()


def _page(api: Api, parts: Sequence[bytes], following: str | None) -> web.Response:
    """A TopicPage of topics that are encoded already."""
    head = broker_report(api.broker).model_dump_json(by_alias=True).encode()
    body = b'{"broker":%b,"topics":[%b],"next":%b}' % (head, b",".join(parts), json.dumps(following).encode())
    return web.Response(body=body, content_type="application/json")


TOPIC: Final = "/daybook/v1/topics/{topic:.+}"
"""Slashes of the name may be encoded or not: some proxies decode them."""
ROUTES: Final[tuple[Route, ...]] = (("GET", "/daybook/v1/topics", topics), ("GET", TOPIC, topic))
