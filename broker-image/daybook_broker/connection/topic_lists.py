"""GET_TOPICS_OF_NAMESPACE, WATCH_TOPIC_LIST and WATCH_TOPIC_LIST_CLOSE: for subscriptions to all topics whose names match a pattern."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from daybook.core.errors import NoSuchTopicError, TopicNameError
from daybook.core.format.frame import Buffer
from daybook.core.topics.name import TopicName, check_entity
from daybook.core.topics.permissions import Operation
from daybook.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandGetTopicsOfNamespaceResponse,
    CommandSuccess,
    CommandWatchTopicList,
    CommandWatchTopicListSuccess,
    CommandWatchTopicUpdate,
)
from daybook_broker.errors import NotAllowedError, TooManyError
from daybook_broker.topics.topic_lists import OnNames, TopicPattern, topics_hash

if TYPE_CHECKING:
    from daybook_broker.connection.connection import Connection, Handler


class Watcher:
    """A client's watch of the topics of a namespace that match its pattern."""

    def __init__(self, connection: "Connection", watcher_id: int, pattern: TopicPattern) -> None:
        self._connection = connection
        self._id = watcher_id
        self._pattern = pattern
        self._known: frozenset[str] = frozenset()

    def begin(self, names: Sequence[TopicName]) -> list[str]:
        """What matches at first."""
        matching = self._pattern.of(names)
        self._known = frozenset(matching)
        return matching

    def update(self, names: Sequence[TopicName]) -> None:
        """Send what has changed."""
        before = self._known
        matching = self.begin(names)
        if self._known == before:
            return
        update = CommandWatchTopicUpdate(
            watcher_id=self._id,
            new_topics=sorted(self._known - before),
            deleted_topics=sorted(before - self._known),
            topics_hash=topics_hash(matching),
        )
        self._connection.send_command(
            BaseCommand(type=BaseCommand.WATCH_TOPIC_UPDATE, watchTopicUpdate=update)
        )


class Watchers:
    """Those of one connection."""

    __slots__ = ("_connection", "_open")

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._open: dict[int, tuple[str, str, Watcher]] = {}

    async def open(self, wish: CommandWatchTopicList) -> None:
        """Answer with what matches now, and send what changes from then on."""
        connection = self._connection
        tenant, namespace = await _namespace(connection, wish.namespace)
        pattern = TopicPattern(wish.topics_pattern)
        self.close(wish.watcher_id)
        if len(self._open) >= connection.broker.settings.handles_max:
            msg = (
                f"this connection watches {len(self._open)} lists of topics: close some, or raise handles_max"
            )
            raise TooManyError(msg)
        watcher = Watcher(connection, wish.watcher_id, pattern)

        def begin(names: Sequence[TopicName]) -> OnNames:
            self._open[wish.watcher_id] = (tenant, namespace, watcher)
            matching = watcher.begin(names)
            found = topics_hash(matching)
            answer = CommandWatchTopicListSuccess(
                request_id=wish.request_id,
                watcher_id=wish.watcher_id,
                topic=() if wish.topics_hash == found else matching,
                topics_hash=found,
            )
            connection.send_command(
                BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST_SUCCESS, watchTopicListSuccess=answer)
            )
            return watcher.update

        await connection.broker.topic_lists.listen(tenant, namespace, begin)

    def close(self, watcher_id: int) -> None:
        """Send nothing more of this one."""
        found = self._open.pop(watcher_id, None)
        if found is not None:
            tenant, namespace, watcher = found
            self._connection.broker.topic_lists.leave(tenant, namespace, watcher.update)

    def stop(self) -> None:
        """The connection is lost."""
        for watcher_id in list(self._open):
            self.close(watcher_id)


def topics(connection: "Connection", command: BaseCommand, _: Buffer) -> None:
    """GET_TOPICS_OF_NAMESPACE: those that match the pattern, or all where the client has to apply it."""
    wish = command.getTopicsOfNamespace
    connection.requests.begin(wish.request_id, _topics(connection, wish))


async def _topics(connection: "Connection", wish: CommandGetTopicsOfNamespace) -> None:
    tenant, namespace = await _namespace(connection, wish.namespace)
    found: Sequence[TopicName] = ()
    if wish.mode != CommandGetTopicsOfNamespace.NON_PERSISTENT:
        try:
            found = await connection.broker.topics_of(tenant, namespace)
        except NoSuchTopicError:
            found = ()  # the namespace begins with its first topic
    is_filtered = False
    names = list(map(str, found))
    if wish.topics_pattern:
        try:
            names = TopicPattern(wish.topics_pattern).of(found)
            is_filtered = True
        except NotAllowedError:
            is_filtered = False  # the client's own expressions can do more than RE2
    answered_hash = topics_hash(names)
    has_changed = wish.topics_hash != answered_hash
    answer = CommandGetTopicsOfNamespaceResponse(
        request_id=wish.request_id,
        topics=names if has_changed else (),
        filtered=is_filtered,
        topics_hash=answered_hash,
        changed=has_changed,
    )
    connection.send_command(
        BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, getTopicsOfNamespaceResponse=answer)
    )


async def _namespace(connection: "Connection", text: str) -> tuple[str, str]:
    """The namespace that the client names, if it may see it. Raises TopicNameError, AuthorizationError."""
    tenant, slash, namespace = text.partition("/")
    if not slash:
        msg = f"{text[:200]!r} is no namespace: use tenant/namespace"
        raise TopicNameError(msg)
    await connection.broker.access.check(connection.role, Operation.LOOK, tenant, namespace)
    return check_entity(tenant, "tenant"), check_entity(namespace, "namespace")


def watch(connection: "Connection", command: BaseCommand, _: Buffer) -> None:
    """WATCH_TOPIC_LIST: the topics that match, and from then on each change."""
    wish = command.watchTopicList
    connection.requests.begin(
        wish.request_id, connection.watchers.open(wish), ("topic list", wish.watcher_id)
    )


def close(connection: "Connection", command: BaseCommand, _: Buffer) -> None:
    """WATCH_TOPIC_LIST_CLOSE: after what was asked for before."""
    wish = command.watchTopicListClose

    async def end() -> None:
        connection.watchers.close(wish.watcher_id)
        success = CommandSuccess(request_id=wish.request_id)
        connection.send_command(BaseCommand(type=BaseCommand.SUCCESS, success=success))

    connection.requests.begin(wish.request_id, end(), ("topic list", wish.watcher_id))


HANDLERS: Final[Mapping[int, "Handler"]] = {
    BaseCommand.GET_TOPICS_OF_NAMESPACE: topics,
    BaseCommand.WATCH_TOPIC_LIST: watch,
    BaseCommand.WATCH_TOPIC_LIST_CLOSE: close,
}
