"""What every reconcile works with, and what it is: observe, plan, perform."""

from collections.abc import Callable
from dataclasses import dataclass

from daybook.runtime.clock import unix_ms
from daybook_operator.clusters.clusters import Clusters
from daybook_operator.kube.api import Kube
from daybook_operator.kube.queue import Key
from daybook_operator.metrics import OperatorMetrics
from daybook_operator.plan.pool.spec import PoolDefaults
from daybook_operator.reconcile.inventory import Inventory
from daybook_operator.reconcile.performer import Performer
from daybook_operator.settings import OperatorSettings


@dataclass(frozen=True, slots=True)
class Services:
    """`enqueue` has a key reconciled soon; `now_ms` is the wall clock, which plans get as an argument."""

    kube: Kube
    clusters: Clusters
    performer: Performer
    settings: OperatorSettings
    metrics: OperatorMetrics
    inventory: Inventory
    enqueue: Callable[[Key], None]
    now_ms: Callable[[], int] = unix_ms

    @property
    def pool_defaults(self) -> PoolDefaults:
        """What pools get where their spec leaves it to the operator."""
        settings = self.settings
        suffix = f".{settings.cluster_domain}" if settings.cluster_domain else ""
        return PoolDefaults(
            settings.bookie_image,
            settings.zookeeper,
            settings.cluster,
            suffix,
            settings.finalizers,
            settings.finalizer_bound_ms,
            settings.spark_image,
            settings.jobs_account,
        )
