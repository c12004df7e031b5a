"""The registry of mutants, so that a test fails for a rule without one.

A mutant is a function of a `pytest.MonkeyPatch` that takes one rule of docs/protocol.md out of the code. Modules of
`tests.model.mutants.catalog` declare them with `@mutant(...)`; `load_catalog` imports them all.

Two nets must catch it: a test that is named after the rule, and a seed of the simulator (`tests.model.mutants.seeds` keeps
the known ones). A mutant of code that the simulator does not contain states this in `not_simulated`, and only the test must
catch it.
"""

import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pytest

from tests.model.mutants import catalog
from tests.paths import ROOT

Patch: TypeAlias = Callable[[pytest.MonkeyPatch], None]

_PAGE: Final = ROOT / "docs/protocol.md"

WAITING: Final[dict[int, str]] = {
    39: "brokers do not remove duplicates yet, so there is no snapshot to take",
}
"""The rules whose part of the project does not exist yet, each with that part."""

LISTED: Final = tuple(
    int(number) for number in re.findall(r"^(\d+)\. \*\*", _PAGE.read_text("utf-8"), re.MULTILINE)
)
"""The rules of docs/protocol.md, in the order of the page."""

RULES: Final = frozenset(LISTED) - WAITING.keys()
"""The rules that need a test and a mutant."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One way to break a rule, and the test that must fail."""

    name: str
    """`<catalog module>.<function>`"""
    rule: int
    caught_by: str
    """The pytest node id of the test, without parameters; empty for a mutant of the simulator's own parts."""
    why: str
    apply: Patch
    slow: bool
    """Its test starts processes or takes over a second, so only the full run includes the mutant."""
    not_simulated: str = ""
    """Why no seed can catch it: the simulator does not contain the changed code."""
    swarm: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the swarm that are fixed instead of random, where the rule matters too rarely otherwise."""

    def __reduce__(self) -> tuple[Callable[[str], "Mutant"], tuple[str]]:
        """One process hands a mutant to another by its name: each has loaded the catalog."""
        return find, (self.name,)


_REGISTER: dict[str, Mutant] = {}


def mutant(
    rule: int,
    caught_by: str = "",
    *,
    why: str = "",
    slow: bool = False,
    not_simulated: str = "",
    swarm: Mapping[str, Any] | None = None,
) -> Callable[[Patch], Patch]:
    """Register the decorated function as a mutant of `rule` that the test `caught_by` and some seed must catch.

    `why` is a sentence about what is taken out; by default it is the function's docstring. Raises ValueError for a rule
    that does not exist, a node id that names no test, a missing reason, a name that is taken, and for a mutant that
    has neither a test nor a seed.
    """
    if rule not in LISTED:
        msg = f"rule {rule}: docs/protocol.md has no such rule"
        raise ValueError(msg)
    if caught_by and (not caught_by.startswith("tests/") or "::" not in caught_by or "[" in caught_by):
        msg = (
            f"caught_by={caught_by!r}: write 'tests/<folder>/test_<file>.py::test_<name>', without parameters"
        )
        raise ValueError(msg)
    if not caught_by and not_simulated:
        msg = f"a mutant of rule {rule} that is not simulated needs a test: name it in caught_by"
        raise ValueError(msg)

    def register(patch: Patch) -> Patch:
        name = f"{patch.__module__.rsplit('.', 1)[-1]}.{patch.__name__}"
        reason = why or (patch.__doc__ or "").strip()
        if not reason:
            msg = f"mutant {name}: say in its docstring what it takes out"
            raise ValueError(msg)
        if name in _REGISTER:
            msg = f"mutant {name} is declared twice: give the second one a name of its own"
            raise ValueError(msg)
        _REGISTER[name] = Mutant(name, rule, caught_by, reason, patch, slow, not_simulated, swarm or {})
        return patch

    return register


def instead_of(target: object, name: str) -> Callable[[Callable[..., Any]], Patch]:
    """Make a mutant of the decorated function: it takes the place of the attribute `name` of a class or module."""

    def make(replacement: Callable[..., Any]) -> Patch:
        def patch(monkeypatch: pytest.MonkeyPatch) -> None:
            monkeypatch.setattr(target, name, replacement)

        return _named_as(patch, replacement)

    return make


def around(target: object, name: str) -> Callable[[Callable[..., Any]], Patch]:
    """As `instead_of`, for a function whose first argument is what it takes the place of."""

    def make(replacement: Callable[..., Any]) -> Patch:
        def patch(monkeypatch: pytest.MonkeyPatch) -> None:
            original = getattr(target, name)
            monkeypatch.setattr(target, name, lambda *args, **named: replacement(original, *args, **named))

        return _named_as(patch, replacement)

    return make


def _named_as(patch: Patch, replacement: Callable[..., Any]) -> Patch:
    """The catalog names a mutant after its function."""
    patch.__name__, patch.__doc__ = replacement.__name__, replacement.__doc__
    patch.__module__ = replacement.__module__
    return patch


def load_catalog() -> dict[str, Exception]:
    """Import every module of the catalog; the errors of those that cannot be imported, by module name."""
    failures: dict[str, Exception] = {}
    for module in pkgutil.iter_modules(catalog.__path__):
        try:
            importlib.import_module(f"{catalog.__name__}.{module.name}")
        except Exception as error:  # noqa: BLE001 - one broken module must not hide the other mutants
            failures[module.name] = error
    return failures


def registered() -> list[Mutant]:
    """Every mutant declared so far, by rule and name."""
    return sorted(_REGISTER.values(), key=lambda found: (found.rule, found.name))


def find(name: str) -> Mutant:
    """The mutant called `name`; raises KeyError with the ones that exist."""
    if name not in _REGISTER:
        msg = f"no mutant is called {name!r}; there are: {', '.join(sorted(_REGISTER)) or 'none'}"
        raise KeyError(msg)
    return _REGISTER[name]
