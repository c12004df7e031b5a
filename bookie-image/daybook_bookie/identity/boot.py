"""From directories and ZooKeeper to storage that may be served: cookies first, everything else after.

Rule 29 in its order. A normal start needs every cookie, all of one incarnation. A first start or an authorised replacement
durably records what it is going to do, creates journal and store, marks every ledger whose metadata names the bookie as
limbo, durably, and only then stamps directories and ZooKeeper; if it is killed anywhere, the next start begins again. All
that time the process holds the claim of the bookie's id without a break (rule 57): an old process that is disconnected and
still runs accepts no first frame of a ledger after the ledgers were listed.
"""

import os
import secrets
import uuid
from dataclasses import replace
from typing import Final, NamedTuple

from daybook.core.bookie.machine import BookieMachine
from daybook.core.ids import LedgerId
from daybook.metadata.bookies import Cookie
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
from daybook_bookie.identity.cookies import (
    ROLES,
    Found,
    Start,
    begin_creation,
    check_cookies,
    finish_creation,
    inspect,
    write_cookie,
)
from daybook_bookie.identity.epoch import DiskEpoch
from daybook_bookie.identity.kept_mode import KeptMode
from daybook_bookie.identity.metadata_link import MetadataLink
from daybook_bookie.identity.rollback import forget_roll_back
from daybook_bookie.journal.format import NONCE_BYTES
from daybook_bookie.settings import BookieSettings, StorageSettings, map_bytes_for
from daybook_bookie.store.machine_storage import MachineStorage
from daybook_bookie.store.storage import Storage

_LOG: Final = get_logger(__name__)
_MARKS_AT_ONCE: Final = 10_000
_CLAIM_LOST: Final = (SessionExpiredError, NoNodeError, BadVersionError, NodeExistsError)
"""What a write in ZooKeeper raises that another process got ahead of."""


def open_storage(settings: BookieSettings, link: MetadataLink) -> Storage:
    """Check who the directories belong to, and open them. Raises CookieError, StorageError, DaybookError, OSError."""
    if settings.journal_dir.resolve() == settings.store_dir.resolve():
        msg = f"journal_dir and store_dir are both {settings.store_dir}: give each a directory of its own"
        raise CookieError(msg)
    return _Boot(settings, link).open()


class _Judged(NamedTuple):
    """How a bookie may start, and the metadata that decided it."""

    start: Start
    registered: Versioned[Cookie] | None
    authorisation: Versioned[bytes] | None
    """Of a replacement."""
    ledgers: list[LedgerId]
    """Those that name the bookie; not read if all cookies are of one incarnation."""


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
        self._identity = Cookie(settings.bookie_id, instance.instance_id, "", ROLES, settings.owner_uid)

    def open(self) -> Storage:
        judged = self._judge()
        _LOG.info("starting", how=judged.start.name)
        if judged.start is not Start.NORMAL:
            return self._create()
        assert judged.registered is not None
        self._link.claim.incarnation = judged.registered.value.incarnation
        storage = self._open_disks(new=False)
        self._finish()
        return self._begin_epoch(storage)

    def _judge(self) -> _Judged:
        """How the bookie may start, as of now. Raises CookieError."""
        link, bookie_id = self._link, self._settings.bookie_id
        found = {role: inspect(disk, self._where(role)) for role, disk in self._disks.items()}
        link.run(link.store.sync(link.layout.root))
        node = link.run(link.bookies.cookie(bookie_id))
        registered = None if node is None else node.value
        authorisation = link.run(
            link.bookies.valid_replacement(bookie_id, at_ms=link.run(link.claim.taken_at_ms()))
        )
        is_one = self._is_one_incarnation(found, registered)
        ledgers = [] if is_one else link.ledgers_of(bookie_id)
        start = check_cookies(
            self._identity,
            found,
            registered,
            authorised_replacement=authorisation is not None,
            named_by_ledgers=bool(ledgers),
        )
        if start is Start.NORMAL and not is_one:
            self._refuse_unless_replacing(found, authorised=authorisation is not None)
            start = Start.REPLACEMENT
        return _Judged(start, node, authorisation, ledgers)

    def _where(self, role: str) -> str:
        return str(getattr(self._settings, f"{role}_dir"))

    def _is_one_incarnation(self, found: dict[str, Found], registered: Cookie | None) -> bool:
        cookies = [registered, *(each.cookie for each in found.values())]
        return None not in cookies and len({cookie.incarnation for cookie in cookies if cookie}) == 1

    def _refuse_unless_replacing(self, found: dict[str, Found], *, authorised: bool) -> None:
        """Stamped directories whose cookie ZooKeeper does not have yet: a replacement that was killed at its end."""
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
        KeptMode(self._disks["store"]).keep("")  # the modes of the previous life ended with it
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
        return self._begin_epoch(storage)

    def _begin_epoch(self, storage: Storage) -> Storage:
        """Begin the disks' next epoch; after disks that went back in time the bookie vouches for nothing (rule 58)."""
        link = self._link
        try:
            disks = DiskEpoch(self._disks, link.claim.incarnation)
            in_zookeeper = link.run(link.claim.disks.read(link.claim.incarnation))
            if disks.age.is_behind(in_zookeeper):
                self._restart_epoch(storage, disks)
            else:
                link.claim.disks.epoch = disks.step()
        except BaseException:
            storage.close()
            raise
        link.disk_epoch = disks
        return storage

    def _restart_epoch(self, storage: Storage, disks: DiskEpoch) -> None:
        """Limbo as after a lost disk, and under one claim as then; but what the disks still hold may be read."""
        link, age = self._link, disks.age
        while True:
            link.take_claim()
            link.run(link.store.sync(link.layout.root))
            in_zookeeper = link.run(link.claim.disks.read(link.claim.incarnation))
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
            except _CLAIM_LOST as error:
                _LOG.warning("the claim was lost: the ledgers are listed again", reason=str(error))
            else:
                return

    def _is_stamped(self, storage: Storage, cookie: Cookie, judged: _Judged) -> bool:
        """Mark limbo, then stamp directories and ZooKeeper; False if the claim was lost meanwhile."""
        if judged.start is Start.REPLACEMENT:
            self._mark_limbo(storage, judged.ledgers)
        for disk in self._disks.values():
            write_cookie(disk, cookie)
        try:
            self._stamp(cookie, judged)
        except _CLAIM_LOST as error:
            _LOG.warning("the cookie was not stamped", reason=str(error))
            return False
        return True

    def _mark_limbo(self, storage: Storage, ledgers: list[LedgerId]) -> None:
        """Before cookies are stamped, durably: the bookie must not report absent what it may have lost (rule 29)."""
        machine = BookieMachine(MachineStorage(storage))
        for begin in range(0, len(ledgers), _MARKS_AT_ONCE):
            part = ledgers[begin : begin + _MARKS_AT_ONCE]
            storage.journal.append(
                [machine.mark_limbo(ledger_id, secrets.token_hex(NONCE_BYTES)) for ledger_id in part]
            )
            storage.journal.sync()
        _LOG.warning("this bookie cannot vouch for these ledgers yet", limbo_ledgers=len(ledgers))

    def _stamp(self, cookie: Cookie, judged: _Judged) -> None:
        link = self._link
        stamping = link.bookies.stamping(cookie, over=judged.registered, leave=judged.authorisation)
        link.run(link.claim.commit(stamping))

    def _finish(self) -> None:
        for disk in self._disks.values():
            finish_creation(disk)
