"""The statistics of a partitioned topic: those of its partitions, each from its owner, and what they are together.

A redirect to an owner brings the statistics of one broker's partitions alone, so the broker that is asked asks the others, with the token
of whoever asks it.
"""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final
from urllib.parse import quote

import aiohttp
from aiohttp import web

from daybook.client.broker_admin import TOKEN_HEADER
from daybook.core.errors import NoSuchTopicError
from daybook.core.topics.name import TopicName
from daybook.metadata.partitions import partition
from daybook.runtime.tls import TlsContexts
from daybook_broker.admin.api import Api, Route, admin_url, flag, topic_of
from daybook_broker.admin.owned import stats_of
from daybook_broker.admin.topics import TOPIC
from daybook_broker.auth.http import token_of
from daybook_broker.errors import NotAllowedError, NotReadyError
from daybook_broker.ownership.api import Elsewhere, Mine, NotReady

_ASKED_AT_ONCE: Final = 16
"""Partitions whose statistics one request asks for at the same time."""
_TIMEOUT: Final = aiohttp.ClientTimeout(40.0)
"""A broker holds a request for up to 25 s while a topic changes its owner."""
_OF_ONE_PARTITION: Final = frozenset({"ownerBroker", "subscriptions", "markDeletePosition"})
"""Fields that are not merged; subscriptions are, by their names."""


async def stats(api: Api, request: web.Request) -> dict[str, Any]:
    """What the partitions have together, and with `perPartition`, as without the parameter, what each of them has."""
    name, shows_each = topic_of(request), flag(request, "perPartition", default=True)
    number = await api.broker.partitions_of(name, create=False)
    if not number:
        msg = f"{name} is no partitioned topic: ask for …/stats of it"
        raise NoSuchTopicError(msg)
    found = await _stats_of(api, request, [partition(name, index) for index in range(number)])
    return {
        **_merged_topics(list(found.values())),
        "metadata": {"partitions": number, "deleted": False},
        "partitions": found if shows_each else {},
    }


async def _stats_of(api: Api, request: web.Request, parts: Sequence[TopicName]) -> dict[str, Any]:
    """The statistics of each partition, by its name; a partition that was not created yet has none."""
    slots, found = asyncio.Semaphore(_ASKED_AT_ONCE), dict[str, Any]()
    files = api.broker.settings.tls_files
    tls: ssl.SSLContext | bool = files.certificate is None or TlsContexts(files, server_side=False).current()

    async def ask(part: TopicName) -> Mapping[str, Any] | None:
        async with slots:
            match await api.broker.ownership.lookup(part):
                case Elsewhere() as other:
                    return await _ask(http, request, other, part)
                case NotReady(why):
                    raise NotReadyError(why)
                case Mine():
                    try:
                        return await stats_of(api, part)
                    except NoSuchTopicError:
                        return None

    connector = aiohttp.TCPConnector(ssl=tls)
    async with aiohttp.ClientSession(connector=connector, headers=_token(request), timeout=_TIMEOUT) as http:
        asked = [asyncio.create_task(ask(part)) for part in parts]
        try:
            answers = await asyncio.gather(*asked)
        finally:
            for task in asked:
                task.cancel()
    for part, answer in zip(parts, answers, strict=True):
        if answer is not None:
            found[str(part)] = answer
    return found


def _token(request: web.Request) -> dict[str, str]:
    """The token of a request, in the header that survives redirects to other brokers."""
    token = token_of(request.headers)
    return {TOKEN_HEADER: token} if token else {}


async def _ask(
    http: aiohttp.ClientSession, request: web.Request, found: Elsewhere, part: TopicName
) -> Mapping[str, Any] | None:
    """The statistics of a partition from another broker; None if the partition does not exist. Raises NotReadyError, NotAllowedError."""
    path = "/".join(quote(each, safe="") for each in (part.tenant, part.namespace, part.local))
    query = f"authoritative={'true' if found.authoritative else 'false'}"
    url = f"{admin_url(request, found.broker)}/admin/v2/persistent/{path}/stats?{query}"
    try:
        async with http.get(url) as answer:
            if answer.status == 404:
                return None
            record: Any = await answer.json()
            status = answer.status
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        msg = f"broker {found.broker.broker}, which is to have {part}, does not answer at {url}: {error!r}; try again, or ask for …/stats of each partition"
        raise NotReadyError(msg) from error
    if status == 200:
        answered: Mapping[str, Any] = record
        return answered
    msg = f"broker {found.broker.broker} refused the statistics of {part} ({status}): {record}; ask for …/stats of each partition"
    raise NotReadyError(msg) if status >= 500 else NotAllowedError(msg)


# What the partitions have together


def _merged_topics(topics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found = _merged(topics)
    if "averageMsgSize" in found:
        found["averageMsgSize"] = found["bytesInCounter"] / max(found["msgInCounter"], 1)
    subscriptions: dict[str, list[Mapping[str, Any]]] = {}
    for name, each in chain.from_iterable(topic["subscriptions"].items() for topic in topics):
        subscriptions.setdefault(name, []).append(each)
    return {**found, "subscriptions": {name: _merged(each) for name, each in subscriptions.items()}}


def _merged(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Records with the same fields as one: sums of numbers, the latest time, what is true of any, and all of lists.

    Other values, like durabilities, are there if they are the same in all records.
    """
    found: dict[str, Any] = {}
    for name in dict.fromkeys(chain.from_iterable(records)):
        if name in _OF_ONE_PARTITION:
            continue
        values = [record[name] for record in records if record.get(name) is not None]
        match next(iter(values), None):
            case bool():
                found[name] = any(values)
            case int() | float():
                found[name] = max(values) if name.endswith("Timestamp") else sum(values)
            case list():
                found[name] = list(chain.from_iterable(values))
            case dict():
                found[name] = {key: value for each in values for key, value in each.items()}
            case first if all(value == first for value in values):
                found[name] = first
    return found


ROUTES: Final[tuple[Route, ...]] = (("GET", f"{TOPIC}/partitioned-stats", stats),)
