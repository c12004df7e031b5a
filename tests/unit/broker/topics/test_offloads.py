"""An owner gives replicas up a few files at a time: what it has read counts, whatever becomes of the rest (rule 70)."""

from collections.abc import Callable, Collection
from typing import Any

import pytest
from daybook_broker.errors import NotReadyError
from daybook_broker.topics import offloads
from daybook_broker.topics.offloads import TopicOffloads

from daybook.core.topics.ledger_list import LedgerList
from daybook.core.topics.name import TopicName
from daybook.core.topics.offload.changes import OffloadChange, ReplicasUnneeded
from daybook.offload.errors import OffloadFileError
from tests.unit.core.topics.offload.kit import offload, offloaded_list, place

LEDGERS = (3, 4, 5, 6, 7)


class Owned:
    """A topic whose list changes at once, until it moves to another broker."""

    name = TopicName("public", "default", "orders")
    services: Any = None

    def __init__(self, changes_max: int) -> None:
        self.ledger_list: LedgerList = offloaded_list({each: offload(each, 10) for each in LEDGERS})
        self.changes_max = changes_max
        self.given_up: list[list[int]] = []
        """The ledgers of each change."""

    async def confirm_owner(self) -> None:
        """Nobody asks."""

    async def change_list(self, change: OffloadChange, is_done: Callable[[], bool]) -> None:
        if len(self.given_up) == self.changes_max:
            msg = "the topic moves"
            raise NotReadyError(msg)
        assert isinstance(change, ReplicasUnneeded)
        self.given_up.append(sorted(change.offloads))
        self.ledger_list = change.applied(self.ledger_list)
        assert is_done()

    @property
    def with_replicas(self) -> list[int]:
        return [row.ledger_id for row in self.ledger_list.ledgers if row.has_replicas]


class Files:
    """Files of which some cannot be read."""

    def __init__(self, unreadable: Collection[int] = ()) -> None:
        self.unreadable = {place(each) for each in unreadable}
        self.read: list[str] = []

    async def check(self, uri: str, *_: object) -> None:
        self.read.append(uri)
        if uri in self.unreadable:
            msg = f"{uri} does not exist"
            raise OffloadFileError(msg)


@pytest.fixture(autouse=True)
def _two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offloads, "FILES_AT_ONCE", 2)


def owner(topic: Owned, files: Any) -> TopicOffloads:
    return TopicOffloads(topic, files)


async def test_the_list_changes_after_every_few_files() -> None:
    topic, files = Owned(changes_max=9), Files()
    await owner(topic, files).give_replicas_up()
    assert topic.given_up == [[3, 4], [5, 6], [7]]
    assert files.read == [place(each) for each in LEDGERS]
    assert topic.with_replicas == []


async def test_files_that_cannot_be_read_hold_up_no_others() -> None:
    topic = Owned(changes_max=9)
    await owner(topic, Files(unreadable=(3, 4, 6))).give_replicas_up()
    assert topic.given_up == [[5], [7]]
    assert topic.with_replicas == [3, 4, 6]


async def test_an_unload_loses_the_reads_of_the_last_few_files_alone() -> None:
    topic, files = Owned(changes_max=1), Files()
    with pytest.raises(NotReadyError, match="moves"):
        await owner(topic, files).give_replicas_up()
    assert topic.with_replicas == [5, 6, 7]
    assert files.read == [place(each) for each in LEDGERS[:4]]
