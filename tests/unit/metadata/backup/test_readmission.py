"""A bookie that is younger than the export is let in again only where nothing can have got one of its ledgers' ids."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from daybook.core.ledger.metadata import LedgerState
from daybook.core.placement.policy import BookieInfo
from daybook.metadata.backup.readmission import ReadmissionRefusedError, Readmissions
from daybook.metadata.bookies import BookieStillRegisteredError, Cookie
from daybook.metadata.hold import begin_hold, begin_ids, end_hold, read_hold
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.store import MetadataStore, NoNodeError
from tests.unit.metadata.harness import LAYOUT, formatted, ledger, memory_opener, register, stores

FIRST = 40
"""The first id after the restore."""
YOUNG = "young-0"


@pytest.fixture
async def store() -> AsyncIterator[MetadataStore]:
    """A restored cluster: ledger 0 is closed, 1 waits for its recovery, and no ledger has begun since."""
    async with stores(memory_opener()[1], 1) as (opened,):
        layout = await formatted(opened)
        ledgers = LedgerManager(opened, layout)
        for _ in range(2):
            await ledgers.create_ledger(ledger)
        closed, unclosed = await ledgers.read(0), await ledgers.read(1)
        await ledgers.cas(closed, closed.value.closed(5, 50))
        restored = replace(unclosed.value.in_recovery(), restored_among=("b1", "b2"))
        await opened.put(layout.ledger(1), restored.to_json(), None)
        await begin_hold(opened, layout, now_ms=2, exported_at_ms=1)
        await opened.delete(layout.idgen)
        await begin_ids(opened, layout, FIRST)
        yield opened


async def young(store: MetadataStore, incarnation: str = "one") -> Cookie:
    return await Readmissions(store, LAYOUT).cookie_of(YOUNG, incarnation, "pool")


async def refused(store: MetadataStore, what: str, cookie: Cookie | None = None) -> None:
    """The check refuses, and nothing has changed."""
    before = await state(store)
    with pytest.raises(ReadmissionRefusedError, match=what):
        await Readmissions(store, LAYOUT).check(cookie or await young(store))
    assert await state(store) == before


async def state(store: MetadataStore) -> list[bytes | None]:
    """The counter, the bookie's cookie, the hold, and the ledger that waits."""
    found: list[bytes | None] = []
    for path in (LAYOUT.idgen, LAYOUT.cookie(YOUNG), LAYOUT.collection_hold, LAYOUT.ledger(1)):
        try:
            found.append((await store.get(path)).value)
        except NoNodeError:
            found.append(None)
    return found


async def next_id(store: MetadataStore) -> int:
    found: int = json.loads((await store.get(LAYOUT.idgen)).value)["next"]
    return found


async def test_rule_68_no_ledger_begins_between_a_readmission_and_the_bookies_answer(
    store: MetadataStore,
) -> None:
    readmissions, cookie = Readmissions(store, LAYOUT), await young(store)
    before = await state(store)
    planned = await readmissions.check(cookie)
    assert (planned.next_id, planned.unclosed) == (FIRST, (1,))
    assert await state(store) == before, "a check changes nothing"
    await readmissions.begin(planned)
    assert Cookie.from_json((await store.get(LAYOUT.cookie(YOUNG))).value) == cookie
    with pytest.raises(NoNodeError):
        await LedgerManager(store, LAYOUT).create_ledger(ledger)
    assert await readmissions.end(planned, highest_held=FIRST + 7) == FIRST + 8
    created = await LedgerManager(store, LAYOUT).create_ledger(ledger)
    assert created.value.ledger_id == FIRST + 8


async def test_rule_68_a_recovery_asks_the_readmitted_bookie_before_it_closes(store: MetadataStore) -> None:
    readmissions = Readmissions(store, LAYOUT)
    await readmissions.begin(await readmissions.check(await young(store)))
    waits = (await LedgerManager(store, LAYOUT).read(1)).value
    assert (waits.state, waits.restored_among) == (LedgerState.IN_RECOVERY, ("b1", "b2", YOUNG))
    assert (await LedgerManager(store, LAYOUT).read(0)).value.restored_among == ()


async def test_rule_68_once_a_ledger_has_begun_nobody_is_readmitted(store: MetadataStore) -> None:
    readmissions = Readmissions(store, LAYOUT)
    planned = await readmissions.check(await young(store))
    await LedgerManager(store, LAYOUT).create_ledger(ledger)
    with pytest.raises(ReadmissionRefusedError, match="ledgers began meanwhile"):
        await readmissions.begin(planned)
    assert await store.exists(LAYOUT.cookie(YOUNG)) is None
    await refused(store, rf"1 ledgers began since the restore \(from {FIRST} on\)")


async def test_a_second_bookie_may_follow(store: MetadataStore) -> None:
    readmissions = Readmissions(store, LAYOUT)
    first = await readmissions.check(await young(store))
    await readmissions.begin(first)
    await readmissions.end(first, highest_held=FIRST + 7)
    second = await readmissions.check(await readmissions.cookie_of("young-1", "two", ""))
    assert second.next_id == FIRST + 8
    await readmissions.begin(second)
    assert await readmissions.end(second, highest_held=3) == FIRST + 8, "ids never go back"
    assert (await LedgerManager(store, LAYOUT).read(1)).value.restored_among == ("b1", "b2", YOUNG, "young-1")


async def test_an_interrupted_readmission_goes_on_even_if_a_recovery_uses_the_bookie_already(
    store: MetadataStore,
) -> None:
    readmissions, cookie, ledgers = (
        Readmissions(store, LAYOUT),
        await young(store),
        LedgerManager(store, LAYOUT),
    )
    await readmissions.begin(await readmissions.check(cookie))
    waits = await ledgers.read(1)
    moved = waits.value.with_ensemble(0, 0, (YOUNG, *waits.value.last_fragment.bookies[1:]))
    await ledgers.cas(waits, moved)
    again = await readmissions.check(cookie)
    assert (again.counter, again.unclosed) == (None, ())
    await readmissions.begin(again)
    assert await readmissions.end(again, highest_held=FIRST) == FIRST + 1
    await refused(store, "needs no readmission")


async def test_what_was_begun_can_be_given_up_while_nothing_uses_the_bookie(store: MetadataStore) -> None:
    readmissions, cookie = Readmissions(store, LAYOUT), await young(store, "incarnation-1")
    planned = await readmissions.check(cookie)
    await readmissions.begin(planned)
    registration = await register(store, BookieInfo(YOUNG, "address", boot_id="boot"))
    with pytest.raises(BookieStillRegisteredError):
        await readmissions.give_up(planned)
    await registration.close()
    await readmissions.give_up(planned)
    assert await store.exists(LAYOUT.cookie(YOUNG)) is None
    assert await next_id(store) == FIRST
    assert (await readmissions.check(cookie)).counter is not None, "it may begin again"


async def test_a_bookie_that_a_ledger_names_is_not_given_up(store: MetadataStore) -> None:
    readmissions, ledgers = Readmissions(store, LAYOUT), LedgerManager(store, LAYOUT)
    planned = await readmissions.check(await young(store))
    await readmissions.begin(planned)
    waits = await ledgers.read(1)
    await ledgers.cas(waits, waits.value.with_ensemble(0, 0, (YOUNG, *waits.value.last_fragment.bookies[1:])))
    with pytest.raises(ReadmissionRefusedError, match="ledger 1 names"):
        await readmissions.give_up(planned)
    assert await store.exists(LAYOUT.cookie(YOUNG)) is not None


async def test_rule_68_disks_that_may_lack_what_the_metadata_names_them_for_are_refused(
    store: MetadataStore,
) -> None:
    other = await young(store, "before the replacement")
    await store.create(LAYOUT.cookie(YOUNG), other.to_json())
    await refused(store, "replaced after the export.*daybook bookie replace")
    await store.delete(LAYOUT.cookie(YOUNG))
    named = (await LedgerManager(store, LAYOUT).read(0)).value.last_fragment.bookies[0]
    await refused(store, "ledger 0 names", replace(other, bookie=named))


async def test_a_readmission_needs_a_restore_that_nobody_has_confirmed(store: MetadataStore) -> None:
    await store.delete(LAYOUT.idgen)
    await refused(store, "no counter of ledger ids")
    hold = await read_hold(store, LAYOUT)
    assert hold is not None
    await store.put(LAYOUT.collection_hold, replace(hold, next_id=None).to_json(), None)
    await refused(store, "earlier release")
    await store.put(LAYOUT.collection_hold, hold.to_json(), None)
    await end_hold(store, LAYOUT, hold)
    await refused(store, "the restore is confirmed")
    await store.delete(LAYOUT.collection_hold)
    await refused(store, "was not restored")
