"""What the tests of the auditor share: a judge, a listing of what the bookies have, and one ledger's audit."""

import random
from collections.abc import Iterable

from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import BookieId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policies import make_policy
from daybook.core.placement.policy import BookieInfo
from daybook.core.repair.judgement import Findings, LedgerAudit, LedgerJudge
from daybook.core.repair.plan import RepairPlan
from tests.unit.core.repair.repair_model import Cluster


def judge() -> LedgerJudge:
    """An auditor of single ledgers with the default policy."""
    return LedgerJudge(make_policy(), random.Random(1))


def up(names: str, **racks: str) -> dict[BookieId, BookieInfo]:
    """Registered bookies, one letter each; `racks` puts some of them into racks."""
    return {name: BookieInfo(name, rack=racks.get(name, "")) for name in names}


def listing(cluster: Cluster) -> dict[BookieId, IntervalSet]:
    """What every bookie of the cluster has."""
    listed = {}
    for name, bookie in cluster.bookies.items():
        listed[name] = IntervalSet()
        listed[name].add_ids(sorted(bookie.entries))
    return listed


def audit(metadata: LedgerMetadata, findings: Findings, *, grace_is_over: bool = False) -> LedgerAudit:
    return judge().audit(metadata, findings, grace_is_over=grace_is_over)


def successors(plans: Iterable[RepairPlan]) -> list[tuple[int, str, str]]:
    """(first entry, old, new) of every job."""
    return [(f.first_entry, j.old, j.target) for plan in plans for f in plan.fragments for j in f.jobs]
