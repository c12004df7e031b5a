"""Noticing what happens to a ledger while its metadata is read: a frame, a fence, a key that metadata showed, or its deletion."""

from collections.abc import Iterable

from daybook.core.ids import LedgerId


class Watch:
    """Counts what happened to one ledger since it began."""

    __slots__ = ("changes", "ledger_id")

    def __init__(self, ledger_id: LedgerId) -> None:
        self.ledger_id = ledger_id
        self.changes = 0


class Watches:
    """The watches of a bookie."""

    def __init__(self) -> None:
        self.of: dict[LedgerId, list[Watch]] = {}
        """By ledger; a ledger that nobody watches is not in it."""

    def begin(self, ledger_ids: Iterable[LedgerId]) -> list[Watch]:
        """Watch these ledgers until `end`."""
        watches = [Watch(ledger_id) for ledger_id in ledger_ids]
        for watch in watches:
            self.of.setdefault(watch.ledger_id, []).append(watch)
        return watches

    def end(self, watches: Iterable[Watch]) -> None:
        """Watch no longer."""
        for watch in watches:
            watching = self.of[watch.ledger_id]
            watching.remove(watch)
            if not watching:
                del self.of[watch.ledger_id]

    def touched(self, ledger_id: LedgerId) -> None:
        """Something happened to the ledger."""
        for watch in self.of.get(ledger_id, ()):
            watch.changes += 1
