"""Specs as the operator parses them: the fields, the choices and the defaults are those of crds/*.yaml."""

from collections.abc import Iterator
from typing import Any, get_args

import pytest
import yaml
from daybook_operator.plan.ledger.spec import LedgerSpec
from daybook_operator.plan.pool.spec import PoolDefaults, PoolSpec, own_spec, spec_of
from daybook_operator.plan.spec_part import SpecError, SpecPart, parse_spec
from daybook_operator.plan.topic.spec import TopicSpec
from pydantic.fields import FieldInfo

from tests.paths import ROOT
from tests.unit.operator.pool_facts import pool_manifest

Schema = dict[str, Any]
NOTHING: tuple[Any, ...] = (None, "", {}, [], ())


def schema_of(kind: str) -> Schema:
    crd = yaml.safe_load((ROOT / "crds" / f"{kind}.yaml").read_text(encoding="utf-8"))
    found: Schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def parts(model: type[SpecPart], schema: Schema, place: str) -> Iterator[tuple[str, type[SpecPart], Schema]]:
    """The model of each object of the schema that has properties."""
    yield place, model, schema
    for field in model.model_fields.values():
        if (inner := inner_model(field)) is not None:
            name = str(field.alias)
            yield from parts(inner, schema["properties"][name], f"{place}.{name}")


def inner_model(field: FieldInfo) -> type[SpecPart] | None:
    choices = (field.annotation, *get_args(field.annotation))
    return next((each for each in choices if isinstance(each, type) and issubclass(each, SpecPart)), None)


def choices_of(field: FieldInfo) -> list[Any]:
    """The values of a choice, whether or not it may be left out."""
    given = get_args(field.annotation)
    return list(get_args(given[0]) if type(None) in given else given)


def filled(schema: Schema, value: Any) -> Any:
    """`value` as the API server fills in the schema's defaults."""
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    found = dict(value)
    for name, each in schema["properties"].items():
        if name not in found and "default" in each:
            found[name] = each["default"]
        if name in found:
            found[name] = filled(each, found[name])
    return found


def with_something(value: Any) -> Any:
    """Without what says nothing: a text that is empty and one that is left out mean the same."""
    if isinstance(value, dict):
        found = {name: with_something(each) for name, each in value.items()}
        return {name: each for name, each in found.items() if each not in NOTHING}
    return value


PARTS = [
    *parts(PoolSpec, schema_of("bookiepools"), "BookiePool.spec"),
    *parts(LedgerSpec, schema_of("ledgers"), "Ledger.spec"),
    *parts(TopicSpec, schema_of("topics"), "Topic.spec"),
]


@pytest.mark.parametrize(("model", "schema"), [each[1:] for each in PARTS], ids=[each[0] for each in PARTS])
def test_fields_choices_and_defaults_are_the_crds(model: type[SpecPart], schema: Schema) -> None:
    fields = {str(field.alias): field for field in model.model_fields.values()}
    assert fields.keys() == schema["properties"].keys()
    required = set(schema.get("required", ()))
    assert {name for name, field in fields.items() if field.is_required()} == required
    for name, field in fields.items():
        if "enum" in schema["properties"][name]:
            assert choices_of(field) == schema["properties"][name]["enum"], name
    sample = {
        "size": "1Gi",
        "name": "x",
        "secretName": "x",
        "store": {"size": "1Gi"},
        "storage": {"store": {"size": "1Gi"}},
        "poolRef": {"name": "x"},
    }
    least = {name: sample[name] for name in required}
    parsed = model.model_validate(least).model_dump(mode="json", by_alias=True)
    assert with_something(parsed) == with_something(filled(schema, least))


def test_what_the_api_server_fills_in_changes_nothing() -> None:
    manifest = pool_manifest(podTemplate={"labels": {"a": "b"}}, disk={"warnPercent": 50})
    full = {**manifest, "spec": filled(schema_of("bookiepools"), manifest["spec"])}
    assert own_spec(full) == own_spec(manifest)


def test_unknown_fields_and_nulls_are_ignored() -> None:
    manifest = pool_manifest(
        later={"x": 1}, image=None, recovery=None, topology={"maxSkew": None, "later": 2}
    )
    assert own_spec(manifest) == own_spec(pool_manifest())


def test_a_spec_that_the_crd_would_refuse_is_an_error_that_names_the_field() -> None:
    manifest = pool_manifest(replicas="many", storage={"journal": {}})
    with pytest.raises(
        SpecError, match=r"BookiePool data/bk is not as crds/ has it: .*replicas: .*; storage\.store: "
    ):
        spec_of(manifest, PoolDefaults("", ""))
    ledger = {"apiVersion": "daybook.dev/v1alpha1", "kind": "Ledger", "metadata": {"name": "l"}, "spec": {}}
    with pytest.raises(SpecError, match="poolRef"):
        parse_spec(LedgerSpec, ledger)
