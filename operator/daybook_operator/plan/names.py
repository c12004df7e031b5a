"""Names that stay on objects of Kubernetes: the API group, labels, annotations, the finalizer. None of them may change."""

from typing import Final

GROUP: Final = "daybook.dev"
API_VERSION: Final = f"{GROUP}/v1alpha1"
FIELD_MANAGER: Final = "daybook-operator"
MANAGED_BY: Final = "daybook-operator"
FINALIZER: Final = f"{GROUP}/operator"

# Annotations that people set.
PAUSE: Final = f"{GROUP}/pause"
RESTART: Final = f"{GROUP}/restart"
"""On a pool: another value rolls its bookies, one by one, as a change of the spec does."""

ADOPT: Final = f"{GROUP}/adopt"
"""On a Topic: "true" lets it take over a topic that a client made."""

# Labels.
POOL_LABEL: Final = f"{GROUP}/pool"
"""On everything that belongs to a pool."""
RACK_LABEL: Final = f"{GROUP}/rack"
"""On a bookie's pod; the disruption budgets of racks select by it."""
CLUSTER_LABEL: Final = f"{GROUP}/cluster"
"""On recovery Jobs."""

JOB_LABEL: Final = f"{GROUP}/job"
"""On CronJobs, their Jobs and pods: what the job is called."""

# Annotations that the operator sets.
OWNER_ANNOTATION: Final = f"{GROUP}/owner-uid"
"""On volume claims: the pool that first made them."""
APPLIED_ANNOTATION: Final = f"{GROUP}/applied"
"""A digest of what was applied, by which a field that is wanted no longer is noticed."""
CLUSTER_ANNOTATION: Final = f"{GROUP}/cluster"
"""`<cluster>@<zookeeper>`: on a Ledger, where its ledger is, for when the pool that said so is gone; on a recovery Job."""
TASKS_ANNOTATION: Final = f"{GROUP}/tasks"
"""On a recovery Job: the keys of the tasks that it was made for."""
TEMPLATE_ANNOTATION: Final = f"{GROUP}/template"
"""On a recovery Job: a digest of its pod, without the ledgers, by which a Job of before a change of the spec is noticed."""


def pool_in_cluster(namespace: str, pool: str) -> str:
    """A pool as its bookies' ids, policies and ledgers name it: ordinals follow (`daybook.core.ids.pool_of`)."""
    return f"{namespace}.{pool}"
