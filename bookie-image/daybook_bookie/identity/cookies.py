"""Which bookie a directory belongs to, and whether a bookie may start on what it finds (rule 29).

A bookie that starts on an empty or a foreign directory would answer "not found" for entries that it acknowledged, and a
recovery would believe it. So each directory has a cookie, ZooKeeper has the same cookie, and the bookie refuses to start
if anything differs, unless a replacement was authorised; then the bookie starts in limbo for every ledger whose metadata
names it, and stamps its cookies only after the limbo marks are durable.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from daybook.core.bookie.life import Start
from daybook.metadata.bookies import DIRECTORIES, Cookie
from daybook_bookie.disk.disk import Disk
from daybook_bookie.disk.errors import CookieError, DiskLostError, ForgottenError
from daybook_bookie.disk.small_files import (
    read_whole,
    remove_durably,
    with_checksum,
    without_checksum,
    write_durably,
)

COOKIE: Final = "cookie"
_CREATING: Final = "cookie.new"
_VERSION: Final = 1
_HARMLESS: Final = frozenset({"lost+found", "cookie.tmp", "cookie.new.tmp"})
ROLES: Final = DIRECTORIES


def _fields(cookie: Cookie) -> dict[str, Any]:
    """The cookie's fields by their names in a directory's file."""
    return {
        "bookie_id": cookie.bookie,
        "instance_id": cookie.instance_id,
        "pool_uid": cookie.pool_uid,
        "layout": cookie.directories,
        "incarnation": cookie.incarnation,
    }


def pack_cookie(cookie: Cookie) -> bytes:
    """The cookie as a directory holds it: one line of JSON and one line with its checksum."""
    return with_checksum({"version": _VERSION, **_fields(cookie)})


def parse_cookie(data: bytes, where: str) -> Cookie:
    """Read what `pack_cookie` wrote; raises CookieError, naming `where`."""
    text = without_checksum(data)
    if text is None:
        msg = f"the cookie in {where} is damaged: restore it from another directory of this bookie, or replace the bookie"
        raise CookieError(msg)
    try:
        fields = json.loads(text)
        version = fields.pop("version")
        if version == _VERSION:
            return Cookie(bookie=fields.pop("bookie_id"), directories=tuple(fields.pop("layout")), **fields)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        msg = (
            f"the cookie in {where} is no cookie of a bookie ({type(error).__name__}): mount the right directory, or "
            "replace the bookie"
        )
        raise CookieError(msg) from error
    msg = f"the cookie in {where} has another version than {_VERSION}: upgrade the bookie"
    raise CookieError(msg)


def begin_creation(disk: Disk, cookie: Cookie) -> None:
    """Record durably that this directory is being created for `cookie`, before anything else is put there.

    So a first start or a replacement that is killed half-way is continued, and is not taken for a loss.
    """
    write_durably(disk, _CREATING, pack_cookie(cookie))


def write_cookie(disk: Disk, cookie: Cookie) -> None:
    """Stamp the directory, durably; raises OSError."""
    write_durably(disk, COOKIE, pack_cookie(cookie))


def finish_creation(disk: Disk) -> None:
    """Every directory is stamped and ZooKeeper has the cookie: from now on anything missing is a loss."""
    remove_durably(disk, _CREATING)


class Found(NamedTuple):
    """What one directory holds."""

    cookie: Cookie | None
    creating: Cookie | None
    """The cookie that it is being created for, by a first start or a replacement that has not ended."""
    empty: bool
    """Nothing but what a file system puts there."""


def inspect(disk: Disk, where: str) -> Found:
    """What `disk` holds; raises CookieError and OSError."""
    stamped, creating = (
        None if (data := read_whole(disk, name)) is None else parse_cookie(data, where)
        for name in (COOKIE, _CREATING)
    )
    rest = set(disk.names()) - _HARMLESS - {COOKIE, _CREATING}
    return Found(stamped, creating, not rest)


def check_cookies(
    expected: Cookie,
    found: Mapping[str, Found],
    registered: Cookie | None,
    *,
    authorised_replacement: bool,
    named_by_ledgers: bool,
) -> Start:
    """How the bookie may start, given what each directory (by role) and ZooKeeper hold, whatever their incarnations.

    `named_by_ledgers`: some ledger's metadata names the bookie, read after a sync. Raises CookieError, with what to do,
    if it may not start. A replacement is accepted over directories that are all empty or all this bookie's; a mixture
    would start on half of its data.
    """
    assert tuple(sorted(found)) == tuple(sorted(expected.directories))
    for where, (cookie, creating, _) in sorted(found.items()):
        for known in filter(None, (cookie, creating)):
            _check_same(expected, known, f"directory {where}")
    if registered is not None:
        _check_same(expected, registered, "ZooKeeper")
    bare = [where for where in sorted(found) if found[where].cookie is None]
    if not bare and registered is not None:
        return Start.NORMAL
    half_created = any(directory.creating is not None for directory in found.values())
    filled = [where for where in bare if not found[where].empty and found[where].creating is None]
    if authorised_replacement:
        _check_replaceable(found, bare, filled, half_created=half_created)
        return Start.REPLACEMENT
    served = len(bare) < len(found) or registered is not None
    if named_by_ledgers or (served and not half_created):
        refusal = _kind_of_refusal(found, bare, in_zookeeper=registered is not None)
        hint = _readmission(found) if refusal is ForgottenError else ""
        raise refusal(_missing(expected.bookie, bare, in_zookeeper=registered is not None) + hint)
    if filled:
        raise CookieError(_not_empty(filled))
    return Start.FIRST


def _check_replaceable(
    found: Mapping[str, Found], bare: list[str], filled: list[str], *, half_created: bool
) -> None:
    """Raise CookieError if a replacement would start on half of the bookie's data, or on foreign data."""
    if filled:
        raise CookieError(_not_empty(filled))
    stamped = [where for where in sorted(found) if where not in bare]
    if stamped and bare and not half_created:
        msg = (
            f"{', '.join(bare)} lost its cookie, {', '.join(stamped)} has one: the bookie cannot start with half of "
            "its data; empty all its directories, then start the replacement again"
        )
        raise CookieError(msg)


def _check_same(expected: Cookie, cookie: Cookie, where: str) -> None:
    """Raise CookieError if the cookie is another bookie's; its incarnation says nothing about that."""
    actual = _fields(cookie)
    for name, wanted in _fields(expected).items():
        if name != "incarnation" and actual[name] != wanted:
            msg = (
                f"{where} belongs to another bookie: its {name} is {actual[name]!r}, this one's is {wanted!r}; "
                "check the settings and what is mounted"
            )
            raise CookieError(msg)


def _kind_of_refusal(found: Mapping[str, Found], bare: list[str], *, in_zookeeper: bool) -> type[CookieError]:
    """The two refusals that a policy may answer with a replacement: all is lost, or only ZooKeeper's cookie is."""
    if in_zookeeper and len(bare) == len(found) and all(each.empty for each in found.values()):
        return DiskLostError
    if not in_zookeeper and not bare:
        return ForgottenError
    return CookieError


def _missing(bookie_id: str, bare: list[str], *, in_zookeeper: bool) -> str:
    what = [f"directory {where} has no cookie" for where in bare]
    if not in_zookeeper:
        what.append("ZooKeeper has no cookie for it")
    return (
        f"{bookie_id} has served before, but {' and '.join(what)}: mount the right directories; if the data is lost, "
        f"authorise a replacement (`daybook bookie replace {bookie_id}`)"
    )


def _readmission(found: Mapping[str, Found]) -> str:
    """What to do after a restore from an export that is older than the bookie (rule 68); "" if its directories do not fit together."""
    cookies = {each.cookie for each in found.values()}
    cookie = cookies.pop()
    if cookies or cookie is None:
        return ""
    owner = f" --pool-uid {cookie.pool_uid}" if cookie.pool_uid else ""
    return (
        "; if the metadata was restored from an export that is older than this bookie, it keeps its data by "
        f"`daybook metadata readmit {cookie.bookie} {cookie.incarnation}{owner}`"
    )


def _not_empty(filled: list[str]) -> str:
    return (
        f"{', '.join(filled)} holds files but no cookie, so their owner is unknown: move them away, or mount the right "
        "directory"
    )
