"""The guard against a ZooKeeper that went back in time: it would have every newer ledger deleted (rule 62).

A ledger's id is taken from the counter before the ledger can have an entry. So if this bookie holds something of a
ledger whose id the counter has not reached, then ZooKeeper has forgotten what it once knew: it was restored from an old
snapshot. From that moment nothing is collected here, since what the metadata lacks may be what it forgot, and no ledger
begins here, since its id may have been given out before. Kept in a file beside the store, since ZooKeeper cannot be
trusted to remember, and new ledgers soon lift the counter past the proof; a person ends it, by name.
"""

import json
import threading
from typing import Final, NamedTuple, Protocol

from daybook.core.ids import NO_ENTRY, LedgerId
from daybook.runtime.clock import unix_ms
from daybook.runtime.logs import get_logger
from daybook_bookie.disk.disk import Disk, write_durably

_LOG: Final = get_logger(__name__)
FILE: Final = "rolled-back"
_FILE_BYTES_MAX: Final = 1000


class IdCounter(Protocol):
    """Where ids come from."""

    def next_ledger_id(self) -> LedgerId:
        """The id that the next ledger gets, after a sync. Raises DaybookError when the store does not answer."""


class RollBack(NamedTuple):
    """What was noticed."""

    counter: LedgerId
    """The lowest that the counter was seen at."""
    highest_held: LedgerId
    """The highest id of which this bookie holds something that only a ledger that existed can have left."""


def forget_roll_back(disk: Disk) -> None:
    """The next guard on the store's `disk` knows of nothing, durably. Raises OSError."""
    if FILE in disk.names():
        disk.unlink(FILE)
    disk.sync_directory()


class RollBackGuard:
    """Of one bookie. Its methods may be called from any thread."""

    def __init__(self, disk: Disk, counter: IdCounter) -> None:
        """On the disk of the store. Raises OSError."""
        self._disk = disk
        self._counter = counter
        self._lock = threading.Lock()
        self._highest_held = NO_ENTRY
        self._is_kept = True
        self._noticed = self._read()
        if self._noticed is not None:
            _LOG.error("ZooKeeper went back in time, as was noticed before", why=self.reason)

    @property
    def reason(self) -> str:
        """Why nothing is collected, and what to do; empty if all is well."""
        noticed = self._noticed
        if noticed is None:
            return ""
        return (
            f"ZooKeeper went back in time: its counter of ledger ids was at {noticed.counter}, and this bookie holds ledger "
            f"{noticed.highest_held}; nothing is collected and no ledger begins here until ZooKeeper's newer data is brought "
            "back, or given up: then `daybook bookie accept-rollback`"
        )

    @property
    def highest_held(self) -> LedgerId:
        """The highest id that this bookie has proof of, as of the last look; −1 without any."""
        noticed = self._noticed
        return max(self._highest_held, NO_ENTRY if noticed is None else noticed.highest_held)

    def judge(self, highest_held: LedgerId, next_id: LedgerId) -> None:
        """Compare what the bookie held with the counter, which must have been read after a later sync."""
        with self._lock:
            self._highest_held = highest_held
            noticed = self._noticed
            if highest_held >= next_id:
                noticed = RollBack(next_id, highest_held)
                if self._noticed is not None:
                    noticed = RollBack(
                        min(next_id, self._noticed.counter), max(highest_held, self._noticed.highest_held)
                    )
            if noticed is not None and (noticed != self._noticed or not self._is_kept):
                self._notice(noticed)

    def why_not_begin(self, ledger_id: LedgerId) -> str:
        """Why a ledger that was never introduced here may not begin; empty if it may. Raises DaybookError.

        Which ids were given out twice by the time it was noticed cannot be told, so no ledger begins until it is settled.
        The counter is asked only about ids up to what the bookie holds: what exists beyond that has lifted the counter.
        """
        if self._noticed is None and ledger_id <= self._highest_held:
            self.judge(self._highest_held, self._counter.next_ledger_id())
        return self.reason

    def accept(self, highest_held: LedgerId) -> str:
        """End the guard for whoever knows of `highest_held`; why not, if it stays. Raises DaybookError, OSError.

        The counter must have passed every id that this bookie holds, or ids would be given out twice, and the next look
        would notice the same again.
        """
        if self._noticed is None:
            return ""
        next_id = self._counter.next_ledger_id()
        with self._lock:
            held = self.highest_held
            if highest_held < held:
                return f"the bookie holds ledger {held} by now, not only {highest_held}: look again"
            if next_id <= held:
                return f"the counter of ledger ids is at {next_id} and must be raised past {held} first"
            forget_roll_back(self._disk)
            self._noticed = None
        _LOG.warning("what ZooKeeper says counts again: the roll-back was accepted", next_ledger_id=next_id)
        return ""

    def _notice(self, noticed: RollBack) -> None:
        """With the lock held. It holds at once; a disk that does not take it is asked again at the next look."""
        self._noticed = noticed
        _LOG.error("ZooKeeper went back in time", why=self.reason)
        try:
            record = {**noticed._asdict(), "noticed_at_ms": unix_ms()}
            write_durably(self._disk, FILE, json.dumps(record).encode())
            self._is_kept = True
        except OSError as error:
            self._is_kept = False
            _LOG.error("that ZooKeeper went back in time cannot be kept on the disk", reason=str(error))

    def _read(self) -> RollBack | None:
        """That the file is there decides; what cannot be read in it is taken for the worst. Raises OSError."""
        if FILE not in self._disk.names():
            return None
        file = self._disk.open(FILE)
        try:
            record = json.loads(file.read(0, _FILE_BYTES_MAX))
            return RollBack(int(record["counter"]), int(record["highest_held"]))
        except (ValueError, KeyError, TypeError):
            return RollBack(0, NO_ENTRY)
        finally:
            file.close()
