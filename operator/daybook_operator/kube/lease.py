"""Which of several operators leads: a Lease of coordination.k8s.io, as client-go's leader election keeps it.

A standby trusts no clock but its own: it takes the Lease over once the record has not changed for the whole duration
that it names. A leader that cannot renew gives up a whole renewal before that, and its process ends, since it is not
known which of its requests are still under way. Writes to ZooKeeper are compare-and-set by version all the same, so that
even a leader that lives too long does no harm.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from daybook.core.errors import DaybookError
from daybook.runtime.clock import monotonic_ms, monotonic_s, sleep_until, timeout_at, unix_ms
from daybook.runtime.logs import get_logger
from daybook_operator.kube.api import ConflictError, Kube, KubeError, Object

_LOG: Final = get_logger(__name__)


class LeadershipLostError(DaybookError):
    """Another process may lead by now: this one must end."""


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Times in milliseconds; `identity` is this process and no other."""

    namespace: str
    name: str
    identity: str
    duration_ms: int
    renew_ms: int


class LeaderLease:
    """`acquire`, then `hold` for as long as this process is to lead, then `release`."""

    def __init__(
        self,
        kube: Kube,
        settings: LeaseSettings,
        now_ms: Callable[[], int] = monotonic_ms,
        on_answer: Callable[[], None] = lambda: None,
    ) -> None:
        """Nothing happens yet. `on_answer` is called after each read of the Lease that was answered."""
        self._on_answer = on_answer
        self._kube = kube
        self._settings = settings
        self._now_ms = now_ms
        self._seen: tuple[str, int] | None = None
        self._mine: Object | None = None
        self._renewed_ms = 0

    async def acquire(self) -> None:
        """Return once this process leads."""
        while True:
            try:
                if await self._try():
                    _LOG.info("leading", identity=self._settings.identity)
                    return
            except ConflictError:
                continue  # another process was faster: read at once which
            except KubeError as error:
                _LOG.warning("the Lease cannot be read or taken", why=str(error))
            await asyncio.sleep(self._settings.renew_ms / 1000)

    async def hold(self) -> None:
        """Renew for ever. Raises LeadershipLostError."""
        while True:
            await sleep_until(monotonic_s() + self._settings.renew_ms / 1000)
            try:
                async with timeout_at(monotonic_s() + self._left_ms() / 1000):
                    await self._renew()
            except TimeoutError:
                _LOG.warning("the API server took too long to renew the Lease")
            except ConflictError as error:
                now = await self._find_or_none()
                if now is None or _holder(now) != self._settings.identity:
                    msg = f"the Lease belongs to {_holder(now) if now else 'no process'}: {error}"
                    raise LeadershipLostError(msg) from error
                self._mine = now
            except KubeError as error:
                _LOG.warning("the Lease could not be renewed", why=str(error), left_ms=self._left_ms())
            if self._left_ms() <= 0:
                msg = f"the Lease was not renewed for {self._settings.duration_ms} ms: another operator may lead by now"
                raise LeadershipLostError(msg)

    async def release(self) -> None:
        """Let another take over at once, if this process still leads."""
        if self._mine is None:
            return
        self._mine = None
        try:
            # read anew: a renewal that was cut short may have been carried out
            now = await self._kube.find("Lease", self._settings.namespace, self._settings.name)
            if now is not None and _holder(now) == self._settings.identity:
                free = {**now["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                await self._kube.replace({**now, "spec": free})
        except KubeError as error:
            _LOG.info("the Lease was not released and expires", why=str(error))

    def _left_ms(self) -> int:
        """How long this process certainly leads: a renewal less than the duration, for what clocks and requests take."""
        return self._renewed_ms + self._settings.duration_ms - self._settings.renew_ms - self._now_ms()

    async def _try(self) -> bool:
        """Read the Lease once; take it if it is free."""
        settings = self._settings
        now = await self._kube.find("Lease", settings.namespace, settings.name)
        began_ms = self._now_ms()
        self._on_answer()
        if now is None:
            made = await self._kube.create(self._record(None))
            return self._leads(made, began_ms)
        holder = _holder(now)
        if holder and holder != settings.identity and not self._is_over(now, began_ms):
            return False
        return self._leads(await self._kube.replace(self._record(now)), began_ms)

    def _is_over(self, record: Object, now_ms: int) -> bool:
        version = record["metadata"]["resourceVersion"]
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now_ms)
        duration_s = record["spec"].get("leaseDurationSeconds") or 0
        return now_ms - self._seen[1] > duration_s * 1000

    async def _renew(self) -> None:
        assert self._mine is not None
        began_ms = self._now_ms()
        self._leads(await self._kube.replace(self._record(self._mine)), began_ms)

    def _leads(self, record: Object, began_ms: int) -> bool:
        self._mine = record
        self._renewed_ms = began_ms
        return True

    async def _find_or_none(self) -> Object | None:
        try:
            return await self._kube.find("Lease", self._settings.namespace, self._settings.name)
        except KubeError:
            return None

    def _record(self, before: Object | None) -> Object:
        """The Lease as this process holds it."""
        settings = self._settings
        old: dict[str, Any] = {} if before is None else before.get("spec") or {}
        is_new = old.get("holderIdentity") != settings.identity
        spec = {
            "holderIdentity": settings.identity,
            "leaseDurationSeconds": -(-settings.duration_ms // 1000),
            "acquireTime": _micro_time() if is_new else old.get("acquireTime", _micro_time()),
            "renewTime": _micro_time(),
            "leaseTransitions": (old.get("leaseTransitions") or 0) + (is_new and before is not None),
        }
        meta = (
            {"name": settings.name, "namespace": settings.namespace} if before is None else before["metadata"]
        )
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


def _holder(record: Object) -> str:
    return str((record.get("spec") or {}).get("holderIdentity") or "")


def _micro_time() -> str:
    return datetime.fromtimestamp(unix_ms() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
