"""Ensembles of Ledger resources: drawn by UID, the same when drawn twice, and each bookie has its share of them."""

import uuid
from collections import Counter

import pytest
from daybook_operator.plan.draws import Draws

from daybook.core.placement.policies import make_policy
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import Quorum

DRAWS = 400
TOLERANCE = 0.12
"""Five standard deviations of the share of one bookie."""


def test_each_of_five_bookies_is_in_three_of_five_ensembles() -> None:
    bookies = {f"b{n}": BookieInfo(f"b{n}", zone=f"zone-{n}", rack=f"rack-{n}") for n in range(5)}
    policy, quorum = make_policy(), Quorum(3, 3, 2)
    share: Counter[str] = Counter()
    for number in range(DRAWS):
        uid = str(uuid.UUID(int=number * 7919))
        drawn = policy.choose(quorum, bookies, Draws(uid))
        assert drawn == policy.choose(quorum, bookies, Draws(uid))
        share.update(drawn)
    for bookie in bookies:
        assert share[bookie] / DRAWS == pytest.approx(3 / 5, abs=TOLERANCE), bookie
