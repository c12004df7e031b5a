"""ZooKeeper's address moves only to where the very same cluster answers, and everything follows."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from daybook_operator.plan.effects import ClusterRef, Report, SetStatus
from daybook_operator.plan.pool.cluster_settings import (
    FORMER_MAX,
    SILENT_MS,
    is_where_it_was,
    metadata_record,
    other_address,
    why_not_moved,
)
from daybook_operator.plan.pool.decide import decide
from daybook_operator.plan.pool.observed import ObservedAddress
from daybook_operator.plan.pool.spec import cluster_of
from daybook_operator.plan.pool.state import Recovery
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.operator.pool_sim import DEFAULTS, PoolSim, grown

NEW = "zk-0.zk:2281,zk-1.zk:2281"


@pytest.fixture
def sim() -> PoolSim:
    """A pool at zk:2181 whose spec names another address."""
    made = grown()
    made.manifest["spec"]["metadata"] = {"zookeeper": NEW}
    return made


def looked_at(sim: PoolSim, **seen: Any) -> PoolSim:
    """One look that finds this at the new address."""
    boots = {bookie: info.boot_id for bookie, info in sim.bookies.items()}
    found = ObservedAddress(NEW, **{"instance_id": "instance-1", "boots": boots, **seen})
    for each in decide(replace(sim.world(), address=found), sim.now_ms).effects:
        sim.perform(each)
    return sim


def test_the_same_ensemble_at_another_address_is_taken_and_the_bookies_roll(sim: PoolSim) -> None:
    assert sim.world().cluster_ref.zookeeper == "zk:2181", "the status' word holds until then"
    assert other_address(sim.manifest, sim.world().cluster_ref) == NEW
    looked_at(sim)
    assert [each.message for each in sim.told if each.reason == "ZooKeeperMoved"]
    known = sim.manifest["status"]["metadata"]
    assert known == {
        "zookeeper": NEW,
        "cluster": "daybook",
        "instanceId": "instance-1",
        "formerZookeepers": ["zk:2181"],
    }
    assert sim.world().cluster_ref == ClusterRef(NEW, "daybook")
    assert other_address(sim.manifest, sim.world().cluster_ref) == ""
    sim.settle(60)
    assert sim.manifest["status"]["phase"] == "Running"
    assert sim.stateful_set is not None
    (container,) = sim.stateful_set["spec"]["template"]["spec"]["containers"]
    values = {each["name"]: each.get("value") for each in container["env"]}
    assert values["DAYBOOK_BOOKIE_ZOOKEEPER"] == NEW
    assert {pod.revision for pod in sim.pods.values()} == {sim.revision}


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ({"instance_id": "instance-2"}, "another cluster answers there"),
        ({"instance_id": "", "boots": {}, "error": "there is no cluster 'daybook'"}, "there is no cluster"),
        ({"boots": {}}, "other bookies are registered there"),
        ({"boots": {"data.bk-0": "boot-of-yesterday"}}, "for example a copy"),
    ],
    ids=["another cluster", "no answer", "a copy without bookies", "a copy with old ones"],
)
def test_what_is_not_the_same_is_reported_and_nothing_moves(
    sim: PoolSim, seen: dict[str, Any], why: str
) -> None:
    before = sim.manifest["status"]["metadata"]
    looked_at(sim, **seen)
    told = sim.condition("ClusterSettingsAccepted")
    assert (told["status"], told["reason"]) == ("False", "ZooKeeperNotAccepted")
    assert why in told["message"]
    assert sim.manifest["status"]["metadata"] == before
    assert sim.condition("Ready")["status"] == "True", "the pool goes on where it is"


def test_an_address_that_died_is_left_for_the_one_that_the_cluster_was_restored_at(sim: PoolSim) -> None:
    sim.has_zookeeper = False
    looked_at(sim, boots={})
    assert sim.manifest["status"]["metadata"]["zookeeper"] == "zk:2181", (
        "one look without an answer proves nothing"
    )
    assert "does not answer now" in sim.condition("ClusterSettingsAccepted")["message"]
    sim.now_ms += SILENT_MS - 2_000
    looked_at(sim, boots={})
    assert sim.manifest["status"]["metadata"]["zookeeper"] == "zk:2181"
    sim.now_ms += 4_000
    looked_at(sim, boots={})
    assert sim.manifest["status"]["metadata"]["zookeeper"] == NEW
    other = grown()
    other.manifest["spec"]["metadata"] = {"zookeeper": NEW}
    other.has_zookeeper = False
    looked_at(other, instance_id="instance-2", boots={})
    other.now_ms += 2 * SILENT_MS
    looked_at(other, instance_id="instance-2", boots={})
    assert other.manifest["status"]["metadata"]["zookeeper"] == "zk:2181"


def test_an_address_without_an_answer_is_left_at_once_for_where_its_bookies_are(sim: PoolSim) -> None:
    sim.has_zookeeper = False
    looked_at(sim)
    assert sim.manifest["status"]["metadata"]["zookeeper"] == NEW


def test_a_copy_is_refused_also_at_a_reconcile_that_the_ensemble_does_not_answer(sim: PoolSim) -> None:
    copy = {"data.bk-0": "boot-of-yesterday"}
    looked_at(sim, boots=copy)
    sim.has_zookeeper = False
    looked_at(sim, boots=copy)
    assert sim.manifest["status"]["metadata"]["zookeeper"] == "zk:2181"


def test_a_pool_that_never_reached_a_zookeeper_takes_what_is_named_next() -> None:
    sim = PoolSim()
    sim.has_zookeeper = False
    sim.manifest["spec"]["metadata"] = {"zookeeper": "typo:2181"}
    sim.reconcile()
    assert sim.world().cluster_ref.zookeeper == "typo:2181"
    sim.manifest["spec"]["metadata"] = {"zookeeper": NEW}
    looked_at(sim, instance_id="", boots={}, error="there is no cluster 'daybook' in this ZooKeeper")
    assert sim.world().cluster_ref.zookeeper == NEW


def test_a_pool_of_an_older_operator_has_to_be_known_first(sim: PoolSim) -> None:
    del sim.manifest["status"]["metadata"]["instanceId"]
    sim.has_zookeeper = False
    seen = replace(sim.world(), address=ObservedAddress(NEW, "instance-1"))
    assert seen.recovery != Recovery()
    (status,) = [each.status for each in decide(seen, sim.now_ms).effects if isinstance(each, SetStatus)]
    assert status["metadata"]["zookeeper"] == "zk:2181"
    sim.has_zookeeper = True
    looked_at(sim)
    assert sim.manifest["status"]["metadata"]["zookeeper"] == NEW


@given(
    st.sampled_from(["", "a", "b"]),
    st.sampled_from(["", "a", "b"]),
    st.booleans(),
    st.none() | st.dictionaries(st.sampled_from(["b0", "b1"]), st.sampled_from(["x", "y"])),
    st.dictionaries(st.sampled_from(["b0", "b1"]), st.sampled_from(["x", "y"])),
    st.booleans(),
    st.sampled_from([0, SILENT_MS - 1, SILENT_MS]),
)
def test_nobody_who_was_reached_moves_to_another_cluster_or_to_a_copy_beside_it(
    known: str,
    found: str,
    was_reached: bool,
    boots: dict[str, str] | None,
    there: dict[str, str],
    had_these: bool,
    silent_ms: int,
) -> None:
    seen = ObservedAddress(NEW, found, there, error="" if found else "no answer")
    moves = not why_not_moved(
        seen,
        instance_id=known,
        was_reached=was_reached,
        boots=boots,
        had_these=had_these,
        silent_ms=silent_ms,
    )
    if known or was_reached:
        assert not moves or (known == found != "" and boots in (None, there))
        assert not moves or boots or (boots is None and (had_these or silent_ms >= SILENT_MS))


def test_former_addresses_are_few_and_the_present_one_is_none_of_them() -> None:
    known: dict[str, Any] = {}
    addresses = [f"zk-{number}:2181" for number in range(12)]
    for old, new in pairwise(addresses):
        known = metadata_record(ClusterRef(old, "daybook"), new, "i", known)
    assert known["formerZookeepers"] == addresses[-2 : -2 - FORMER_MAX : -1]
    back = metadata_record(ClusterRef(addresses[-1], "daybook"), addresses[-2], "i", known)
    assert back["formerZookeepers"][0] == addresses[-1]
    assert addresses[-2] not in back["formerZookeepers"]


def test_a_ledger_follows_its_pool_and_not_a_pool_of_the_same_name_elsewhere(sim: PoolSim) -> None:
    noted = ClusterRef("zk:2181", "daybook")
    looked_at(sim)
    now = cluster_of(sim.manifest, DEFAULTS)
    assert is_where_it_was(sim.manifest, noted, now)
    assert not is_where_it_was(sim.manifest, ClusterRef("zk:2181", "other"), now)
    made_anew = PoolSim()
    made_anew.manifest["spec"]["metadata"] = {"zookeeper": NEW}
    assert not is_where_it_was(made_anew.manifest, noted, cluster_of(made_anew.manifest, DEFAULTS))
    assert not [each for each in made_anew.told if isinstance(each, Report)]
