"""The pods of a cluster's bookies, whichever pool they belong to: a bookie's id names its namespace and its pod."""

import asyncio
from collections.abc import Collection, Iterable

from daybook.core.ids import BookieId
from daybook_operator.kube.api import Kube
from daybook_operator.plan.pool.observed import ObservedPod
from daybook_operator.reconcile.listing import if_allowed
from daybook_operator.reconcile.pool_objects import observed_pod

_LABELS = "app.kubernetes.io/component=bookie"


async def pods_of(
    kube: Kube, bookies: Iterable[BookieId], namespaces: Collection[str]
) -> dict[BookieId, ObservedPod]:
    """The pods of `bookies` in those of their namespaces that are among `namespaces`; others run elsewhere. Raises KubeError."""
    wanted = frozenset(bookies)
    asked = sorted({bookie.partition(".")[0] for bookie in wanted} & set(namespaces))
    found = await asyncio.gather(
        *(if_allowed(kube.listing("Pod", namespace, labels=_LABELS), []) for namespace in asked)
    )
    return {
        bookie: observed_pod(pod)
        for namespace, pods in zip(asked, found, strict=True)
        for pod in pods
        if (bookie := f"{namespace}.{pod['metadata']['name']}") in wanted
    }
