"""From directories and ZooKeeper to storage that may be served: cookies first, everything else after.

The core decides the order (`daybook.core.bookie.life`): here are the files and the calls that its effects ask for (rule 29,
rule 57, rule 58). A normal start needs every cookie, all of one incarnation. If another start is killed anywhere, the
next one begins again.
"""

import os
import secrets
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from daybook.core.bookie.life import (
    BookieLife,
    ClaimLost,
    ClaimTaken,
    CompareEpochs,
    Created,
    CreateStorage,
    EpochsCompared,
    JudgeStart,
    LedgersListed,
    LifeEffect,
    LifeEvent,
    LimboMarked,
    ListLedgers,
    MarkLimbo,
    StampCookie,
    Stamped,
    StampEpoch,
    Start,
    StartJudged,
    StartRefused,
    TakeClaim,
)
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


def open_storage(settings: BookieSettings, link: MetadataLink, life: BookieLife) -> Storage:
    """Check who the directories belong to, and open them; `life` then serves.

    Raises CookieError, StorageError, DaybookError, OSError.
    """
    if settings.journal_dir.resolve() == settings.store_dir.resolve():
        msg = f"journal_dir and store_dir are both {settings.store_dir}: give each a directory of its own"
        raise CookieError(msg)
    return _Boot(settings, link, life).open()


class _Judged(NamedTuple):
    """How a bookie may start, and the metadata that decided it."""

    start: Start
    registered: Versioned[Cookie] | None
    authorisation: Versioned[bytes] | None
    """Of a replacement."""
    ledgers: list[LedgerId]
    """Those that name the bookie; not read if all cookies are of one incarnation."""


class _Boot:
    """One start: performs what the core decides."""

    def __init__(self, settings: BookieSettings, link: MetadataLink, life: BookieLife) -> None:
        self._settings = settings
        self._link = link
        self._life = life
        self._disks: dict[str, Disk] = {
            "journal": RealDisk(settings.journal_dir),
            "store": RealDisk(settings.store_dir),
        }
        instance = link.run(read_instance(link.store, link.layout))
        self._identity = Cookie(settings.bookie_id, instance.instance_id, "", ROLES, settings.owner_uid)
        self._new_cookie = replace(self._identity, incarnation=uuid.uuid4().hex)
        self._storage: Storage | None = None

    def open(self) -> Storage:
        try:
            effects = self._life.start()
            while not self._life.is_serving:
                (effect,) = effects
                effects = self._life.step(self._perform(effect))
        except BaseException:
            if self._storage is not None:
                self._storage.close()
            raise
        assert self._storage is not None
        return self._storage

    def _perform(self, effect: LifeEffect) -> LifeEvent:
        match effect:
            case JudgeStart():
                self._judged = self._judge_or_refuse()
                _LOG.info("starting", how=self._judged.start.name)
                return StartJudged(self._judged.start, tuple(self._judged.ledgers))
            case TakeClaim():
                self._link.take_claim()
                return ClaimTaken()
            case CreateStorage():
                return self._create()
            case MarkLimbo(ledgers):
                assert self._storage is not None
                self._mark_limbo(self._storage, ledgers)
                return LimboMarked()
            case StampCookie():
                for disk in self._disks.values():
                    write_cookie(disk, self._new_cookie)
                return self._under_the_claim(partial(self._stamp, self._new_cookie, self._judged))
            case CompareEpochs():
                return self._compare_epochs()
            case ListLedgers():
                return self._list_ledgers()
            case StampEpoch():
                return self._under_the_claim(self._stamp_epoch)
            case _:
                raise AssertionError(effect)

    def _judge_or_refuse(self) -> _Judged:
        """As `_judge`; a refusal ends the life as well."""
        try:
            return self._judge()
        except CookieError as error:
            self._life.step(StartRefused(error.refusal))
            raise

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
        is_one = is_one_incarnation(found, registered)
        ledgers = [] if is_one else link.ledgers_where(self._life.must_mark)
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
            store_page_cache_bytes=settings.store_page_cache_bytes,
        )
        return Storage.open(self._disks["journal"], self._disks["store"], settings.store_dir, sizes, new=new)

    def _create(self) -> Created:
        for disk in self._disks.values():
            begin_creation(disk, self._new_cookie)
        KeptMode(self._disks["store"]).keep("")  # the modes of the previous life ended with it
        forget_roll_back(self._disks["store"])
        self._storage = self._open_disks(new=True)
        return Created()

    def _mark_limbo(self, storage: Storage, ledgers: Sequence[LedgerId]) -> None:
        """Durably: the bookie must not report absent what it may have lost (rule 29)."""
        machine = BookieMachine(MachineStorage(storage))
        for begin in range(0, len(ledgers), _MARKS_AT_ONCE):
            part = ledgers[begin : begin + _MARKS_AT_ONCE]
            storage.journal.append(
                [machine.mark_limbo(ledger_id, secrets.token_hex(NONCE_BYTES)) for ledger_id in part]
            )
            storage.journal.sync()
        _LOG.warning("this bookie cannot vouch for these ledgers yet", limbo_ledgers=len(ledgers))

    def _under_the_claim(self, stamp: Callable[[], None]) -> Stamped | ClaimLost:
        try:
            stamp()
        except _CLAIM_LOST as error:
            _LOG.warning("the claim was lost: the ledgers are listed again", reason=str(error))
            return ClaimLost()
        return Stamped()

    def _stamp(self, cookie: Cookie, judged: _Judged) -> None:
        link = self._link
        stamping = link.bookies.stamping(cookie, over=judged.registered, leave=judged.authorisation)
        link.run(link.claim.commit(stamping))

    def _finish(self) -> None:
        for disk in self._disks.values():
            finish_creation(disk)

    # The epochs of the disks (rule 58)

    def _compare_epochs(self) -> EpochsCompared:
        """Begin the disks' next epoch, unless they went back in time."""
        claim = self._link.claim
        if self._storage is None:
            assert self._judged.registered is not None
            claim.incarnation = self._judged.registered.value.incarnation
            self._storage = self._open_disks(new=False)
        else:
            claim.incarnation = self._new_cookie.incarnation
        self._finish()
        disks = self._link.disk_epoch = DiskEpoch(self._disks, claim.incarnation)
        self._age = disks.age
        if self._age.is_behind(self._epoch_in_zookeeper()):
            return EpochsCompared(went_back=True)
        claim.disks.epoch = disks.step()
        return EpochsCompared(went_back=False)

    def _epoch_in_zookeeper(self) -> int:
        claim = self._link.claim
        return self._link.run(claim.disks.read(claim.incarnation))

    def _list_ledgers(self) -> LedgersListed:
        """Of disks that went back in time: the bookie vouches for nothing, but what they still hold may be read."""
        link = self._link
        link.run(link.store.sync(link.layout.root))
        age, in_zookeeper = self._age, self._epoch_in_zookeeper()
        reached = max(in_zookeeper, *age)
        link.disk_notice = (
            f"a disk went back in time: the journal's is of epoch {age.journal}, the store's of {age.store}, and they were "
            f"at {reached}; the bookie vouches for no ledger that names it until repair has given back what it owes"
        )
        _LOG.error(link.disk_notice, journal=age.journal, store=age.store, zookeeper=in_zookeeper)
        link.claim.disks.epoch = reached + 1
        return LedgersListed(tuple(link.ledgers_where(self._life.must_mark)))

    def _stamp_epoch(self) -> None:
        link = self._link
        assert link.disk_epoch is not None
        link.disk_epoch.write(link.claim.disks.epoch)
        link.run(link.claim.commit_epoch())


def is_one_incarnation(found: Mapping[str, Found], registered: Cookie | None) -> bool:
    """Whether ZooKeeper and every directory have a cookie, all of one incarnation: an old copy has another one (rule 29)."""
    cookies = [registered, *(each.cookie for each in found.values())]
    return None not in cookies and len({cookie.incarnation for cookie in cookies if cookie}) == 1
