"""The operator's token at a real broker: the right one is enough to report and to delete; one that is refused is a condition that names it.

No text may contain a token: it would stand in a status, which many may read.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jwt
import pytest
from daybook_operator.clusters.link import ClusterLink
from daybook_operator.plan.effects import CreateTopic, DeleteTopic
from daybook_operator.plan.stored import Failure
from daybook_operator.plan.topic.plan import decide
from daybook_operator.reconcile.brokers import BrokerAccess, BrokerReports
from daybook_operator.reconcile.topic_changes import change_topic

from daybook.client.broker_admin import AdminError
from daybook.core.errors import NoSuchTopicError
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import PolicyLayer
from daybook.local.cluster import LocalCluster
from tests.unit.broker.admin.kit import Admin, admins, new_namespace
from tests.unit.operator.test_topic_plan import MANAGER, NOW_MS, REF, condition, created, going, kinds

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("no_brokers")]
"""Brokers that other tests left running would lead, and own the topics."""

SECRET = b"a secret of the tests, 32 bytes or more"
RESYNC_MS = 3_600_000


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """Those of brokers that ask for tokens, and let the role `operator` do everything."""
    file = tmp_path / "secret"
    file.write_bytes(SECRET)
    return {"authentication": ("token",), "token_secret_file": file, "superuser_roles": ("operator",)}


def token(role: str = "operator", secret: bytes = SECRET, **claims: Any) -> str:
    return jwt.encode({"sub": role, **claims}, secret, "HS256")


def access_with(tmp_path: Path, text: str) -> BrokerAccess:
    """As the operator has it from a Secret."""
    file = tmp_path / "token"
    file.write_text(text, encoding="utf-8")
    return BrokerAccess(file)


def link_to(admin: Admin) -> ClusterLink:
    """All that access to brokers needs of a link."""
    return cast("ClusterLink", SimpleNamespace(client=admin.broker.client))


async def used_topic(admin: Admin) -> TopicName:
    """A topic that the operator has created and that the broker has in memory."""
    name = TopicName(*new_namespace(), "orders")
    await change_topic(
        CreateTopic(REF, name, PolicyLayer(managed_by=MANAGER)), link_to(admin), BrokerAccess()
    )
    await admin.broker.ownership.lookup(name, authoritative=True)
    await admin.broker.registry.load(name, create=False)
    return name


def deletion_of(name: TopicName) -> DeleteTopic:
    return DeleteTopic(REF, name, is_partitioned=False, manager_uid=MANAGER.uid)


async def test_with_its_token_the_operator_reports_and_deletes(
    cluster: LocalCluster, settings: dict[str, Any], tmp_path: Path
) -> None:
    async with admins(cluster, 1, **settings) as (admin,):
        name, link = await used_topic(admin), link_to(admin)
        access = access_with(tmp_path, f"{token()}\n")
        found = await BrokerReports(access, RESYNC_MS).of(REF, link)
        assert found.silent == ""
        assert found.topics[str(name)].broker == admin.broker.settings.broker_id
        await change_topic(deletion_of(name), link, access)
        with pytest.raises(NoSuchTopicError):
            await admin.broker.topics.read(name, sync=True)
        await change_topic(deletion_of(name), link, access)  # one that is gone is no error


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: token(secret=b"x" * 32), "the token was not signed with HS256 and the key of this cluster"),
        (lambda: token(exp=int(time.time()) - 5), "the token has expired"),
        (lambda: token("stranger"), "role 'stranger' may not"),
        (lambda: "none", "what came as a token is no JWT"),
        (lambda: "", "this broker asks who you are"),
        (lambda: f"{token()}\n{token()}", "operator.brokerToken has to name a Secret with a token alone"),
        (lambda: f"{token()}ß", "operator.brokerToken has to name a Secret with a token alone"),
    ],
    ids=["another secret", "expired", "another role", "no JWT", "none", "two", "not ASCII"],
)
async def test_a_token_that_brokers_refuse_is_a_condition_and_the_deletion_waits(
    cluster: LocalCluster, settings: dict[str, Any], tmp_path: Path, make: Callable[[], str], words: str
) -> None:
    async with admins(cluster, 1, **settings) as (admin,):
        name, link = await used_topic(admin), link_to(admin)
        text = make()
        access = access_with(tmp_path, text)
        found = await BrokerReports(access, RESYNC_MS).of(REF, link)
        said = condition(decide(replace(created(), reports=found), NOW_MS), "BacklogHealthy")
        assert (said["status"], said["reason"]) == ("Unknown", "BrokersSilent")
        assert words in said["message"]
        assert "operator.brokerToken" in said["message"]

        with pytest.raises(AdminError) as refused:
            await change_topic(deletion_of(name), link, access)
        failure = Failure("DeleteTopic", str(refused.value))
        waits = decide(replace(going(created(), reclaimPolicy="Delete"), failure=failure), NOW_MS)
        assert "PatchMeta" not in kinds(waits), "the finalizer stays"
        assert condition(waits)["reason"] == "DeletionWaits"
        assert words in condition(waits)["message"]
        assert await admin.broker.topics.read(name, sync=True)
        for message in (said["message"], condition(waits)["message"]):
            assert len(text) < 40 or text[:40] not in message


async def test_a_token_file_that_is_not_there_is_a_condition(cluster: LocalCluster, tmp_path: Path) -> None:
    async with admins(cluster, 1) as (admin,):
        found = await BrokerReports(BrokerAccess(tmp_path / "gone"), RESYNC_MS).of(REF, link_to(admin))
    said = condition(decide(replace(created(), reports=found), NOW_MS), "BacklogHealthy")
    assert said["reason"] == "BrokersSilent"
    assert "the token or the CA for brokers cannot be read" in said["message"]
    assert str(tmp_path / "gone") in said["message"]
