"""Users that read through `Reader`: they follow a ledger to its end, ask now and then, recover and delete.

Each keeps one reader for as long as it can, as a service does: its LAC never goes back, and it sees the close that
another client made.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from daybook.client.client import Client
from daybook.client.ledger import Ledger
from daybook.client.reader import Reader
from daybook.core.errors import DaybookError, NoSuchLedgerError
from daybook.core.ids import NO_ENTRY, EntryId, LedgerId
from tests.model.sim.cluster import KEY

if TYPE_CHECKING:
    from tests.model.sim.shipped.process import ShippedProcess

_PAUSE_S: Final = 0.5


class ReadingUser:
    """Reads one ledger, and remembers how far it may read."""

    def __init__(self, process: "ShippedProcess", name: str, ledger_id: LedgerId) -> None:
        self._process = process
        self._checkers = process.cluster.checkers
        self._rng = process.world.rng(name)
        self._batches = process.world.rng(f"{name}/batches")
        self._ledger_id = ledger_id
        self._lac: EntryId = NO_ENTRY
        self._at: EntryId = NO_ENTRY
        """How far it has read."""

    async def tail(self, client: Client) -> None:
        """Read entries as they are confirmed, up to the close."""
        while True:
            try:
                reader = await self._open(client)
                self._learned(reader)
                was_open = not reader.metadata.is_closed
                async for entry in reader.tail(self._at + 1):
                    self._learned(reader)
                    self._at = self._checkers.delivered(self._ledger_id, [entry], self._at, unconfirmed=False)
            except NoSuchLedgerError:
                return
            except DaybookError as error:
                await self._rest(error)
            else:
                self._has_ended(reader, was_open=was_open)
                return

    async def follow(self, client: Client) -> None:
        """Ask now and then, through one and the same reader."""
        try:
            reader = await self._opened(client)
            was_open = not reader.metadata.is_closed
            while not reader.metadata.is_closed:
                if await self._is_gone(client):
                    return
                await self._ask(reader)
            while self._at < reader.last_add_confirmed:
                await self._ask(reader)
            self._has_ended(reader, was_open=was_open)
        except NoSuchLedgerError:
            return

    async def _ask(self, reader: Reader) -> None:
        """Some time later, ask how far one may read, and perhaps read that."""
        await asyncio.sleep(2 * _PAUSE_S * self._rng.random())
        try:
            await reader.refresh(lenient=self._rng.random() < 0.5)
            self._learned(reader)
            if self._rng.random() < 0.5:
                await self._read(reader)
        except NoSuchLedgerError:
            raise
        except DaybookError as error:
            self._process.note(f"ledger {self._ledger_id}: {type(error).__name__}: {error}")

    async def _read(self, reader: Reader) -> None:
        """What is confirmed and was not read yet, at once or in small batches."""
        while self._batches.random() < 0.3 and self._at < reader.last_add_confirmed:
            limits = {
                "entries_max": self._batches.choice((1, 3, 100)),
                "bytes_max": self._batches.choice((1, 20, 1000)),
            }
            batch = await reader.read_batch(self._at + 1, **limits)
            self._at = self._checkers.delivered(self._ledger_id, batch, self._at, unconfirmed=False)
        async for batch in reader.read_batches(self._at + 1):
            self._at = self._checkers.delivered(self._ledger_id, batch, self._at, unconfirmed=False)

    async def recover(self, client: Client) -> None:
        """Recover the ledger and read all of it."""
        try:
            found = await client.ledgers.read(self._ledger_id, sync=True)
            if found.value.password_hash == KEY:
                self._checkers.ended(self._ledger_id, await client.recover(found.value))
                return
            reader = await client.open_ledger(self._ledger_id)
            self._learned(reader)
            await self._read(reader)
            self._has_ended(reader, was_open=False)
        except DaybookError as error:
            self._process.note(f"recovers nothing of ledger {self._ledger_id}: {error}")

    async def delete(self, client: Client) -> None:
        """Delete the ledger, if it is one of which the password is known."""
        try:
            found = await client.ledgers.read(self._ledger_id, sync=True)
            if found.value.password_hash != KEY:
                await client.delete_ledger(self._ledger_id)
                self._process.note(f"has deleted ledger {self._ledger_id}")
        except DaybookError as error:
            self._process.note(f"does not delete ledger {self._ledger_id}: {error}")

    # Parts

    async def _open(self, client: Client) -> Reader:
        return await client.open_ledger_unguarded(self._ledger_id)

    async def _opened(self, client: Client) -> Reader:
        while True:
            try:
                reader = await self._open(client)
            except NoSuchLedgerError:
                raise
            except DaybookError as error:
                await self._rest(error)
            else:
                self._learned(reader)
                return reader

    async def _rest(self, error: DaybookError) -> None:
        self._process.note(f"ledger {self._ledger_id}: {type(error).__name__}: {error}")
        await asyncio.sleep(_PAUSE_S)

    async def _is_gone(self, client: Client) -> bool:
        """Whether the ledger is deleted: a reader that only asks bookies would ask for ever."""
        try:
            await client.ledgers.read(self._ledger_id)
        except NoSuchLedgerError:
            return True
        except DaybookError:
            return False
        return False

    def _learned(self, reader: Reader) -> None:
        """How far this user may read, by one of its readers; another one's LAC is another matter."""
        lac = max(self._lac, reader.last_add_confirmed)
        self._checkers.reader_lac(self._ledger_id, self._lac, lac)
        self._lac = lac

    def _has_ended(self, reader: Reader, *, was_open: bool) -> None:
        """The reader says that it is closed, and has been read."""
        if not reader.metadata.is_closed:
            self._checkers.fail("a reader sees the close", f"{self._process.name}, ledger {self._ledger_id}")
        self._checkers.ended(self._ledger_id, reader.metadata)
        if was_open:
            self._process.world.tally.state("followed to the close")
        if self._at != reader.metadata.last_entry:
            what = (
                f"ledger {self._ledger_id} ends at {reader.metadata.last_entry}, it was read up to {self._at}"
            )
            self._checkers.fail("a reader comes to the end", what)


class OwnReadingUser(ReadingUser):
    """Reads a ledger through the handle that writes it, in the same process."""

    def __init__(self, process: "ShippedProcess", name: str, ledger: Ledger) -> None:
        super().__init__(process, name, ledger.id)
        self._ledger = ledger

    async def _open(self, client: Client) -> Reader:
        return self._ledger.reader()
