"""What leaves the house in a report, and what does not."""

import io
import json
import tarfile

import pytest

from daybook.cli.kubectl.explain import explain
from daybook.cli.kubectl.report import HIDDEN, Redactor, bundle, node_names, pack
from daybook.cli.kubectl.world import World
from tests.unit.cli.kubectl.objects import bookie, condition, ledger, node, pod, pool


def world() -> World:
    """Objects with something to hide in every place."""
    keeper = pod("bk-1", ready=False)
    keeper["spec"]["containers"][0]["env"] = [
        {"name": "DAYBOOK_BOOKIE_ZOOKEEPER_DIGEST", "value": "user:sesame"},
        {"name": "DAYBOOK_BOOKIE_CLUSTER", "value": "daybook"},
    ]
    keeper["metadata"]["managedFields"] = [{"manager": "kubelet"}]
    keeper["metadata"]["annotations"] = {
        "daybook.dev/applied": "abc",
        "owner": "ann@example.org",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    }
    owned = ledger()
    owned["spec"]["customMetadata"] = {"customer": "a company"}
    away = bookie(1, state="Away", message="no answer from 10.1.2.3:3181 on worker-b")
    troubled = pool(bookie(0), away, bookie(2), conditions=[condition("Ready", "False", "Away")])
    return World([troubled], [owned], [keeper], nodes=[node(), node("worker-a"), node("worker-b2")])


def test_nothing_of_a_report_names_machines_addresses_or_secrets() -> None:
    logs = {
        "data.bk-1": 'worker-b 10.1.2.3 password=sesame token: "abc" {"secret": "sesame"} Authorization: Bearer xyz\n'
    }
    seen = world()
    files = bundle(seen, explain(seen), logs, {"daybook": "1"})
    everything = "\n".join(files.values())
    for secret in (
        "worker-b",
        "10.1.2.3",
        "10.0.0.7",
        "sesame",
        "ann@example.org",
        "a company",
        "account-1234",
        "xyz",
    ):
        assert secret not in everything, secret
    assert "managedFields" not in everything
    assert "private/thing" not in everything


def test_what_is_needed_to_understand_stays() -> None:
    seen = world()
    files = bundle(seen, explain(seen), {"data.bk-1": "from 10.1.2.3 and 127.0.0.1\n"}, {"daybook": "1"})
    (kept,) = json.loads(files["pods.json"])
    assert kept["metadata"]["annotations"] == {"daybook.dev/applied": "abc", "owner": HIDDEN}
    env = {each["name"]: each["value"] for each in kept["spec"]["containers"][0]["env"]}
    assert env == {"DAYBOOK_BOOKIE_ZOOKEEPER_DIGEST": HIDDEN, "DAYBOOK_BOOKIE_CLUSTER": "daybook"}
    (told,) = json.loads(files["bookiepools.json"])
    machine = told["status"]["bookies"][1]["node"]
    address = kept["status"]["podIP"]
    assert told["status"]["bookies"][1]["message"] == f"no answer from {address}:3181 on {machine}"
    assert files["logs/data.bk-1.log"] == f"from {address} and 127.0.0.1\n"
    assert json.loads(files["explain.json"])[0]["subject"] == "BookiePool data/bk"


def test_a_longer_name_is_not_half_redacted() -> None:
    redactor = Redactor(node_names(world()))
    first, second = redactor.text("worker-b worker-b2").split()
    assert first != second
    assert "worker" not in first + second
    assert redactor.text("my-worker-b") == "my-worker-b"


def test_a_private_key_and_versions() -> None:
    redactor = Redactor(())
    key = "-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----"
    assert redactor.text(f"a {key} b") == f"a {HIDDEN} b"
    assert redactor.text("kubelet 1.34.4 at 2026-05-04T10:00:00Z") == "kubelet 1.34.4 at 2026-05-04T10:00:00Z"
    assert redactor.text("fe80:0:0:1:2:3:4:5 10.0.0.1") == "ip-1 ip-2"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("podIP fd00:10:244::5 is FD00:10:244:0:0:0:0:5", "podIP ip-1 is ip-1"),
        ("no answer from [fd00::5]:3181: refused", "no answer from [ip-1]:3181: refused"),
        ("fd00::5: timed out, as fe80::1%eth0 and fd00::5.", "ip-1: timed out, as ip-2%eth0 and ip-1."),
        ("peer:fd00::5, ipv6:%5Bfd00::5%5D:3181", "peer:ip-1, ipv6:%5Bip-1%5D:3181"),
        ("2001:db8:1:2:3:4:5:6:3181 of fd00:10:244::/64", "ip-1:3181 of ip-2/64"),
        ("::ffff:10.0.0.1 is not a:b:10.0.0.1:3181", "ip-1 is not a:b:ip-2:3181"),
        ("[::1]:3181 and [::]:0 and 0.0.0.0", "[::1]:3181 and [::]:0 and 0.0.0.0"),
        (
            "12:21:43 10:00:00.123 2026-05-04T10:00:00Z a::b1c2d3",
            "12:21:43 10:00:00.123 2026-05-04T10:00:00Z a::b1c2d3",
        ),
        ("1.2.3.4.5 and 10.0.0.300 are none", "1.2.3.4.5 and 10.0.0.300 are none"),
    ],
)
def test_an_address_has_one_stand_in_however_it_is_written(text: str, said: str) -> None:
    assert Redactor(()).text(text) == said


def test_the_bundle_unpacks_into_one_folder() -> None:
    packed = pack({"a.json": "{}\n", "logs/x.log": "é\n"}, "report", 1_700_000_000)
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert sorted(tar.getnames()) == ["report/a.json", "report/logs/x.log"]
        unpacked = tar.extractfile("report/logs/x.log")
        assert unpacked is not None
        assert unpacked.read().decode() == "é\n"
