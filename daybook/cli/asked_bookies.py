"""What `daybook metadata` asks of all bookies of a cluster."""

import asyncio
from collections.abc import Sequence
from typing import Final

import daybook
from daybook.cli.bookie import ask, bookie_info
from daybook.client.transport.calls import CALL_TIMEOUT_S
from daybook.core.errors import DaybookError
from daybook.core.ids import NO_ENTRY, BookieId, LedgerId
from daybook.wire import bookie_pb2 as pb

_POLL_S: Final = 0.1


class AskedBookies:
    """The bookies of a client. All methods raise DaybookError when one does not answer."""

    def __init__(self, client: "daybook.Client") -> None:
        """Ask through `client`."""
        self._client = client

    async def until_registered(self, bookies: Sequence[BookieId], timeout_s: float, next_step: str) -> None:
        """Wait for `bookies`. Raises DaybookError that names those that do not come, and the `next_step`."""
        try:
            async with asyncio.timeout(timeout_s):
                while not set(bookies) <= self._client.bookies().keys():  # noqa: ASYNC110 - a client's view has no event
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as error:
            missing = ", ".join(sorted(set(bookies) - self._client.bookies().keys()))
            msg = f"{missing} did not register within {timeout_s:g} s, and no ledger begins before their ids are known: {next_step}"
            raise DaybookError(msg) from error

    async def highest_held(self, bookies: Sequence[BookieId]) -> LedgerId:
        """The highest id that one of `bookies` has something of."""
        infos = [await bookie_info(self._client, bookie) for bookie in bookies]
        return max((info.highest_ledger for info in infos), default=NO_ENTRY)

    async def accept_roll_back(self, bookie: BookieId) -> None:
        """Let ledgers begin on a bookie that noticed the loss of ZooKeeper's data, once the counter of ids is above what it has.

        The hold keeps what it has, whatever the metadata lacks.
        """
        info = await bookie_info(self._client, bookie)
        if info.collection_refused:
            request = pb.AcceptRollBackRequest(highest_ledger=info.highest_ledger)
            answer = await ask(
                self._client, bookie, lambda stub: stub.accept_roll_back(request, timeout=CALL_TIMEOUT_S)
            )
            if not answer.accepted:
                msg = f"bookie {bookie} lets no ledger begin: {answer.detail}"
                raise DaybookError(msg)

    async def list_ledgers(self, bookie: BookieId, request: pb.ListLedgersRequest) -> pb.ListLedgersResponse:
        """A page of the ledgers of `bookie`."""
        return await ask(
            self._client, bookie, lambda stub: stub.list_ledgers(request, timeout=CALL_TIMEOUT_S)
        )

    async def intervals(
        self, bookie: BookieId, request: pb.EntryIntervalsRequest
    ) -> pb.EntryIntervalsResponse:
        """The entries that `bookie` has of a ledger."""
        return await ask(
            self._client, bookie, lambda stub: stub.entry_intervals(request, timeout=CALL_TIMEOUT_S)
        )
