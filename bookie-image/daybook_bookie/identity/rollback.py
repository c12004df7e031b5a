"""The guard against a ZooKeeper that went back in time: the collector would delete every newer ledger (rule 62).

A ledger's id is taken from the counter before the ledger can have an entry. So if this bookie holds something of a
ledger whose id the counter has not reached, ZooKeeper has lost data: it was restored from an old snapshot. From then on
this bookie collects nothing, since what the metadata lacks may be what was lost, and accepts no new ledger, since its id
may have been assigned before. The guard keeps this in a file beside the store, since ZooKeeper cannot be trusted to keep
it, and new ledgers soon raise the counter past the proof; only an administrator ends it.
"""

import json
import threading
from typing import Final, NamedTuple, Protocol

from daybook.core.ids import NO_ENTRY, LedgerId
from daybook.runtime.clock import unix_ms
from daybook.runtime.logs import get_logger
from daybook_bookie.disk.disk import Disk
from daybook_bookie.disk.small_files import read_whole, remove_durably, write_durably

_LOG: Final = get_logger(__name__)
FILE: Final = "rolled-back"


class IdCounter(Protocol):
    """Assigns ledger ids."""

    def next_ledger_id(self) -> LedgerId:
        """The id that the next ledger gets, after a sync. Raises DaybookError when the store does not answer."""


class RollBack(NamedTuple):
    """The evidence."""

    counter: LedgerId
    """The lowest value that was read from the counter."""
    highest_held: LedgerId
    """The highest id of which this bookie holds something that only a ledger that existed can have left."""


def forget_roll_back(disk: Disk) -> None:
    """Remove the file from the store's `disk`, durably. Raises OSError."""
    remove_durably(disk, FILE)


class RollBackGuard:
    """The guard of one bookie. Any thread may call its methods."""

    def __init__(self, disk: Disk, counter: IdCounter) -> None:
        """The file is on the store's disk. Raises OSError."""
        self._disk = disk
        self._counter = counter
        self._lock = threading.Lock()
        self._highest_held = NO_ENTRY
        self._is_kept = True
        self._noticed = self._read()
        if self._noticed is not None:
            _LOG.error("ZooKeeper went back in time, as an earlier start found out", why=self.reason)

    @property
    def reason(self) -> str:
        """Why nothing is collected, and what to do; empty if ZooKeeper did not go back."""
        noticed = self._noticed
        if noticed is None:
            return ""
        return (
            f"ZooKeeper went back in time: its counter of ledger ids was at {noticed.counter}, and this bookie holds ledger "
            f"{noticed.highest_held}; nothing is collected and no ledger begins here until ZooKeeper's newer data is "
            "restored, or given up: then `daybook bookie accept-rollback`"
        )

    @property
    def highest_held(self) -> LedgerId:
        """The highest id that this bookie has proof of, as of the last `judge`; −1 without any."""
        noticed = self._noticed
        return max(self._highest_held, NO_ENTRY if noticed is None else noticed.highest_held)

    def judge(self, highest_held: LedgerId, next_id: LedgerId) -> None:
        """Compare what the bookie held with the counter, which the caller read after a later sync."""
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

        It is unknown which ids were assigned twice before the roll-back was noticed, so no ledger begins until it is
        accepted. The counter is read only for ids up to what the bookie holds: any higher ledger has raised the counter.
        """
        if self._noticed is None and ledger_id <= self._highest_held:
            self.judge(self._highest_held, self._counter.next_ledger_id())
        return self.reason

    def accept(self, highest_held: LedgerId) -> str:
        """End the guard for a caller who knows of `highest_held`; why not, if it stays. Raises DaybookError, OSError.

        The counter must have passed every id that this bookie holds, or ids would be assigned twice, and the next
        collection would notice the same again.
        """
        if self._noticed is None:
            return ""
        next_id = self._counter.next_ledger_id()
        with self._lock:
            held = self.highest_held
            if highest_held < held:
                return f"the bookie holds ledger {held} by now, not only {highest_held}: check again"
            if next_id <= held:
                return f"the counter of ledger ids is at {next_id} and must be raised past {held} first"
            forget_roll_back(self._disk)
            self._noticed = None
        _LOG.warning("the roll-back of ZooKeeper was accepted", next_ledger_id=next_id)
        return ""

    def _notice(self, noticed: RollBack) -> None:
        """With the lock held. Effective at once; if the disk refuses the file, the next `judge` tries again."""
        self._noticed = noticed
        _LOG.error("ZooKeeper went back in time", why=self.reason)
        try:
            record = {**noticed._asdict(), "noticed_at_ms": unix_ms()}
            write_durably(self._disk, FILE, json.dumps(record).encode())
            self._is_kept = True
        except OSError as error:
            self._is_kept = False
            _LOG.error("the roll-back of ZooKeeper cannot be recorded on the disk", reason=str(error))

    def _read(self) -> RollBack | None:
        """The existence of the file decides; unreadable content counts as the worst case. Raises OSError."""
        data = read_whole(self._disk, FILE)
        if data is None:
            return None
        try:
            record = json.loads(data)
            return RollBack(int(record["counter"]), int(record["highest_held"]))
        except (ValueError, KeyError, TypeError):
            return RollBack(0, NO_ENTRY)
