"""Who a directory belongs to, and whether a bookie may start on what it finds (rule 29).

A bookie that starts on an empty or a foreign directory would answer "not found" for entries that it acknowledged, and
a recovery would believe it. So each directory carries a cookie, ZooKeeper carries the same one, and anything that does
not match refuses to start, unless a replacement was authorised; then the bookie goes on in limbo for every ledger whose
metadata names it, and stamps its cookies only after the marks are durable.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Final, NamedTuple
from zlib import crc32

from daybook_bookie.disk.disk import Disk, write_durably
from daybook_bookie.disk.errors import CookieError, DiskLostError, ForgottenError

COOKIE: Final = "cookie"
_CREATING: Final = "cookie.new"
_VERSION: Final = 1
_SIZE_MAX: Final = 64 * 1024
_HARMLESS: Final = frozenset({"lost+found", "cookie.tmp", "cookie.new.tmp"})


@dataclass(frozen=True, slots=True)
class Cookie:
    """A bookie's identity, the same in every directory and in ZooKeeper."""

    bookie_id: str
    instance_id: str
    """The cluster, from /instance in ZooKeeper."""
    pool_uid: str
    """The UID of the pool that owns the bookie; empty outside Kubernetes."""
    layout: tuple[str, ...] = ("journal", "store")
    """The roles of its directories: one more or one less is another bookie."""
    incarnation: str = ""
    """Drawn anew whenever cookies are stamped, so that a directory from before a replacement never fits again."""

    def to_bytes(self) -> bytes:
        """One line of JSON and one with its checksum."""
        text = json.dumps({"version": _VERSION, **asdict(self)}, sort_keys=True).encode()
        return text + b"\n" + f"crc32 {crc32(text):08x}\n".encode()


def parse_cookie(data: bytes, where: str) -> Cookie:
    """Read what `to_bytes` wrote; raises CookieError, naming `where`."""
    text, _, rest = data.partition(b"\n")
    if rest != f"crc32 {crc32(text):08x}\n".encode():
        msg = f"the cookie in {where} is damaged: restore it from another directory of this bookie, or replace the bookie"
        raise CookieError(msg)
    try:
        fields = json.loads(text)
        version = fields.pop("version")
        if version == _VERSION:
            return Cookie(**{**fields, "layout": tuple(fields["layout"])})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        msg = f"the cookie in {where} is none of ours ({type(error).__name__}): mount the right directory, or replace the bookie"
        raise CookieError(msg) from error
    msg = f"the cookie in {where} has another version than {_VERSION}: upgrade the bookie"
    raise CookieError(msg)


def read_cookie(disk: Disk, where: str, name: str = COOKIE) -> Cookie | None:
    """The directory's cookie, None if there is none; raises CookieError and OSError."""
    if name not in disk.names():
        return None
    file = disk.open(name)
    try:
        return parse_cookie(file.read(0, _SIZE_MAX), where)
    finally:
        file.close()


def begin_creation(disk: Disk, cookie: Cookie) -> None:
    """Say durably that this directory is being made for `cookie`, before anything else is put there.

    So that a first start or a replacement that is killed half-way goes on, and is not taken for a loss.
    """
    write_durably(disk, _CREATING, cookie.to_bytes())


def write_cookie(disk: Disk, cookie: Cookie) -> None:
    """Stamp the directory, durably; raises OSError."""
    write_durably(disk, COOKIE, cookie.to_bytes())


def finish_creation(disk: Disk) -> None:
    """Every directory is stamped and ZooKeeper has the cookie: from now on anything missing is a loss."""
    if _CREATING in disk.names():
        disk.unlink(_CREATING)
        disk.sync_directory()


class Found(NamedTuple):
    """What one directory holds."""

    cookie: Cookie | None
    creating: Cookie | None
    """Whom it is being made for, by a first start or replacement that has not ended."""
    empty: bool
    """Nothing but what a file system puts there."""


def look(disk: Disk, where: str) -> Found:
    """What `disk` holds; raises CookieError and OSError."""
    rest = set(disk.names()) - _HARMLESS - {COOKIE, _CREATING}
    return Found(read_cookie(disk, where), read_cookie(disk, where, _CREATING), not rest)


class Start(Enum):
    """How a bookie may start."""

    NORMAL = "everything matches"
    FIRST = "a new bookie: begin_creation, create journal and store, stamp, register, finish_creation"
    REPLACEMENT = "authorised: begin_creation, create, mark limbo durably, stamp, register, finish_creation"


def check_cookies(
    expected: Cookie,
    found: Mapping[str, Found],
    registered: Cookie | None,
    *,
    authorised_replacement: bool,
    named_by_ledgers: bool,
) -> Start:
    """How the bookie may start, given what each directory (by role) holds and what ZooKeeper says.

    `named_by_ledgers`: some ledger's metadata names the bookie, read after a sync. Raises CookieError when it may not
    start, saying what to do. A replacement is accepted over directories that all are empty or all are this bookie's;
    a mixture would start on half of its data.
    """
    assert tuple(sorted(found)) == tuple(sorted(expected.layout))
    for where, (cookie, creating, _) in sorted(found.items()):
        for known in filter(None, (cookie, creating)):
            _check_same(expected, known, f"directory {where}")
    if registered is not None:
        _check_same(expected, registered, "ZooKeeper")
    bare = [where for where in sorted(found) if found[where].cookie is None]
    if not bare and registered is not None:
        return Start.NORMAL
    half_made = any(directory.creating is not None for directory in found.values())
    filled = [where for where in bare if not found[where].empty and found[where].creating is None]
    if authorised_replacement:
        _check_replaceable(found, bare, filled, half_made=half_made)
        return Start.REPLACEMENT
    served = len(bare) < len(found) or registered is not None
    if named_by_ledgers or (served and not half_made):
        refusal = _kind_of_refusal(found, bare, in_zookeeper=registered is not None)
        raise refusal(_missing(expected.bookie_id, bare, in_zookeeper=registered is not None))
    if filled:
        raise CookieError(_not_empty(filled))
    return Start.FIRST


def _check_replaceable(
    found: Mapping[str, Found], bare: list[str], filled: list[str], *, half_made: bool
) -> None:
    """Raise CookieError where a replacement would start on half of the bookie's data, or on someone else's."""
    if filled:
        raise CookieError(_not_empty(filled))
    stamped = [where for where in sorted(found) if where not in bare]
    if stamped and bare and not half_made:
        msg = (
            f"{', '.join(bare)} lost its cookie, {', '.join(stamped)} has one: the bookie cannot go on with half of "
            "its data; empty all its directories, then start the replacement again"
        )
        raise CookieError(msg)


def _check_same(expected: Cookie, cookie: Cookie, where: str) -> None:
    for name, wanted in asdict(expected).items():
        actual = asdict(cookie)[name]
        if actual != wanted:
            msg = (
                f"{where} belongs to another bookie: its {name} is {actual!r}, this one's is {wanted!r}; "
                "check the settings and what is mounted"
            )
            raise CookieError(msg)


def _kind_of_refusal(found: Mapping[str, Found], bare: list[str], *, in_zookeeper: bool) -> type[CookieError]:
    """Told apart for who may authorise a replacement by policy: all is lost, or nothing is but the cookie."""
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


def _not_empty(filled: list[str]) -> str:
    return (
        f"{', '.join(filled)} holds files but no cookie: nobody can say whose they are; move them away, or mount the right "
        "directory"
    )
