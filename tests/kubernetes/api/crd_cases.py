"""Reads the cases of the CEL rules in crds/ from crd_cases.yaml."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from tests.kubernetes.api.crd_rules import Case


def _cases() -> Iterator[Case]:
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    for rule, cases in yaml.safe_load(text).items():
        kind, place, begins = rule.split(" | ")
        for what, (refused, accepted, *before) in cases.items():
            yield Case(kind, place, begins, what, refused, accepted, *before)


CASES: Final = tuple(_cases())
