"""From directories and ZooKeeper to storage that may be served: cookies first, everything else after.

Rule 29 in its order. A normal start needs every cookie to be there and of one incarnation. A first start or an
authorised replacement says durably what it is about, creates journal and store, marks every ledger whose metadata names
the bookie as limbo, durably, and only then stamps directories and ZooKeeper; killed anywhere, it is begun again. All that
while the process holds the claim of the bookie's id, without a break (rule 57): an old process that is cut off and lives
takes no ledger's first frame after the ledgers were listed.
"""

import fcntl
import os
import secrets
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from daybook.core.ids import LedgerId
from daybook.metadata import bookies as metadata_bookies
from daybook.metadata.instance import read_instance
from daybook.metadata.store.store import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    Versioned,
)
from daybook.runtime.logs import get_logger
from daybook_bookie.disk.disk import Disk, RealDisk
from daybook_bookie.disk.errors import CookieError
from daybook_bookie.disk.private_files import DIRECTORY_MODE, make_private
from daybook_bookie.disk.settings import StorageSettings, map_bytes_for
from daybook_bookie.identity.cookies import (
    Cookie,
    Found,
    Start,
    begin_creation,
    check_cookies,
    finish_creation,
    look,
    write_cookie,
)
from daybook_bookie.identity.epoch import DiskEpoch
from daybook_bookie.identity.kept_mode import KeptMode
from daybook_bookie.identity.metadata_link import MetadataLink
from daybook_bookie.identity.rollback import forget_roll_back
from daybook_bookie.journal.records import NONCE_BYTES, limbo_record
from daybook_bookie.settings import BookieSettings
from daybook_bookie.store.storage import Storage

_LOG: Final = get_logger(__name__)
_MARKS_AT_ONCE: Final = 10_000


class DirectoryLock:
    """Keeps a second process of the same bookie out of its directories; ends with the process."""

    def __init__(self, *directories: Path) -> None:
        """Make the directories if they are missing, and lock them. Raises CookieError if another process holds one."""
        self._descriptors: list[int] = []
        for directory in dict.fromkeys(directories):
            try:
                directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
                descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                self.close()
                msg = f"{directory} cannot be used as a directory ({error.strerror}): check the path and its owner"
                raise CookieError(msg) from error
            self._descriptors.append(descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                self.close()
                msg = f"another process uses {directory}: does this bookie run already? Stop it first"
                raise CookieError(msg) from error
            make_private(directory)

    def close(self) -> None:
        """Let others in."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()


def open_storage(settings: BookieSettings, link: MetadataLink) -> Storage:
    """Check who the directories belong to, and open them. Raises CookieError, StorageError, DaybookError, OSError."""
    if settings.journal_dir.resolve() == settings.store_dir.resolve():
        msg = f"journal_dir and store_dir are both {settings.store_dir}: give each a directory of its own"
        raise CookieError(msg)
    return _Boot(settings, link).open()


class _Judged(NamedTuple):
    """How a bookie may start, and what of the metadata says so."""

    start: Start
    registered: Versioned[metadata_bookies.Cookie] | None
    leave: Versioned[bytes] | None
    """The authorisation of a replacement."""
    ledgers: list[LedgerId]
    """Those that name the bookie; nobody asks for them where all cookies are of one incarnation."""


class _Boot:
    """One start."""

    def __init__(self, settings: BookieSettings, link: MetadataLink) -> None:
        self._settings = settings
        self._link = link
        self._disks: dict[str, Disk] = {
            "journal": RealDisk(settings.journal_dir),
            "store": RealDisk(settings.store_dir),
        }
        instance = link.run(read_instance(link.store, link.layout))
        self._identity = Cookie(settings.bookie_id, instance.instance_id, settings.owner_uid)

    def open(self) -> Storage:
        judged = self._judge()
        _LOG.info("starting", how=judged.start.name)
        if judged.start is not Start.NORMAL:
            return self._create()
        assert judged.registered is not None
        self._link.claim.incarnation = judged.registered.value.incarnation
        storage = self._open_disks(new=False)
        self._finish()
        return self._aged(storage)

    def _judge(self) -> _Judged:
        """How the bookie may start, as things are now. Raises CookieError."""
        link, bookie_id = self._link, self._settings.bookie_id
        found = {role: look(disk, self._where(role)) for role, disk in self._disks.items()}
        link.run(link.store.sync(link.layout.root))
        node = link.run(link.bookies.cookie(bookie_id))
        registered = None if node is None else _as_in_directories(node.value)
        leave = link.run(link.bookies.valid_replacement(bookie_id, at_ms=link.run(link.claim.taken_at_ms())))
        is_one = self._is_one_incarnation(found, registered)
        ledgers = [] if is_one else link.ledgers_of(bookie_id)
        start = check_cookies(
            self._identity,
            {role: _without_incarnation(each) for role, each in found.items()},
            None if registered is None else replace(registered, incarnation=""),
            authorised_replacement=leave is not None,
            named_by_ledgers=bool(ledgers),
        )
        if start is Start.NORMAL and not is_one:
            self._refuse_unless_replacing(found, authorised=leave is not None)
            start = Start.REPLACEMENT
        return _Judged(start, node, leave, ledgers)

    def _where(self, role: str) -> str:
        return str(getattr(self._settings, f"{role}_dir"))

    def _is_one_incarnation(self, found: dict[str, Found], registered: Cookie | None) -> bool:
        cookies = [registered, *(each.cookie for each in found.values())]
        return None not in cookies and len({cookie.incarnation for cookie in cookies if cookie}) == 1

    def _refuse_unless_replacing(self, found: dict[str, Found], *, authorised: bool) -> None:
        """Stamped directories that ZooKeeper does not know yet: a replacement that was killed just before its end."""
        if authorised and all(each.creating is not None for each in found.values()):
            return
        msg = (
            f"the directories of {self._settings.bookie_id} are from before or after a replacement that ZooKeeper "
            "does not know: mount the right ones; if their data is lost, empty both and authorise a replacement "
            f"(`daybook bookie replace {self._settings.bookie_id}`)"
        )
        raise CookieError(msg)

    def _open_disks(self, *, new: bool) -> Storage:
        settings = self._settings
        file_system = os.statvfs(settings.store_dir)
        sizes = StorageSettings(
            journal_file_bytes=settings.journal_file_bytes,
            store_map_bytes=settings.store_map_bytes
            or map_bytes_for(file_system.f_blocks * file_system.f_frsize),
        )
        return Storage.open(self._disks["journal"], self._disks["store"], settings.store_dir, sizes, new=new)

    def _create(self) -> Storage:
        claim = self._link.claim
        self._link.take_claim()
        judged = self._judge()
        cookie = replace(self._identity, incarnation=uuid.uuid4().hex)
        for disk in self._disks.values():
            begin_creation(disk, cookie)
        KeptMode(self._disks["store"]).keep("")  # a new life: what the old one was told ended with it
        forget_roll_back(self._disks["store"])
        storage = self._open_disks(new=True)
        try:
            while judged.start is not Start.NORMAL and not self._is_stamped(storage, cookie, judged):
                _LOG.warning("the claim of the bookie's id was lost: its ledgers are listed again")
                self._link.take_claim()
                judged = self._judge()
            claim.incarnation = cookie.incarnation
            self._finish()
        except BaseException:
            storage.close()
            raise
        return self._aged(storage)

    def _aged(self, storage: Storage) -> Storage:
        """Begin another epoch of the disks; ones that went back in time vouch for nothing (rule 58)."""
        link = self._link
        try:
            disks = DiskEpoch(self._disks, link.claim.incarnation)
            in_zookeeper = link.run(link.claim.disks.look(link.claim.incarnation))
            if disks.age.is_behind(in_zookeeper):
                self._went_back(storage, disks)
            else:
                link.claim.disks.epoch = disks.step()
        except BaseException:
            storage.close()
            raise
        link.disk_epoch = disks
        return storage

    def _went_back(self, storage: Storage, disks: DiskEpoch) -> None:
        """As after a lost disk, and under one claim as then; only what is there still may be read."""
        link, age = self._link, disks.age
        while True:
            link.take_claim()
            link.run(link.store.sync(link.layout.root))
            in_zookeeper = link.run(link.claim.disks.look(link.claim.incarnation))
            link.disk_notice = (
                f"a disk went back in time: the journal's is of epoch {age.journal}, the store's of {age.store}, and they were "
                f"at {max(in_zookeeper, *age)}; the bookie vouches for no ledger that names it until repair has given back what it owes"
            )
            _LOG.error(link.disk_notice, journal=age.journal, store=age.store, zookeeper=in_zookeeper)
            self._mark_limbo(storage, link.ledgers_of(self._settings.bookie_id))
            link.claim.disks.epoch = max(in_zookeeper, *age) + 1
            disks.write(link.claim.disks.epoch)
            try:
                link.run(link.claim.commit_epoch())
            except (SessionExpiredError, NoNodeError, BadVersionError, NodeExistsError) as error:
                _LOG.warning("the claim was lost: the ledgers are listed again", reason=str(error))
            else:
                return

    def _is_stamped(self, storage: Storage, cookie: Cookie, judged: _Judged) -> bool:
        """Mark limbo, then stamp directories and ZooKeeper; False if the claim was not held all the while."""
        if judged.start is Start.REPLACEMENT:
            self._mark_limbo(storage, judged.ledgers)
        for disk in self._disks.values():
            write_cookie(disk, cookie)
        try:
            self._stamp(cookie, judged)
        except (SessionExpiredError, NoNodeError, BadVersionError, NodeExistsError) as error:
            _LOG.warning("the cookie was not stamped", reason=str(error))
            return False
        return True

    def _mark_limbo(self, storage: Storage, ledgers: list[LedgerId]) -> None:
        """Before cookies are stamped, durably: what this bookie may have lost, it must never deny (rule 29)."""
        for begin in range(0, len(ledgers), _MARKS_AT_ONCE):
            part = ledgers[begin : begin + _MARKS_AT_ONCE]
            marks = [limbo_record(ledger_id, secrets.token_bytes(NONCE_BYTES)) for ledger_id in part]
            storage.journal.append([storage.decide(mark) for mark in marks])
            storage.journal.sync()
        _LOG.warning("this bookie cannot vouch for these ledgers yet", limbo_ledgers=len(ledgers))

    def _stamp(self, cookie: Cookie, judged: _Judged) -> None:
        link = self._link
        stamp = metadata_bookies.Cookie(
            cookie.bookie_id, cookie.instance_id, cookie.incarnation, cookie.layout, cookie.pool_uid
        )
        link.run(link.claim.commit(link.bookies.stamping(stamp, over=judged.registered, leave=judged.leave)))

    def _finish(self) -> None:
        for disk in self._disks.values():
            finish_creation(disk)


def _as_in_directories(known: metadata_bookies.Cookie) -> Cookie:
    """The cookie in ZooKeeper as the directories spell it."""
    return Cookie(known.bookie, known.instance_id, known.pool_uid, known.directories, known.incarnation)


def _without_incarnation(found: Found) -> Found:
    """Incarnations are compared once it is clear that the bookie is the same."""
    return found._replace(
        cookie=None if found.cookie is None else replace(found.cookie, incarnation=""),
        creating=None if found.creating is None else replace(found.creating, incarnation=""),
    )
