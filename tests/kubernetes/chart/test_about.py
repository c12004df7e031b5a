"""What the chart says of itself: its values' schema, helm's own lint, and the annotations that catalogs of charts show."""

import json
from typing import Any

import yaml

from tests.kubernetes.chart.conftest import CHART, Object
from tests.paths import ROOT


def test_every_value_is_in_the_schema_and_every_property_has_a_value() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

    def compare(value: Any, part: Object, path: str) -> None:
        if part.get("additionalProperties") is not False or not isinstance(value, dict) or not value:
            return
        assert value.keys() == part["properties"].keys() - {"global"}, path
        for name, inner in value.items():
            compare(inner, part["properties"][name], f"{path}.{name}")

    compare(values, schema, "")


def test_the_chart_passes_helms_own_lint(helm: Any) -> None:
    assert "0 chart(s) failed" in helm("lint", CHART)


def _description(crd: Object) -> str:
    return str(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"])


def test_what_the_chart_says_of_itself_holds() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    notes = about["annotations"]
    crds = {each["name"]: each["kind"] for each in yaml.safe_load(notes["artifacthub.io/crds"])}
    files = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in (ROOT / "crds").glob("*.yaml")]
    reconciled = [
        each for each in files if not _description(each).startswith("Schema only: nothing reconciles it")
    ]
    assert crds == {each["metadata"]["name"]: each["spec"]["names"]["kind"] for each in reconciled}
    assert crds.keys() == {"bookiepools.daybook.dev", "ledgers.daybook.dev", "topics.daybook.dev"}
    images = {each["image"] for each in yaml.safe_load(notes["artifacthub.io/images"])}
    assert images == {
        f"daybook-{target}:{about['appVersion']}" for target in ("operator", "bookie", "broker", "zookeeper")
    }
    assert [each["kind"] for each in yaml.safe_load(notes["artifacthub.io/crdsExamples"])] == [
        "BookiePool",
        "Ledger",
        "Topic",
    ]
