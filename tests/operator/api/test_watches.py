"""The watches begin whole: kopf looks once for what the API server serves, and one that starts does not serve all yet."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from daybook_operator.handlers import Seen, Watches
from daybook_operator.metrics import OperatorMetrics
from daybook_operator.settings import OperatorSettings
from kopf._cogs.clients import scanning

from tests.cluster.control_plane import ControlPlane
from tests.operator.api.operator_kit import ledger
from tests.operator.api.rest import Resources

pytestmark = [pytest.mark.integration]


def test_kinds_that_were_not_served_at_first_are_watched_all_the_same(
    control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan, scans = scanning.scan_resources, 0

    async def half_at_first(**how: Any) -> Iterable[Any]:
        nonlocal scans
        scans += 1
        found = await scan(**how)
        return found if scans > 1 else {each for each in found if each.group == ""}

    monkeypatch.setattr(scanning, "scan_resources", half_at_first)
    Resources(control_plane, namespace).create(ledger("orders"))

    async def watch() -> Seen:
        seen: asyncio.Future[Seen] = asyncio.get_running_loop().create_future()

        def note(each: Seen) -> None:
            if each.kind == "Ledger" and not seen.done():
                seen.set_result(each)

        def ended(why: str) -> None:
            seen.set_exception(AssertionError(why))

        settings = OperatorSettings(kubeconfig=control_plane.kubeconfig, namespaces=namespace)
        watches = Watches(settings, OperatorMetrics(), note, ended)
        watches.start()
        try:
            async with asyncio.timeout(60):
                return await seen
        finally:
            await watches.stop()

    seen = asyncio.run(watch())
    assert (seen.name, seen.pool) == ("orders", "bk")
    assert scans == 2
