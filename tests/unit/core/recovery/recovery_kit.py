"""What the tests of recovery share: a recovery with the first spare by name as its placement, run to its end."""

import random

from daybook.core.effects import Recovered, RecoveryFailed
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policy import BookieInfo
from daybook.core.recovery.policy import RecoveryPolicy
from daybook.core.recovery.recovery import LedgerRecovery
from tests.unit.core.in_order import InOrder
from tests.unit.core.one_ledger import LEDGER
from tests.unit.core.small_cluster import Cluster, Run


def recovery_of(
    cluster: Cluster, policy: RecoveryPolicy | None = None, expected_version: int | None = None
) -> LedgerRecovery:
    return LedgerRecovery(
        LEDGER,
        placement=InOrder(),
        rng=random.Random(1),
        bookies={name: BookieInfo(name) for name in cluster.bookies if name not in cluster.down},
        policy=policy,
        expected_version=expected_version,
    )


def run_of(
    cluster: Cluster, policy: RecoveryPolicy | None = None, expected_version: int | None = None
) -> Run:
    machine = recovery_of(cluster, policy, expected_version)
    return Run(cluster, machine.step, machine.start())


def recover(cluster: Cluster, policy: RecoveryPolicy | None = None) -> LedgerMetadata:
    """Run a recovery to its end; its close."""
    result = run_of(cluster, policy).finish()[-1]
    assert isinstance(result, Recovered), result
    return result.metadata


def refusal(cluster: Cluster) -> Exception:
    """Run a recovery that must refuse; why it did."""
    result = run_of(cluster).finish()[-1]
    assert isinstance(result, RecoveryFailed), result
    return result.error


# Rules


SHAPES = [(6, 3, 2), (3, 3, 2), (3, 2, 2), (3, 2, 1), (4, 3, 3), (5, 5, 3)]
