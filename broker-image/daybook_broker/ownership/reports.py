"""The reports of this broker's load: how busy its process is, and with which bundles.

A report is a write to ZooKeeper that every broker reads, so it is made when something changed: the load by more than a little, or the
number of bundles; and now and then in any case, so that the costs of bundles do not get too old.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from daybook.core.errors import MetadataUnavailableError
from daybook.core.topics.ownership.load import BrokerLoad, report_of
from daybook.metadata.store.store import NoNodeError
from daybook.runtime.clock import monotonic_s, timeout_at
from daybook.runtime.logs import get_logger
from daybook_broker.ownership.api import Measure

log = get_logger(__name__)

BUSY_CHANGE: Final = 0.05
"""A load that changed by less is reported with the next one."""
REPORT_AGE_S_MAX: Final = 30.0
NEW_BUNDLES_S: Final = 1.0
"""How long reports of a changed number of bundles are gathered."""


class Reports:
    """Measures and reports, for ever."""

    def __init__(
        self,
        measure: Measure,
        send: Callable[[BrokerLoad], Awaitable[None]],
        report_s: float,
        cpu_s: Callable[[], float],
    ) -> None:
        """`send` writes a report, or raises MetadataUnavailableError; `cpu_s` is the CPU time that the process has used."""
        self._measure = measure
        self._cpu_s = cpu_s
        self._send = send
        self._report_s = report_s
        self._sent = BrokerLoad()
        self._sent_s = 0.0

    async def run(self, bundles_changed: asyncio.Event) -> None:
        """Report whenever there is something to report; `bundles_changed` is set when a bundle came or went."""
        seen = (monotonic_s(), self._cpu_s())
        while True:
            try:
                async with timeout_at(seen[0] + self._report_s):
                    await bundles_changed.wait()
                async with timeout_at(monotonic_s() + min(NEW_BUNDLES_S, self._report_s)):
                    await asyncio.Event().wait()
            except TimeoutError:
                bundles_changed.clear()
            now = (monotonic_s(), self._cpu_s())
            busy = (now[1] - seen[1]) / max(now[0] - seen[0], 1e-3)
            seen = now
            await self._report(report_of(busy, dict(self._measure())), now[0])

    async def _report(self, load: BrokerLoad, now_s: float) -> None:
        is_news = abs(load.busy - self._sent.busy) >= BUSY_CHANGE or load.bundles != self._sent.bundles
        if not is_news and now_s - self._sent_s < REPORT_AGE_S_MAX:
            return
        try:
            await self._send(load)
        except (MetadataUnavailableError, NoNodeError) as error:
            log.warning("the load could not be reported", why=str(error))
        else:
            self._sent, self._sent_s = load, now_s
