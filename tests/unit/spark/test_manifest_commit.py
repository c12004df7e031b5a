"""What a commit requires of ledgers, on metadata alone (rule 66)."""

from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from daybook_spark.write.job import Job, abort_job, commit_job
from daybook_spark.write.sweep import sweep

from daybook.core.errors import MetadataError, MetadataUnavailableError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata, LedgerState
from daybook.metadata.hold import CollectionHeldError, begin_hold
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.manifests import JobAbandonedError, ManifestManager, WrittenLedger
from tests.unit.metadata.harness import LAYOUT, formatted, ledger, memory_opener
from tests.unit.spark.dying_store import CHANGES

JOB = Job("job", "daily", 0)
HOUR_MS = 3_600_000
CLOSED: dict[str, Any] = {"state": LedgerState.CLOSED, "last_entry": 6, "length": 70}


@pytest.fixture
async def client() -> AsyncIterator[Any]:
    """A client without bookies: what it deletes is gone from the metadata."""
    _, opener = memory_opener()
    store = await opener()
    await formatted(store)
    ledgers = LedgerManager(store, LAYOUT)

    async def delete_ledger(ledger_id: LedgerId, *, password: bytes) -> None:
        del password
        await ledgers.delete(ledger_id, (await ledgers.read(ledger_id)).version)

    yield SimpleNamespace(
        store=store,
        layout=LAYOUT,
        ledgers=ledgers,
        delete_ledger=delete_ledger,
        list_ledgers=ledgers.read_all,
    )
    await store.close()


async def made(client: Any, **changes: Any) -> LedgerId:
    """A ledger of the job."""

    def make(ledger_id: LedgerId) -> LedgerMetadata:
        return replace(ledger(ledger_id), custom_metadata=JOB.tags("0.0"), **changes)

    found: LedgerId = (await client.ledgers.create_ledger(make)).value.ledger_id
    return found


async def test_rule_66_a_commit_names_no_ledger_that_is_open(client: Any) -> None:
    ledger_id = await made(client)
    with pytest.raises(MetadataError, match="nothing was committed"):
        await commit_job(client, JOB, [WrittenLedger(ledger_id, 0, 0)], password=b"")
    assert await ManifestManager(client.store, LAYOUT).read("daily") is None


async def test_rule_66_a_commit_names_no_ledger_that_ends_elsewhere_than_its_task_said(client: Any) -> None:
    ledger_id = await made(client, **CLOSED)
    with pytest.raises(MetadataError, match="nothing was committed"):
        await commit_job(client, JOB, [WrittenLedger(ledger_id, 10, 100)], password=b"")
    await commit_job(client, JOB, [WrittenLedger(ledger_id, 7, 70)], password=b"")
    found = await ManifestManager(client.store, LAYOUT).read("daily")
    assert found is not None
    assert found.value.ledgers == (WrittenLedger(ledger_id, 7, 70),)


async def test_rule_66_a_job_whose_ledgers_were_swept_commits_no_more(client: Any) -> None:
    ledger_id = await made(client, **CLOSED)
    assert await sweep(client, b"", now_ms=HOUR_MS, older_than_ms=HOUR_MS) == [ledger_id]
    with pytest.raises(JobAbandonedError):
        await commit_job(client, JOB, [], password=b"")
    found = await ManifestManager(client.store, LAYOUT).read("daily")
    assert found is not None
    assert found.value.ledgers == ()


class SilentStore:
    """The store of a driver that loses its connection with its first change, which is made: nothing answers afterwards."""

    def __init__(self, store: Any, *, answers_the_change: bool) -> None:
        self._store = store
        self._answers_the_change = answers_the_change
        self._is_lost = False

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **options: Any) -> Any:
            if not self._is_lost:
                found = await getattr(self._store, name)(*arguments, **options)
                self._is_lost = name in CHANGES
                if not self._is_lost or self._answers_the_change:
                    return found
            raise MetadataUnavailableError("no answer")

        return call


def losing_its_connection(client: Any, *, answers_the_change: bool) -> Any:
    """The client over a `SilentStore`."""
    store = SilentStore(client.store, answers_the_change=answers_the_change)
    return SimpleNamespace(**{**vars(client), "store": store})


async def test_rule_66_an_abort_after_a_commit_of_which_the_answer_was_lost_deletes_nothing_that_is_named(
    client: Any,
) -> None:
    """Spark aborts a job whose commit raises."""
    named, repeated = [await made(client, **CLOSED) for _ in range(2)]
    silent = losing_its_connection(client, answers_the_change=False)
    with pytest.raises(MetadataUnavailableError):
        await commit_job(silent, JOB, [WrittenLedger(named, 7, 70)], password=b"")
    await abort_job(client, JOB, b"")
    found = await ManifestManager(client.store, LAYOUT).read("daily")
    assert found is not None
    assert found.value.ledgers == (WrittenLedger(named, 7, 70),)
    assert [ledger_id async for ledger_id in client.ledgers.ids()] == [named], (
        f"{repeated} is named by nobody"
    )


async def test_rule_66_a_job_that_was_aborted_commits_no_more(client: Any) -> None:
    """A commit may be on its way while Spark aborts the job."""
    await made(client, **CLOSED)
    await abort_job(client, JOB, b"")
    with pytest.raises(JobAbandonedError):
        await commit_job(client, JOB, [], password=b"")


async def test_a_commit_succeeds_although_what_nobody_names_cannot_be_listed(client: Any) -> None:
    named, repeated = [await made(client, **CLOSED) for _ in range(2)]
    silent = losing_its_connection(client, answers_the_change=True)
    await commit_job(silent, JOB, [WrittenLedger(named, 7, 70)], password=b"")
    assert await sweep(client, b"", now_ms=HOUR_MS, older_than_ms=HOUR_MS) == [repeated]
    found = await ManifestManager(client.store, LAYOUT).read("daily")
    assert found is not None
    assert found.value.ledgers == (WrittenLedger(named, 7, 70),)


async def test_rule_68_nothing_is_swept_after_a_restore_that_no_person_confirmed(client: Any) -> None:
    """The manifest that named the ledger may be younger than the export."""
    ledger_id = await made(client, **CLOSED)
    await begin_hold(client.store, LAYOUT, now_ms=2, exported_at_ms=1)
    with pytest.raises(CollectionHeldError):
        await sweep(client, b"", now_ms=HOUR_MS, older_than_ms=HOUR_MS)
    assert await sweep(client, b"", now_ms=HOUR_MS, older_than_ms=HOUR_MS, dry_run=True) == [ledger_id]
    assert (await client.ledgers.read(ledger_id)).value.is_closed
