"""Every metric that an alert or the dashboard names exists: in docs/metrics.md, or in the operator's registry."""

import json
import re
from typing import Final

import pytest
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.service.roles import ROLES_OF_CALLS, Gate
from daybook_bookie.settings import Enforcement
from daybook_broker.metrics import BrokerMetrics
from daybook_operator.metrics import OperatorMetrics
from prometheus_client import CollectorRegistry
from prometheus_client.samples import Sample

from daybook.autorecovery.metrics import AuditorMetrics, WorkerMetrics
from daybook.runtime.metrics import new_registry
from tests.kubernetes.chart.conftest import CHART
from tests.paths import ROOT

_NAME: Final = re.compile(r"\b(?:daybook|zk|process|python)_[a-z0-9_]+\b")
_ROW: Final = re.compile(r"^\| `(\w+)` \| (counter|gauge|histogram)", re.MULTILINE)
_INCREASE: Final = re.compile(r"\bincrease\((\w+?)(?:\{(\w+)=\"(\w+)\"\})?\[")


def expressions() -> dict[str, list[str]]:
    """PromQL of the alerts and of the dashboard's panels, by title."""
    rules = (CHART / "templates" / "monitoring" / "rules.yaml").read_text(encoding="utf-8")
    alerts = re.findall(r"- alert: (\w+)\n\s+expr: (.*)", rules)
    found = {f"alert {name}": [expression] for name, expression in alerts}
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        if panel["type"] != "row":
            found[f"panel {panel['title']}"] = [target["expr"] for target in panel["targets"]]
    return found


def samples(name: str, kind: str) -> set[str]:
    """What is scraped of a metric."""
    if kind == "counter":
        return {f"{name.removesuffix('_total')}_total"}
    if kind == "histogram":
        return {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    return {name}


def of_registry(registry: CollectorRegistry) -> set[str]:
    return {
        sample
        for family in registry.collect()
        for sample in samples(
            family.name, family.type if family.type in ("counter", "histogram") else "gauge"
        )
    }


def documented() -> set[str]:
    """The metrics of docs/metrics.md; those of a bookie are written there without their prefix."""
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    found: set[str] = set()
    for name, kind in _ROW.findall(text):
        whole = name if name.startswith(("daybook_", "zk_", "process_")) else f"daybook_bookie_{name}"
        found |= samples(whole, kind)
    return found


def known() -> set[str]:
    operator, auditor, worker = OperatorMetrics(), CollectorRegistry(), CollectorRegistry()
    AuditorMetrics(auditor)
    WorkerMetrics(worker)
    registries = (operator.registry, auditor, worker, new_registry())
    return documented().union(*map(of_registry, registries))


def test_the_brokers_metrics_of_the_documentation_are_those_of_brokers() -> None:
    """Gauges are shown by whoever has the figure; all else is in the registry at once."""
    registry = CollectorRegistry()
    BrokerMetrics(registry)
    sources = (ROOT / "broker-image").rglob("*.py")
    shown = re.findall(
        r'\bmetrics\.show\(\s*"(\w+)"', "".join(path.read_text(encoding="utf-8") for path in sources)
    )
    exist = of_registry(registry) | {f"daybook_broker_{name}" for name in shown}
    assert {name for name in documented() if name.startswith("daybook_broker_")} == exist


def at_the_start() -> list[Sample]:
    """What a bookie that asks for certificates and a broker show before anything happened."""
    bookie, broker = CollectorRegistry(), CollectorRegistry()
    gate = Gate("c", Enforcement.AUTO, BookieMetrics(bookie), certificate=None, asks_for_certificates=True)
    for call in ROLES_OF_CALLS:
        gate.guarded(call, lambda *_: None)
    BrokerMetrics(broker)
    return [sample for each in (bookie, broker) for family in each.collect() for sample in family.samples]


def test_an_alert_sees_the_first_event_since_its_counters_are_there_before() -> None:
    """The increase over a series that begins at 1 is 0."""
    found = {
        title: counter
        for title, (expression, *_) in expressions().items()
        if title.startswith("alert") and (counter := _INCREASE.search(expression))
    }
    assert len(found) >= 4
    for title, counter in found.items():
        name, label, value = counter.groups()
        shown = [each.labels for each in at_the_start() if each.name == name]
        assert any(label is None or each[label] == value for each in shown), title


def test_there_are_alerts_and_panels() -> None:
    assert len([title for title in expressions() if title.startswith("alert")]) >= 24
    assert len([title for title in expressions() if title.startswith("panel")]) >= 40


@pytest.mark.parametrize("title", expressions())
def test_it_names_metrics_that_exist(title: str) -> None:
    for expression in expressions()[title]:
        names = set(_NAME.findall(expression))
        assert names, f"no metric in {expression}"
        assert names <= known(), f"unknown: {sorted(names - known())}"


@pytest.mark.parametrize("title", [title for title in expressions() if title.startswith("alert")])
def test_an_alert_says_what_to_do(title: str) -> None:
    rules = (CHART / "templates" / "monitoring" / "rules.yaml").read_text(encoding="utf-8")
    block = rules.split(f"- {title.replace('alert ', 'alert: ')}\n")[1].split("- alert:")[0]
    assert re.search(r"summary: .+", block)
    assert re.search(r"description: .{30,}", block)
    assert re.search(r"severity: (warning|critical)", block)
