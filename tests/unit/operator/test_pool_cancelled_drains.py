"""Drains that are cancelled: the bookie stays and takes new ledgers again, whatever happened on the way."""

import pytest

from tests.unit.operator.pool_sim import grown, kinds


@pytest.mark.parametrize("effects", [0, 1, 2, 3])
def test_a_drain_that_an_operator_began_before_it_died_can_be_cancelled(effects: int) -> None:
    """A bookie keeps that it is read-only, so nothing of a drain is done that the status does not have yet."""
    sim = grown(replicas=4)
    sim.ledgers = {1: ("data.bk-2", "data.bk-3")}
    sim.manifest["spec"]["replicas"] = 3
    for _ in range(2):
        sim.reconcile(effects)
        assert sim.bookies["data.bk-3"].writable or "drain" in sim.manifest["status"]
    sim.manifest["spec"]["replicas"] = 4
    sim.settle(4)
    assert sim.bookies["data.bk-3"].writable
    assert "drain" not in sim.manifest["status"]


def test_a_disk_that_is_lost_while_its_drain_is_cancelled_is_replaced() -> None:
    sim = grown(replicas=4)
    sim.ledgers = {1: ("data.bk-2", "data.bk-3")}
    sim.manifest["spec"]["replicas"] = 3
    for _ in range(3):
        sim.reconcile()
    assert sim.manifest["status"]["drain"]["bookie"] == "data.bk-3"
    sim.lose_disk(3)
    sim.manifest["spec"]["replicas"] = 4
    sim.settle(60)
    assert sim.bookies["data.bk-3"].writable
    assert "drain" not in sim.manifest["status"]


def test_a_pool_that_is_to_hibernate_begins_no_drain() -> None:
    """Its bookies stop, and one that was made read-only at the last moment would come back so."""
    sim = grown(replicas=4)
    sim.manifest["spec"] |= {"replicas": 3, "hibernate": True}
    sim.settle(6)
    assert sim.manifest["status"]["phase"] == "Hibernated"
    sim.manifest["spec"] |= {"replicas": 4, "hibernate": False}
    sim.settle(8)
    assert all(info.writable for info in sim.bookies.values())


def test_a_drain_is_called_off_by_raising_replicas_until_the_cookie_is_gone() -> None:
    sim = grown(replicas=4)
    sim.ledgers = {1: ("data.bk-2", "data.bk-3")}
    sim.manifest["spec"]["replicas"] = 3
    for _ in range(3):
        sim.reconcile()
    assert sim.leaving == {1: "data.bk-3"}
    sim.manifest["spec"]["replicas"] = 4
    effects = sim.reconcile().effects
    assert {"UnmarkLeaving", "SetReadOnly"} <= set(kinds(effects))
    sim.reconcile()
    assert sim.bookies["data.bk-3"].writable
    assert "drain" not in sim.manifest["status"]
    assert sim.condition("Draining")["reason"] == "Cancelled"


def test_a_drain_that_is_called_off_waits_for_a_bookie_that_is_away_to_be_told() -> None:
    sim = grown(replicas=4)
    sim.ledgers = {1: ("data.bk-2", "data.bk-3")}
    sim.manifest["spec"]["replicas"] = 3
    for _ in range(3):
        sim.reconcile()
    sim.crash(3)
    sim.manifest["spec"]["replicas"] = 4
    for _ in range(3):
        sim.reconcile()
    assert sim.leaving == {}
    assert "drain" in sim.manifest["status"]
    assert "once it is registered" in sim.condition("Draining")["message"]
    sim.kubelet(3)
    assert not sim.bookies["data.bk-3"].writable, "it keeps what it was told"
    sim.reconcile()
    sim.reconcile()
    assert sim.bookies["data.bk-3"].writable
    assert sim.condition("Draining")["reason"] == "Cancelled"
