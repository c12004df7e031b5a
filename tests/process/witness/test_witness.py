"""What of the witnesses can be tested without their downloads: they have all cases, their pins fit, and a silent witness is a failure."""

import hashlib
import json
import re
from pathlib import Path
from urllib.request import urlopen

import pytest
from rich.console import Console

from tests.fixtures.brokers import Brokers
from tests.paths import ROOT
from tests.process.witness.clients import GO, JAVA, WitnessError, check_jars, go_version, java_version, pins
from tests.process.witness.lookups import MisleadingLookups
from tests.process.witness.report import CASES, Sighting, parse, table, whole


def test_each_witness_has_every_case_in_the_same_order() -> None:
    java = "".join(
        (JAVA / f"{name}.java").read_text("utf-8")
        for name in ("Publishing", "Subscriptions", "Positions", "Topics", "Moves")
    )
    go = "".join(
        (GO / f"{name}.go").read_text("utf-8")
        for name in ("publishing", "subscriptions", "positions", "topics", "moves")
    )
    assert tuple(re.findall(r'cases\.put\("(.+?)",', java)) == CASES
    assert tuple(re.findall(r'^\t\{"(.+?)", \w+\},$', go, re.MULTILINE)) == CASES


def test_the_jars_of_the_clients_are_pinned() -> None:
    names = pins()
    assert f"pulsar-client-{java_version()}.jar" in names
    assert all(re.fullmatch(r"[0-9a-f]{64}", checksum) for checksum in names.values())


def test_the_page_names_the_versions_of_the_witnesses() -> None:
    page = (ROOT / "docs" / "pulsar.md").read_text("utf-8")
    assert f"Java {java_version()}" in page
    assert f"Go {go_version()}" in page


def test_a_jar_that_is_changed_missing_or_too_many_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_bytes(b"a")
    (tmp_path / "b.jar").write_bytes(b"b")
    good = {"a.jar": hashlib.sha256(b"a").hexdigest(), "b.jar": hashlib.sha256(b"b").hexdigest()}
    check_jars(tmp_path, good)
    with pytest.raises(WitnessError, match=r"b\.jar, c\.jar"):
        check_jars(tmp_path, {**good, "b.jar": "0" * 64, "c.jar": "0" * 64})
    (tmp_path / "d.jar").touch()
    with pytest.raises(WitnessError, match=r"d\.jar"):
        check_jars(tmp_path, good)


def test_a_case_that_a_witness_does_not_report_is_a_failure() -> None:
    line = json.dumps({"case": "reader", "good": True, "ms": 1200, "saw": "all"})
    assert parse("a log line") is None
    seen = parse(line)
    assert seen == Sighting("reader", good=True, ms=1200, saw="all")
    found = whole([seen], ["reader", "chunks"])
    assert [each.good for each in found] == [True, False]
    console = Console(width=120, record=True)
    console.print(table({"Java": found, "Go": found}))
    text = console.export_text()
    assert text.count("WRONG") == 2
    assert "1.2 s" in text


@pytest.mark.integration
def test_lookups_name_the_wrong_broker_every_other_time(brokers: Brokers) -> None:
    path = "/lookup/v2/topic/persistent/public/default/misled"
    with MisleadingLookups(brokers.cluster.brokers) as lookups:
        named = []
        for _ in range(4):
            with urlopen(f"{lookups.url}{path}") as answer:
                named.append(json.loads(answer.read())["brokerUrl"])
    assert named[0] == named[2] != named[1] == named[3]
    assert lookups.misled == 2
    assert set(named) == {brokers.entry(each).service_url for each in brokers.ids}
