"""One look at a pool: observe, plan, perform.

A drain whose step fails (a bookie that does not answer) is told in the status and holds up nothing else: the plan is
made again without it.
"""

from typing import Final

from daybook.runtime.logs import get_logger
from daybook_operator.kube import Object
from daybook_operator.plan.decision import sooner
from daybook_operator.plan.effects import DeleteCookie, MarkLeaving, SetReadOnly, UnmarkLeaving
from daybook_operator.plan.pool_decide import audit_wanted_since_ms, decide
from daybook_operator.plan.pool_world import PoolWorld
from daybook_operator.queue import Key
from daybook_operator.reconcile.performer import EffectError
from daybook_operator.reconcile.pool_observe import PoolObserver
from daybook_operator.reconcile.world import World

_LOG: Final = get_logger(__name__)
_OF_A_DRAIN: Final = (SetReadOnly, MarkLeaving, UnmarkLeaving, DeleteCookie)
_AGAIN_S: Final = 10.0
_ROUNDING_MS: Final = 1_000
"""The status tells in whole seconds when an audit began, rounded down."""


class PoolReconciler:
    """Looks at pools, one call for each look."""

    def __init__(self, world: World) -> None:
        """Nothing is read yet."""
        self._world = world
        self._observer = PoolObserver(world)

    async def reconcile(self, key: Key) -> float | None:
        """Look at the pool, and do what is to be done; when to look again. Raises KubeError, EffectError."""
        manifest: Object | None = await self._world.kube.find(key.kind, key.namespace, key.name)
        if manifest is None:
            self._world.inventory.remove_pool(key.namespace, key.name)
            return None
        seen = await self._observer.observe(manifest)
        if seen.cluster_ref.zookeeper:
            self._world.inventory.add_pool(key.namespace, key.name, seen.cluster_ref)
        self._want_audit(seen)
        decision = decide(seen, self._world.now_ms())
        try:
            return await self._world.performer.carry_out(decision)
        except EffectError as error:
            if not isinstance(error.effect, _OF_A_DRAIN):
                raise
            _LOG.warning("a step of a drain failed", pool=str(key), why=str(error))
            without = decide(seen, self._world.now_ms(), drain_failure=str(error.cause))
            return sooner(await self._world.performer.carry_out(without), _AGAIN_S)

    def _want_audit(self, seen: PoolWorld) -> None:
        link = self._world.clusters.find(seen.cluster_ref)
        since_ms = audit_wanted_since_ms(seen, self._world.now_ms())
        if link is not None and since_ms is not None:
            link.want_full_audit(after_ms=since_ms + _ROUNDING_MS)
