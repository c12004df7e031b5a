"""The CEL rules as they stand in crds/, and what a case of one is: something refused, and a neighbour that passes.

A case names its rule by its place in the schema and the beginning of its message.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import yaml

from tests.kubernetes.api.rest import Object, ledger, pool, topic
from tests.paths import ROOT

CRDS: Final = ROOT / "crds"
BASES: Final = {"BookiePool": pool, "Ledger": ledger, "Topic": topic}


@dataclass(frozen=True, slots=True)
class Rule:
    """One CEL rule of a schema."""

    kind: str
    place: str
    message: str

    @property
    def is_transition(self) -> bool:
        """Whether it compares with what was there before."""
        return "oldSelf" in RULES[self]


@dataclass(frozen=True, slots=True)
class Case:
    """What is created, and two changes of it, as merge patches: one refused, one accepted.

    Where `before` is None the changes are made before the creation.
    """

    kind: str
    place: str
    begins: str
    what: str
    refused: Object
    accepted: Object
    before: Object | None = None

    @property
    def rule(self) -> Rule:
        """The rule that it is about."""
        found = [
            rule
            for rule in RULES
            if (rule.kind, rule.place) == (self.kind, self.place) and rule.message.startswith(self.begins)
        ]
        assert len(found) == 1, (
            f"{len(found)} rules of {self.kind} at {self.place} begin with {self.begins!r}"
        )
        return found[0]

    def object(self, change: Object | None) -> Object:
        """The base object with this change."""
        return merged(BASES[self.kind](), change or {})

    def __str__(self) -> str:
        """Its name in reports."""
        return f"{self.kind}-{self.place}-{self.what}".replace(" ", "_")


def merged(base: Mapping[str, Any], patch: Mapping[str, Any]) -> Object:
    """`base` with the merge patch `patch`: None takes a field out."""
    result = deepcopy(dict(base))
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            result[key] = merged(result.get(key) or {}, value)
        else:
            result[key] = value
    return result


def _rules_below(kind: str, place: str, schema: Mapping[str, Any]) -> Iterator[tuple[Rule, str]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield Rule(kind, place, rule["message"]), rule["rule"]
    for name, child in schema.get("properties", {}).items():
        yield from _rules_below(kind, f"{place}.{name}".lstrip("."), child)
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), Mapping):
            yield from _rules_below(kind, f"{place}[]", schema[word])


def _all_rules() -> Iterator[tuple[Rule, str]]:
    for path in sorted(CRDS.glob("*.yaml")):
        crd = yaml.safe_load(path.read_text(encoding="utf-8"))
        for version in crd["spec"]["versions"]:
            yield from _rules_below(crd["spec"]["names"]["kind"], "", version["schema"]["openAPIV3Schema"])


RULES: Final[Mapping[Rule, str]] = dict(_all_rules())
"""Every rule of the files, with its expression."""
