"""docs/slo.md is what the records make of it, and the records are of tests that exist."""

import re

from tests.paths import ROOT
from tools.slo.cases import cases
from tools.slo.kubernetes import INTERRUPTIONS, KUBERNETES
from tools.slo.page import PAGE, RECORDS, load, page


def test_the_page_is_made_of_the_records() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(load()), "write it anew: make slo, or its --page-only"


def test_every_record_is_of_a_test_that_is_there() -> None:
    for test in sorted({record["test"] for record in load()}):
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), test


def test_every_loss_and_every_case_was_measured_in_every_run() -> None:
    records = [record for record in load(RECORDS) if record["kind"] != "broker"]
    runs = {record["run"] for record in records}
    for run in sorted(runs):
        mine = [record for record in records if record["run"] == run]
        found = {(r["ensemble"], r["write"], r["ack"], r["lost"]) for r in mine if r["kind"] == "matrix"}
        assert found == {(case.ensemble, case.write, case.ack, case.lost) for case in cases()}
        assert len([r for r in mine if r["kind"] == "loss"]) == 6


def test_every_loss_of_a_broker_was_measured_in_every_run_with_all_topics() -> None:
    brokers = [record for record in load() if record["kind"] == "broker"]
    for run in sorted({record["run"] for record in brokers}):
        assert sorted(each["topics"] for each in brokers if each["run"] == run) == [1, 1, 1000]


def test_a_slow_take_over_shows_on_the_page() -> None:
    records = load()
    record = next(r for r in records if r["kind"] == "broker")
    record["resumed_ms"] = 77_000
    assert "77.0 s" in page(records)


def test_the_page_says_of_how_many_runs_its_figures_are() -> None:
    one = [{**record, "run": 1} for record in load()]
    assert "the median" not in page(one).partition("## RPO and RTO")[0]
    assert "Times are of one run, on" in page(one)
    assert "one run of all cases." in page(one)
    two = page([*one, *({**record, "run": 2} for record in one)])
    assert "Times are the median and the maximum of 2 runs, on" in two
    assert "2 runs of all cases, all with the same outcome." in two
    assert "runs them" not in two, "the command repeats as often as it is asked to"


def test_a_loss_shows_on_the_page() -> None:
    records = load()
    before = page(records)
    record = next(r for r in records if r["kind"] == "loss")
    record["lost"] += 7
    after = page(records)
    assert after != before
    assert " | 7 | " in after


def test_a_case_that_comes_out_differently_shows_on_the_page() -> None:
    records = load()
    case = next(r for r in records if r["kind"] == "matrix" and (r["ensemble"], r["lost"]) == (3, 1))
    assert "differs" not in page(records)
    assert "differs" in page([*records, {**case, "reads": False}])


def test_the_figures_of_pods_and_nodes_are_those_of_the_run_that_the_kubernetes_page_has() -> None:
    steps = {
        cells[1]: cells[3]
        for line in (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8").splitlines()
        if len(cells := [cell.strip() for cell in line.split("|")]) > 3
    }
    for each in INTERRUPTIONS:
        assert each.figure in steps[each.step].replace("*", ""), each.step
        assert not each.asked or f"asked: {each.asked.removesuffix(' s')})" in steps[each.step], each.step
    installed = steps["`helm install`, quickstart.yaml, brokers by `helm upgrade`"]
    (took,) = re.findall(r"from `helm install` to the first message consumed \*\*(\S+) s\*\*", installed)
    assert f"took {took} s" in KUBERNETES
