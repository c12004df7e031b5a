"""Ledger resources against a real API server, ZooKeeper and bookies, with the operator as a process that may die."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from daybook_operator.plan.ledger.plan import RESOURCE_KEY
from kubernetes import client as kubernetes

from daybook.client.client import Client
from daybook.core.errors import AlreadyAttachedError, UnauthorizedError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.local.zookeeper import EmbeddedZooKeeper
from daybook.metadata.instance import ensure_cluster
from daybook.metadata.layout import Layout
from tests.cluster.control_plane import ControlPlane
from tests.kubernetes.api.operator_kit import (
    OperatorProcess,
    another_operator,
    bookies,
    condition,
    die_before_every_effect,
    ledger,
    pool,
    until,
    with_client,
)
from tests.kubernetes.api.rest import RefusedError, Resources
from tests.unit.bookie.service.process_kit import BookieProcess, with_store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

_NUMBERS = count(1)


@dataclass
class Site:
    """A namespace with a pool whose bookies run as processes; the pool itself is left alone. The cluster has its name."""

    plane: ControlPlane
    resources: Resources
    zookeeper: str
    directory: Path
    bookies: list[BookieProcess]

    @property
    def namespace(self) -> str:
        return self.resources.namespace

    def operator(self, **settings: str) -> OperatorProcess:
        """Another operator process of this namespace, not started."""
        return another_operator(self.plane, self.namespace, self.directory, self.zookeeper, **settings)

    def get(self, name: str) -> dict[str, Any]:
        """The resource; {} if it is gone."""
        return self.resources.find("Ledger", name)

    def status(self, name: str) -> dict[str, Any]:
        return self.get(name).get("status") or {}

    def ledgers(self) -> list[LedgerMetadata]:
        """All ledgers of the cluster."""

        async def read(client: Client) -> list[LedgerMetadata]:
            return [found.value async for found in client.list_ledgers()]

        return with_client(self.zookeeper, self.namespace, read)

    def ledgers_for(self, name: str) -> list[LedgerId]:
        """The ledgers that were ever created for a resource of this name and not deleted."""
        asked_by = f"{self.namespace}/{name}".encode()
        return [
            each.ledger_id for each in self.ledgers() if each.custom_metadata.get(RESOURCE_KEY) == asked_by
        ]

    def events(self, name: str) -> dict[str, str]:
        """The messages of a resource's events, by reason."""
        with self.plane.api() as api:
            found = kubernetes.CoreV1Api(api).list_namespaced_event(self.namespace).items
        return {each.reason: each.message for each in found if each.involved_object.name == name}


@pytest.fixture(scope="module")
def site(
    control_plane: ControlPlane, zookeeper_server: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    zookeeper = zookeeper_server.connect_string
    namespace = f"ledgers-{os.getpid()}-{next(_NUMBERS)}"  # a worker may come back to this module
    control_plane.kubectl("create", "namespace", namespace)
    with_store(zookeeper, lambda store: ensure_cluster(store, Layout(namespace), created_at_ms=0))
    directory = tmp_path_factory.mktemp("ledgers")
    running = bookies(directory, zookeeper, namespace, namespace)
    resources = Resources(control_plane, namespace)
    try:
        for each in running:
            each.wait()
        resources.create(pool("bk", zookeeper, namespace, is_paused=True))
        yield Site(control_plane, resources, zookeeper, directory, running)
    finally:
        for each in running:
            each.end()
        control_plane.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture
def operator(site: Site) -> Iterator[OperatorProcess]:
    """A running operator."""
    process = site.operator()
    process.start()
    yield process
    process.end()


def seal(site: Site, name: str) -> None:
    site.plane.kubectl(
        "patch", "ledger", name, "-n", site.namespace, "--type=merge", "-p", '{"spec":{"seal":true}}'
    )


def test_a_ledger_is_created_written_sealed_and_mirrored(site: Site, operator: OperatorProcess) -> None:
    site.resources.create(ledger("life", customMetadata={"team": "blue"}))
    until(lambda: site.status("life").get("state") == "Open", operator, "it is created")
    status = site.status("life")
    ledger_id = status["ledgerId"]
    assert status["quorum"] == "3/3/2"
    assert status["attached"] is False
    assert sorted(status["fragments"][0]["bookies"]) == [f"{site.namespace}.bk-{n}" for n in range(3)]
    assert sorted(status["fragments"][0]["racks"]) == [f"zone-{n}/rack-{n}" for n in range(3)]
    assert status["rackCount"] == 3
    life = site.get("life")
    assert condition(life, "Ready")["reason"] == "Created"
    assert condition(life, "RackDiverse")["status"] == "True"
    assert condition(life, "Sealed")["status"] == "False"

    async def write(client: Client) -> None:
        writing = await client.attach_ledger(ledger_id)
        await writing.append_many([b"x" * 100] * 10)
        with pytest.raises(AlreadyAttachedError):  # rule 53
            await client.attach_ledger(ledger_id)
        found = await client.ledgers.read(ledger_id)
        assert found.value.custom_metadata["team"] == b"blue"

    with_client(site.zookeeper, site.namespace, write)
    until(lambda: site.status("life").get("attached") is True, operator, "the attach is mirrored, by a watch")
    seal(site, "life")
    until(lambda: site.status("life").get("state") == "Closed", operator, "it is sealed")
    status = site.status("life")
    assert (status["lastEntry"], status["lengthBytes"]) == (9, 1000)
    until(
        lambda: condition(site.get("life"), "FullyReplicated").get("status") == "True",
        operator,
        "an audit has looked at it",
    )
    sealed = condition(site.get("life"), "Sealed")
    assert (sealed["status"], sealed["reason"]) == ("True", "Closed")
    assert site.status("life")["underReplicated"] is False
    assert site.get("life")["status"]["observedGeneration"] == 2


def test_a_ledger_that_clients_made_is_adopted_sealed_and_given_up(
    site: Site, operator: OperatorProcess
) -> None:
    async def make(client: Client) -> LedgerId:
        writing = await client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=1)
        await writing.append_many([b"x" * 10] * 3)
        return writing.id

    ledger_id = with_client(site.zookeeper, site.namespace, make)
    before = {each.ledger_id for each in site.ledgers()}
    site.resources.create(ledger("found", ledgerId=ledger_id))
    until(lambda: site.status("found").get("ledgerId") == ledger_id, operator, "it is adopted")
    assert site.status("found")["quorum"] == "2/2/1", "its own, whatever the resource's defaults are"
    assert {each.ledger_id for each in site.ledgers()} == before, "and none was created"
    seal(site, "found")
    until(lambda: site.status("found").get("lastEntry") == 2, operator, "it is sealed")
    site.resources.delete("Ledger", "found")
    until(lambda: site.get("found") == {}, operator, "the resource goes")
    assert ledger_id in {each.ledger_id for each in site.ledgers()}, (
        "and the ledger stays, by reclaimPolicy Retain"
    )


def test_a_ledger_that_a_resource_has_survives_another_that_asks_for_it(
    site: Site, operator: OperatorProcess
) -> None:
    site.resources.create(ledger("first"))
    until(lambda: site.status("first").get("ledgerId") is not None, operator, "it is created")
    ledger_id = site.status("first")["ledgerId"]
    operator.end()
    site.resources.create(ledger("another", ledgerId=ledger_id, reclaimPolicy="Delete"))
    operator.start()  # it reconciles both at once
    until(
        lambda: condition(site.get("another"), "Ready").get("reason") == "ResourceConflict",
        operator,
        "it is refused",
    )
    site.resources.delete("Ledger", "another")
    until(lambda: site.get("another") == {}, operator, "the resource goes")
    assert ledger_id in {each.ledger_id for each in site.ledgers()}


def test_a_ledger_has_the_password_of_its_secret(site: Site, operator: OperatorProcess) -> None:
    site.resources.create(ledger("guarded", passwordSecretRef={"name": "orders"}))
    until(
        lambda: condition(site.get("guarded"), "Ready").get("reason") == "PasswordNotReadable",
        operator,
        "it waits for the Secret",
    )
    assert 'secrets "orders" not found' in condition(site.get("guarded"), "Ready")["message"]
    secret = {"apiVersion": "v1", "kind": "Secret", "stringData": {"password": "hunter2"}}
    site.plane.apply([{**secret, "metadata": {"name": "orders", "namespace": site.namespace}}])
    until(lambda: site.status("guarded").get("state") == "Open", operator, "it is created")

    async def write(client: Client) -> None:
        with pytest.raises(UnauthorizedError):
            await client.attach_ledger(site.status("guarded")["ledgerId"])
        writing = await client.attach_ledger(site.status("guarded")["ledgerId"], password=b"hunter2")
        await writing.append(b"kept")
        await writing.close()

    with_client(site.zookeeper, site.namespace, write)
    assert "hunter2" not in operator.log.read_text()
    assert "hunter2" not in json.dumps(site.get("guarded"))


def test_an_operator_that_dies_before_any_effect_creates_each_ledger_once(site: Site) -> None:
    names = [f"born-{number}" for number in range(9)]
    effects = die_before_every_effect(
        site.operator,
        names,
        about=lambda name: rf"{name}\b",
        begin=lambda name: site.resources.create(ledger(name)),
        is_done=lambda name: condition(site.get(name), "Ready").get("status") == "True",
    )
    assert effects[:3] == ["PatchMeta", "Report", "CreateLedger"]
    assert effects[-1] == "SetStatus"
    for name in names[: len(effects) + 1]:
        assert site.ledgers_for(name) == [site.status(name)["ledgerId"]], name
        assert site.events(name)["Creating"].startswith("Creating a ledger on")


def test_an_operator_that_dies_before_any_effect_seals_and_deletes_all_the_same(
    site: Site, operator: OperatorProcess
) -> None:
    names = [f"sealed-{number}" for number in range(8)]
    for name in names:
        site.resources.create(ledger(name, reclaimPolicy="Delete"))
    until(
        lambda: all(site.status(name).get("ledgerId") is not None for name in names),
        operator,
        "all are there",
    )
    ids = {name: site.status(name)["ledgerId"] for name in names}

    async def write(client: Client) -> None:
        for ledger_id in ids.values():
            await (await client.attach_ledger(ledger_id)).append(b"kept")

    with_client(site.zookeeper, site.namespace, write)
    assert operator.end() == 0

    sealing = die_before_every_effect(
        site.operator,
        names,
        about=lambda name: rf"{name}\b|ledger_id={ids[name]}\b",
        begin=lambda name: seal(site, name),
        is_done=lambda name: condition(site.get(name), "Sealed").get("status") == "True",
    )
    assert sealing[:2] == ["Report", "SealLedger"]
    for name in names[: len(sealing) + 1]:
        assert site.status(name)["lastEntry"] == 0, "what was acknowledged is there"

    uids = {name: site.get(name)["metadata"]["uid"] for name in names}
    deleting = die_before_every_effect(
        site.operator,
        names,
        about=lambda name: rf"{name}\b|ledger_id={ids[name]}\b|{uids[name]}",
        begin=lambda name: site.resources.delete("Ledger", name),
        is_done=lambda name: site.get(name) == {},
    )
    assert deleting == ["DeleteLedger", "ForgetRequest", "Report", "PatchMeta"]
    left = {each.ledger_id for each in site.ledgers()}
    assert not left & {ids[name] for name in names[: len(deleting) + 1]}


def test_what_others_write_into_the_status_is_repaired(site: Site, operator: OperatorProcess) -> None:
    site.resources.create(ledger("drift"))
    until(lambda: site.status("drift").get("state") == "Open", operator, "it is created")
    lie = {
        "apiVersion": "daybook.dev/v1alpha1",
        "kind": "Ledger",
        "metadata": {"name": "drift"},
        "status": {"state": "Closed", "ledgerId": 99},
    }
    with pytest.raises(RefusedError, match=r"conflict.*daybook-operator"):
        site.resources.apply(lie, manager="somebody", part="status")
    site.resources.apply(lie, manager="somebody", part="status", force=True)
    until(lambda: site.status("drift").get("state") == "Open", operator, "the truth is written again")
    assert site.status("drift")["ledgerId"] != 99


def test_retain_keeps_the_ledger(site: Site, operator: OperatorProcess) -> None:
    site.resources.create(ledger("kept"))
    until(lambda: site.status("kept").get("state") == "Open", operator, "it is created")
    ledger_id = site.status("kept")["ledgerId"]
    site.resources.delete("Ledger", "kept")
    until(lambda: site.get("kept") == {}, operator, "it is gone")
    assert ledger_id in {each.ledger_id for each in site.ledgers()}
    site.resources.create(ledger("kept"))
    until(lambda: site.status("kept").get("state") == "Open", operator, "another resource of the same name")
    assert site.status("kept")["ledgerId"] != ledger_id, "is another request"


def test_a_paused_ledger_is_left_alone(site: Site, operator: OperatorProcess) -> None:
    paused = ledger("rests")
    paused["metadata"]["annotations"] = {"daybook.dev/pause": "true"}
    site.resources.create(paused)
    until(lambda: condition(site.get("rests"), "Paused").get("status") == "True", operator, "it says so")
    assert site.status("rests").get("ledgerId") is None
    site.plane.kubectl("annotate", "ledger", "rests", "-n", site.namespace, "daybook.dev/pause-")
    until(lambda: site.status("rests").get("state") == "Open", operator, "it goes on")
    assert condition(site.get("rests"), "Paused")["status"] == "False"
