"""How bookies and recovery Jobs are let in by a ZooKeeper that asks for TLS and a user: by settings that they know."""

from typing import Any

import pytest
from daybook_bookie.settings import BookieSettings
from daybook_operator.clusters.clusters import Clusters
from daybook_operator.clusters.context import LinkContext
from daybook_operator.metrics import LabelledRegistries
from daybook_operator.plan.effects import Apply, ClusterRef
from daybook_operator.plan.pool.objects import stateful_set
from daybook_operator.plan.pool.spec import spec_of
from daybook_operator.plan.recovery.jobs import ObservedTask
from daybook_operator.plan.recovery.plan import ObservedRecovery, decide_recovery
from daybook_operator.settings import OperatorSettings

from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.core.errors import MetadataUnavailableError
from daybook.metadata.store.environment import zookeeper_options
from daybook.metadata.store.zookeeper import ZooKeeperOptions, ZooKeeperStore
from tests.unit.operator.pool_facts import pool_manifest
from tests.unit.operator.pool_sim import DEFAULTS, PoolSim

ACCESS = {
    "tls": {"secretName": "zk-client", "clientAuth": "Required", "x509Owners": ["CN=a,O=x", "CN=b"]},
    "digestSecretRef": {"name": "zk-user", "key": "login"},
}


def bookies_pod(**spec: Any) -> dict[str, Any]:
    found = stateful_set(PoolSim(pool_manifest(**spec)).world(), 3)["spec"]["template"]["spec"]
    assert isinstance(found, dict)
    return found


def jobs_pod(**spec: Any) -> dict[str, Any]:
    manifest = pool_manifest(**spec)
    seen = ObservedRecovery(ClusterRef("zk:2181", "daybook"), (ObservedTask(3, 0, 1, ("lost data.bk-0",)),))
    plan = decide_recovery(
        manifest, spec_of(manifest, DEFAULTS), seen, 9_000, poll_s=1, needless_ms=1, operator_speaks_tls=False
    )
    (job,) = [e.manifest for e in plan.effects if isinstance(e, Apply) and e.manifest["kind"] == "Job"]
    found = job["spec"]["template"]["spec"]
    assert isinstance(found, dict)
    return found


def variables(pod: dict[str, Any], prefix: str) -> dict[str, str]:
    """Those of ZooKeeper, without the prefix; what a Secret has is read by the kubelet."""
    (container,) = pod["containers"]
    return {
        each["name"].removeprefix(prefix): each.get("value", "me:secret")
        for each in container["env"]
        if each["name"].startswith(prefix)
    }


@pytest.mark.parametrize("make", [bookies_pod, jobs_pod])
def test_files_come_from_the_secret_and_nothing_secret_is_in_the_manifest(make: Any) -> None:
    pod = make(zookeeperAccess=ACCESS)
    (container,) = pod["containers"]
    (volume,) = [each for each in pod["volumes"] if each["name"] == "zookeeper-tls"]
    assert volume["secret"] == {"secretName": "zk-client", "defaultMode": 0o440}
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "zookeeper-tls"]
    assert mount["readOnly"] is True
    (digest,) = [each for each in container["env"] if each["name"].endswith("ZOOKEEPER_DIGEST")]
    assert digest["valueFrom"] == {"secretKeyRef": {"name": "zk-user", "key": "login"}}
    assert "value" not in digest
    files = [each["value"] for each in container["env"] if "ZOOKEEPER_TLS_" in each["name"]]
    assert len(files) == 3
    assert all(file.startswith(f"{mount['mountPath']}/") for file in files)


def test_a_bookie_and_a_job_connect_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    for access in (ACCESS, {"tls": {"secretName": "ca-alone"}}, {"digestSecretRef": {"name": "u"}}):
        of_job = variables(jobs_pod(zookeeperAccess=access), "DAYBOOK_ZOOKEEPER_")
        of_bookie = variables(bookies_pod(zookeeperAccess=access), "DAYBOOK_BOOKIE_ZOOKEEPER_")
        assert of_job == of_bookie
        known = {name.removeprefix("zookeeper_").upper() for name in BookieSettings.model_fields}
        assert of_bookie.keys() <= known
        with monkeypatch.context() as environment:
            for name, value in of_job.items():
                environment.setenv(f"DAYBOOK_ZOOKEEPER_{name}", value)
            found = zookeeper_options()
        assert found.tls is ("tls" in access)
        assert bool(found.auth) is ("digestSecretRef" in access)
        assert bool(found.cert_file) is (access is ACCESS)
        owners = [acl.id.id for acl in found.acl or () if acl.id.scheme == "x509"]
        assert owners == (["CN=a,O=x", "CN=b"] if access is ACCESS else [])


def test_without_it_nothing_is_mounted_or_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for pod in (bookies_pod(), jobs_pod()):
        assert "zookeeper-tls" not in {each["name"] for each in pod["volumes"]}
    assert variables(bookies_pod(), "DAYBOOK_BOOKIE_ZOOKEEPER_") == {}
    assert zookeeper_options() == ZooKeeperOptions()


@pytest.mark.parametrize(
    ("zookeeper", "is_shown"),
    [
        ("zk-0:2181,zk-1:2181", True),
        ("zk-1:2181,zk-0:2181/tenant", True),
        ("zk-1:2181", True),
        ("zk-0:2181,elsewhere:2181", False),
        ("zk-0:2181,zk-1:2181,elsewhere:2181", False),
        ("elsewhere:2181", False),
        ("/tenant", False),
    ],
)
async def test_the_operator_shows_its_credentials_to_its_own_zookeeper_alone(
    zookeeper: str, is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYBOOK_ZOOKEEPER_DIGEST", "user:secret")
    shown: list[ZooKeeperOptions] = []

    async def opened(_hosts: str, options: ZooKeeperOptions) -> ZooKeeperStore:
        shown.append(options)
        raise MetadataUnavailableError("nobody is there")

    monkeypatch.setattr(ZooKeeperStore, "open", opened)
    settings = OperatorSettings(zookeeper="zk-0:2181,zk-1:2181")
    context = LinkContext(
        settings,
        AutoRecoverySettings(),
        "operator",
        LabelledRegistries("cluster"),
        lambda _: None,
        lambda *_: None,
    )

    clusters = Clusters(context)
    with pytest.raises(MetadataUnavailableError):
        await clusters.link(ClusterRef(zookeeper, "daybook"))
    await clusters.close()
    (options,) = shown
    assert options.auth == ((("digest", "user:secret"),) if is_shown else ())
    assert (options.acl is not None) == is_shown
