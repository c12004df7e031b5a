"""The topics of a namespace as they come and go, for clients that subscribe to all topics whose names match a pattern.

One watch of a namespace serves all clients of this broker. Its list is read anew after each change, and changes that come within a moment
are one update, so that a thousand new topics are not a thousand lists.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeAlias

import re2
from crc32c import crc32c

from daybook.core.errors import DaybookError
from daybook.core.topics.name import TopicName
from daybook.metadata.layout import Layout
from daybook.metadata.partitions import partition_of
from daybook.metadata.store.store import MetadataStore
from daybook.runtime.logs import get_logger
from daybook_broker.errors import NotAllowedError

log = get_logger(__name__)

PATTERN_CHARS_MAX: Final = 1_000
_PATTERN_BYTES_MAX: Final = 1 << 20
"""What RE2 may take for a pattern; one that needs more is refused."""
GATHER_S: Final = 0.2
"""Changes within this time are one update."""
RETRY_S: Final = 1.0
"""The pause before a list that could not be read is read again."""
_SCHEMES: Final = ("non-persistent", "persistent")

OnNames: TypeAlias = Callable[[Sequence[TopicName]], None]


def topics_hash(names: Iterable[str]) -> str:
    """What Pulsar's clients compare lists by: the CRC32C of the sorted names, joined by commas, as hex of its bytes from the lowest on."""
    in_order = sorted(names, key=lambda name: name.encode("utf-16-be"))  # as Java sorts
    return crc32c(",".join(in_order).encode()).to_bytes(4, "little").hex()


class TopicPattern:
    """A pattern of a client, for whole names without scheme and without the number of a partition.

    RE2 takes time that is linear to the name. It has no look-ahead and no back-references, and neither has the RE2 of Pulsar's brokers.
    """

    def __init__(self, text: str) -> None:
        """Raises NotAllowedError for a pattern that cannot be used here."""
        if len(text) > PATTERN_CHARS_MAX:
            msg = f"a pattern of {len(text)} characters: at most {PATTERN_CHARS_MAX} are allowed; choose a shorter one"
            raise NotAllowedError(msg)
        before, has_scheme, rest = text.partition("://")
        if has_scheme:
            scheme = next((each for each in _SCHEMES if before.endswith(each)), None)
            if scheme is None:
                msg = f"the pattern {text[:200]!r} names no scheme of topics: use persistent://tenant/namespace/pattern"
                raise NotAllowedError(msg)
            text = before.removesuffix(scheme) + rest
        options = re2.Options()
        options.log_errors = False
        options.max_mem = _PATTERN_BYTES_MAX
        try:
            self._pattern = re2.compile(text, options=options)
        except re2.error as error:
            why = error.args[0].decode(errors="replace") if error.args else ""
            msg = f"the pattern {text[:200]!r} cannot be used: {why}; use RE2's syntax, or list the topics now and then"
            raise NotAllowedError(msg) from error

    def matches(self, name: TopicName) -> bool:
        """Whether a topic's name matches, or that of the topic that it is a partition of."""
        found = partition_of(name)
        whole = name if found is None else found[0]
        return self._pattern.fullmatch(f"{whole.tenant}/{whole.namespace}/{whole.local}") is not None

    def of(self, names: Iterable[TopicName]) -> list[str]:
        """The whole names of those that match."""
        return [str(name) for name in names if self.matches(name)]


class Feed:
    """The topics of one namespace; `names` is there once `known` is set."""

    def __init__(self) -> None:
        self.names: Sequence[TopicName] = ()
        self.known = asyncio.Event()
        self.listeners: set[OnNames] = set()
        self.users = 0
        """Listeners, and those who wait to be."""
        self.task: asyncio.Task[None] | None = None


class TopicLists:
    """The namespaces that clients of this broker watch."""

    def __init__(
        self, store: MetadataStore, layout: Layout, read: Callable[[str, str], Awaitable[Sequence[TopicName]]]
    ) -> None:
        """`read` lists the topics of a namespace."""
        self._store = store
        self._layout = layout
        self._read = read
        self._feeds: dict[tuple[str, str], Feed] = {}

    async def listen(
        self, tenant: str, namespace: str, begin: Callable[[Sequence[TopicName]], OnNames]
    ) -> None:
        """Call `begin` with the topics as they are, and what it returns with each later list, until `leave`."""
        key = (tenant, namespace)
        feed = self._feeds.setdefault(key, Feed())
        feed.users += 1
        if feed.task is None:
            feed.task = asyncio.create_task(self._follow(feed, tenant, namespace), name=f"topics of {key}")
        try:
            await feed.known.wait()
        except BaseException:
            self._release(key, feed)
            raise
        feed.listeners.add(begin(feed.names))

    def leave(self, tenant: str, namespace: str, listener: OnNames) -> None:
        """Call it no more."""
        feed = self._feeds.get((tenant, namespace))
        if feed is not None and listener in feed.listeners:
            feed.listeners.discard(listener)
            self._release((tenant, namespace), feed)

    def _release(self, key: tuple[str, str], feed: Feed) -> None:
        feed.users -= 1
        if not feed.users:
            self._feeds.pop(key, None)
            assert feed.task is not None
            feed.task.cancel()

    def close(self) -> None:
        """Watch nothing any more."""
        for feed in self._feeds.values():
            assert feed.task is not None
            feed.task.cancel()
        self._feeds.clear()

    async def _follow(self, feed: Feed, tenant: str, namespace: str) -> None:
        while True:
            watch = self._store.watch()
            try:
                await watch.children(self._layout.namespace(tenant, namespace))
                directory = self._layout.partitioned_topics(tenant, namespace)
                partitioned = await watch.children(directory)
                for node in () if partitioned is None else partitioned.value:
                    await watch.get(f"{directory}/{node}")  # its number of partitions grows
                names = tuple(await self._read(tenant, namespace))
                if not feed.known.is_set() or names != feed.names:
                    feed.names = names
                    feed.known.set()
                    for listener in list(feed.listeners):
                        listener(names)
                await watch.changed()
                await asyncio.sleep(GATHER_S)
            except DaybookError as error:
                log.warning(
                    "a namespace's topics cannot be listed", namespace=f"{tenant}/{namespace}", why=str(error)
                )
                await asyncio.sleep(RETRY_S)
            finally:
                watch.close()
