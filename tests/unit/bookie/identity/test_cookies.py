"""Cookies: a bookie starts only on its own directories, all of them, or as an authorised replacement (rule 29)."""

from dataclasses import replace
from itertools import product

import pytest
from daybook_bookie.disk.errors import CookieError, DiskLostError, ForgottenError
from daybook_bookie.identity.cookies import (
    COOKIE,
    ROLES,
    Found,
    begin_creation,
    check_cookies,
    finish_creation,
    inspect,
    write_cookie,
)

from daybook.core.bookie.life import Start
from daybook.metadata.bookies import Cookie
from tests.unit.bookie.sim_disk import SimDisk

MINE = Cookie("ns.pool-0", "cluster-1", "", ROLES, "uid-1")
EMPTY = Found(None, None, empty=True)
STAMPED = Found(MINE, None, empty=False)
UNSTAMPED = Found(None, None, empty=False)


def check(
    journal: Found, store: Found, registered: Cookie | None, *, authorised: bool = False, named: bool = False
) -> Start:
    return check_cookies(
        MINE,
        {"journal": journal, "store": store},
        registered,
        authorised_replacement=authorised,
        named_by_ledgers=named,
    )


def test_a_new_bookie_and_one_that_comes_back() -> None:
    assert check(EMPTY, EMPTY, None) is Start.FIRST
    assert check(STAMPED, STAMPED, MINE) is Start.NORMAL
    assert check(STAMPED, STAMPED, replace(MINE, incarnation="2")) is Start.NORMAL, (
        "the caller compares these"
    )
    assert check(STAMPED, STAMPED, MINE, authorised=True, named=True) is Start.NORMAL


def test_rule_29_whatever_is_missing_refuses_unless_a_replacement_was_authorised() -> None:
    """The whole table: two directories, ZooKeeper, ledgers that name the bookie."""
    for journal, store, registered, named in product(
        (EMPTY, STAMPED, UNSTAMPED), (EMPTY, STAMPED, UNSTAMPED), (None, MINE), (False, True)
    ):
        if (journal, store, registered) == (STAMPED, STAMPED, MINE):
            continue
        first = (journal, store, registered, named) == (EMPTY, EMPTY, None, False)
        if not first:
            with pytest.raises(CookieError):
                check(journal, store, registered, named=named)
        whole = (journal, store) in ((EMPTY, EMPTY), (STAMPED, STAMPED))
        if whole:
            assert check(journal, store, registered, authorised=True, named=named) is Start.REPLACEMENT
        else:
            with pytest.raises(CookieError, match=r"empty all|move them away"):
                check(journal, store, registered, authorised=True, named=named)


def test_rule_29_only_a_disk_lost_whole_or_a_cookie_deleted_is_for_a_policy_to_decide() -> None:
    """The rest of the table needs a person: half a bookie, files of nobody, a bookie that only ledgers remember."""
    kinds: dict[tuple[Found, Found, Cookie | None], type[CookieError]] = {
        (EMPTY, EMPTY, MINE): DiskLostError,
        (STAMPED, STAMPED, None): ForgottenError,
    }
    for journal, store, registered in product(
        (EMPTY, STAMPED, UNSTAMPED), (EMPTY, STAMPED, UNSTAMPED), (None, MINE)
    ):
        if (journal, store, registered) == (STAMPED, STAMPED, MINE):
            continue
        with pytest.raises(CookieError) as refusal:
            check(journal, store, registered, named=True)
        assert refusal.type is kinds.get((journal, store, registered), CookieError)


@pytest.mark.parametrize(
    ("field", "foreign"),
    [
        ("bookie_id", replace(MINE, bookie="x")),
        ("instance_id", replace(MINE, instance_id="x")),
        ("pool_uid", replace(MINE, pool_uid="x")),
    ],
)
@pytest.mark.parametrize("place", ["journal", "store", "zookeeper"])
def test_rule_29_another_bookies_cookie_is_refused_even_for_a_replacement(
    field: str, foreign: Cookie, place: str
) -> None:
    found = Found(foreign, None, empty=False)
    with pytest.raises(CookieError, match=f"its {field} is"):
        check(
            found if place == "journal" else STAMPED,
            found if place == "store" else STAMPED,
            foreign if place == "zookeeper" else MINE,
            authorised=True,
        )


def test_a_first_start_that_is_killed_anywhere_goes_on() -> None:
    journal, store = SimDisk(), SimDisk()
    registered: Cookie | None = None

    def verdict() -> Start:
        found = {
            "journal": inspect(journal.power_cut(lambda *_: False), "journal"),
            "store": inspect(store, "store"),
        }
        return check_cookies(MINE, found, registered, authorised_replacement=False, named_by_ledgers=False)

    assert verdict() is Start.FIRST
    for disk in (journal, store):
        begin_creation(disk, MINE)
        assert verdict() is Start.FIRST
    journal.open("journal-1.log", create=True)
    assert verdict() is Start.FIRST
    for disk in (journal, store):
        write_cookie(disk, MINE)
        assert verdict() is Start.FIRST
    registered = MINE
    for disk in (journal, store):
        assert verdict() is Start.NORMAL
        finish_creation(disk)
    assert verdict() is Start.NORMAL
    registered = None
    with pytest.raises(CookieError, match="replace"):
        verdict()


def test_a_cookie_survives_power_cuts_and_every_flipped_bit_is_noticed() -> None:
    disk = SimDisk()
    write_cookie(disk, MINE)
    left = disk.power_cut(lambda *_: False)
    assert inspect(left, "store").cookie == MINE
    content = left.files[COOKIE].seen
    for bit in range(8 * len(content)):
        content[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CookieError, match="damaged"):
            inspect(left, "store")
        content[bit // 8] ^= 1 << bit % 8
