"""What all links share, and how each part of a link runs: begun again whenever it ends."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from daybook.autorecovery.cluster import is_set_within
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.core.errors import MetadataUnavailableError
from daybook.core.ids import LedgerId
from daybook.runtime.logs import get_logger
from daybook_operator.metrics import LabelledRegistries
from daybook_operator.plan.effects import ClusterRef
from daybook_operator.settings import OperatorSettings

_LOG: Final = get_logger(__name__)
_RETRY_MS: Final = 1_000

OnChange = Callable[[ClusterRef], None]
OnLedger = Callable[[ClusterRef, LedgerId], None]


@dataclass(frozen=True, slots=True)
class LinkContext:
    """`name`: this process. `on_change`: bookies, tasks or audits of a cluster changed; `on_ledger`: a ledger of it did."""

    settings: OperatorSettings
    auditing: AutoRecoverySettings
    name: str
    registries: LabelledRegistries
    on_change: OnChange
    on_ledger: OnLedger


async def run_until(
    stop: asyncio.Event, part: str, ref: ClusterRef, work: Callable[[], Awaitable[None]]
) -> None:
    """Run `work` again and again until `stop`: ZooKeeper may be unavailable, and a defect must not end the other parts."""
    while not stop.is_set():
        try:
            await work()
        except MetadataUnavailableError:
            _LOG.warning("ZooKeeper does not answer", cluster=str(ref), part=part)
        except Exception:  # noqa: BLE001 - a defect in one part must not end the others, and is logged
            _LOG.exception("a part of a link failed", cluster=str(ref), part=part)
        if not stop.is_set():
            await is_set_within(stop, _RETRY_MS)
