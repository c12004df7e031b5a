"""The nodes of topics in the tree of ZooKeeper: they are made at the start, and each change of one is judged where it is carried out."""

from typing import TYPE_CHECKING

from daybook.core.ledger.metadata import TOPIC_KEY, LedgerMetadata
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.ledger_list import LedgerList
from daybook.core.topics.name import TopicName
from daybook.metadata.layout import decode_name
from daybook.metadata.store.store import Check, Create, Delete, Operation
from tests.model.sim.shipped.zookeeper import LAYOUT
from tests.model.sim.world import Process

if TYPE_CHECKING:
    from tests.model.sim.shipped.zookeeper import TreeStore
    from tests.model.sim.topics.checks import TopicChecks


class TopicNodes:
    """What happens to lists, cursors, and ledgers that name a topic."""

    def __init__(self, store: "TreeStore", checks: "TopicChecks") -> None:
        self._store = store
        self._checks = checks
        self._lists: dict[str, str] = {}
        self._cursors: dict[str, str] = {}
        """The topics, by the paths of their lists and of the directories of their cursors."""
        store.on_write.append(self._written)

    def create(self, name: TopicName) -> None:
        """A topic without ledgers, as TopicManager makes it."""
        directories = [LAYOUT.tenant(name.tenant), LAYOUT.namespace(name.tenant, name.namespace)]
        operations = [Create(path) for path in directories if not self._store.has_node(path)]
        operations += [
            Create(LAYOUT.topic(name), LedgerList().to_json()),
            Create(LAYOUT.topic_policy(name), b"{}"),
            Create(LAYOUT.cursors(name)),
        ]
        self._store.commit(lambda tree: tree.apply(operations, 0))
        self._lists[LAYOUT.topic(name)] = self._cursors[LAYOUT.cursors(name)] = str(name)
        self._checks.created(str(name))

    def _written(self, operation: Operation, writer: Process) -> None:
        """A client that ships has done this."""
        if isinstance(operation, Check):
            return
        directory, _, node = operation.path.rpartition("/")
        if operation.path in self._lists:
            assert not isinstance(operation, Create | Delete)
            self._list_changed(self._lists[operation.path], LedgerList.from_json(operation.data), writer)
        elif directory in self._cursors:
            data = None if isinstance(operation, Delete) else operation.data
            record = None if data is None else CursorRecord.from_json(data)
            self._checks.cursor_changed(self._cursors[directory], decode_name(node), record, writer.name)
        elif isinstance(operation, Create) and operation.path.startswith(f"{LAYOUT.ledgers}/"):
            self._made(operation.data, writer)

    def _list_changed(self, topic: str, new: LedgerList, writer: Process) -> None:
        old = self._checks.oracles[topic].ledger_list
        if writer.world.tracing:
            writer.world.note("zookeeper", f"{topic} is {describe_list(new)}")
        self._checks.list_changed(topic, writer.name, old, new)

    def _made(self, data: bytes, writer: Process) -> None:
        if not data:
            return  # a directory
        metadata = LedgerMetadata.from_json(data)
        topic = metadata.custom_metadata.get(TOPIC_KEY, b"").decode()
        if topic:
            self._checks.made(topic, writer.name, metadata.ledger_id)


def describe_list(ledger_list: LedgerList) -> str:
    """A list on one line."""
    ledgers = " ".join(
        f"{each.ledger_id}{'' if each.is_open else f'(ends at {each.entries - 1})'}"
        for each in ledger_list.ledgers
    )
    return f"<{ledger_list.state.value} of {ledger_list.owner_token}: {ledgers or 'no ledgers'}>"
