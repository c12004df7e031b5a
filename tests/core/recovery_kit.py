"""What the tests of recovery share: a recovery with the first spare by name as its placement, run to its end."""

import random
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from daybook.core.errors import (
    NotEnoughBookiesError,
)
from daybook.core.events import (
    Recovered,
    RecoveryFailed,
)
from daybook.core.ids import BookieId
from daybook.core.metadata import LedgerMetadata
from daybook.core.placement import BookieInfo, RandomSource
from daybook.core.quorum import Quorum
from daybook.core.recovery import LedgerRecovery, RecoveryPolicy
from tests.core.small_cluster import LEDGER, Cluster, Run


class FirstSpare:
    """Placement that takes the first bookie by name, so that tests can tell which."""

    def choose(
        self,
        quorum: Quorum,
        bookies: Mapping[BookieId, BookieInfo],
        rng: RandomSource,
        *,
        exclude: AbstractSet[BookieId] = frozenset(),
        avoid: AbstractSet[BookieId] = frozenset(),
    ) -> tuple[BookieId, ...]:
        return tuple(sorted(bookies.keys() - exclude)[: quorum.ensemble_size])

    def replace(
        self,
        quorum: Quorum,
        ensemble: Sequence[BookieId],
        positions: AbstractSet[int],
        bookies: Mapping[BookieId, BookieInfo],
        rng: RandomSource,
        *,
        exclude: AbstractSet[BookieId] = frozenset(),
        avoid: AbstractSet[BookieId] = frozenset(),
    ) -> tuple[BookieId, ...]:
        free = sorted(bookies.keys() - exclude - set(ensemble))
        if len(free) < len(positions):
            msg = "too few"
            raise NotEnoughBookiesError(msg)
        changed = list(ensemble)
        for position, bookie in zip(sorted(positions), free, strict=False):
            changed[position] = bookie
        return tuple(changed)

    def problems(
        self, quorum: Quorum, ensemble: Sequence[BookieId], bookies: Mapping[BookieId, BookieInfo]
    ) -> Sequence[str]:
        return ()


def recovery_of(cluster: Cluster, policy: RecoveryPolicy | None = None) -> LedgerRecovery:
    return LedgerRecovery(
        LEDGER,
        placement=FirstSpare(),
        rng=random.Random(1),
        bookies={name: BookieInfo(name) for name in cluster.bookies if name not in cluster.down},
        policy=policy,
    )


def run_of(cluster: Cluster, policy: RecoveryPolicy | None = None) -> Run:
    machine = recovery_of(cluster, policy)
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
