"""Each condition with which the operator says that something is wrong is wrong to `kubectl daybook`, too.

The tests collect the conditions from the operator's code: where it calls `fine`, `wrong` and `unknown`. A new one that no table
of the plugin knows fails here; without these tests `status` and `explain` would pass over it.
"""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Final, NamedTuple

import pytest
from daybook_operator import plan
from daybook_operator.plan import conditions

from daybook.cli.kubectl.topic.observe import facts_of
from daybook.cli.kubectl.world import wrong_conditions
from tests.unit.cli.kubectl.objects import condition

EXCEPTIONS: Final[Mapping[tuple[str, str], str]] = {
    ("Draining", "LedgersBeingRead"): "the drain begins by itself",
    ("Hibernated", "WaitingForDrain"): "Draining says what the drain waits for",
    ("Hibernated", "WaitingForReplication"): "Ready and FullyReplicated say what is missing",
    ("FullyReplicated", "Hibernated"): "a person asked for it",
    ("Paused", "DeletionHeld"): "a person asked for the pause, which `explain` names",
    ("Progressing", "RolloutPaused"): "a person asked for it",
    ("Sealed", "Sealing"): "the operator is about to do it",
    ("StorageResizing", "Growing"): "the driver of the volumes is about to do it",
    (
        "BacklogHealthy",
        "BrokersSilent",
    ): "the step `brokers` of `topic explain` says which broker does not answer",
}
"""What is not as it should be, or not known, and is no problem of its own; with the reason."""

FOLDERS: Final = {"pool": ("BookiePool",), "ledger": ("Ledger",), "topic": ("Topic",)}
"""The folders of plans, by the kinds whose conditions they make; any other module makes conditions of all kinds."""


class Made(NamedTuple):
    """A condition that the operator can make; `reason` is "?" where the code composes it."""

    kind: str
    type: str
    status: str
    reason: str
    is_fine: bool


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(plan.__path__, f"{plan.__name__}."):
        if found.name != conditions.__name__:
            yield importlib.import_module(found.name)


def values(node: ast.expr, module: ModuleType) -> set[str]:
    """The strings that an argument can be, as far as the module itself says; empty if it is composed or a parameter."""
    match node:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.Name(id=name):
            constant = getattr(module, name, None)
            return {constant} if isinstance(constant, str) else set()
        case ast.IfExp(body=one, orelse=other):
            return values(one, module) | values(other, module)
    return set()


def types_of(call: ast.Call, function: ast.FunctionDef, module: ModuleType) -> set[str]:
    """The types of the condition that a call makes; a parameter is what the callers of its function give."""
    first = call.args[0]
    names = [each.arg for each in function.args.args]
    if not isinstance(first, ast.Name) or first.id not in names:
        return values(first, module)
    place = names.index(first.id)
    return set().union(
        *(
            values(each.args[place], module)
            for each in ast.walk(ast.parse(inspect.getsource(module)))
            if isinstance(each, ast.Call) and ast.unparse(each.func) == function.name
        )
    )


def statuses_of(call: ast.Call, maker: str) -> set[str]:
    """The statuses that a call can give."""
    given = next((each.value for each in call.keywords if each.arg == "status"), None)
    match given:
        case None:
            return {{"fine": "True", "wrong": "False", "unknown": "Unknown"}[maker]}
        case ast.Constant(value=bool(status)):
            return {str(status)}
    return {"True", "False"}


def made_by(module: ModuleType) -> Iterator[Made]:
    folder = module.__name__.removeprefix(f"{plan.__name__}.").partition(".")[0]
    for function in ast.walk(ast.parse(inspect.getsource(module))):
        for call in ast.walk(function) if isinstance(function, ast.FunctionDef) else ():
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            maker = call.func.id
            assert maker != "Condition", (
                f"{module.__name__} makes a condition without `fine`, `wrong` or `unknown`"
            )
            if maker not in ("fine", "wrong", "unknown"):
                continue
            assert isinstance(function, ast.FunctionDef)
            types = types_of(call, function, module)
            assert types, f"{module.__name__}:{call.lineno}: which condition is that?"
            for kind in FOLDERS.get(folder, ("BookiePool", "Ledger", "Topic")):
                for type_ in types:
                    for status in statuses_of(call, maker):
                        for reason in values(call.args[1], module) or {"?"}:
                            yield Made(kind, type_, status, reason, maker == "fine")


ALL: Final = sorted({made for module in modules() for made in made_by(module)})


def named(made: Made) -> str:
    return f"{made.kind}-{made.type}-{made.status}-{made.reason}"


def is_wrong(made: Made) -> bool:
    """Whether the plugin takes the condition for a problem."""
    said = condition(made.type, made.status, made.reason)
    if made.kind != "Topic":
        return bool(wrong_conditions({"status": {"conditions": [said]}}))
    resource: dict[str, Any] = {
        "kind": "Topic",
        "metadata": {"name": "orders", "namespace": "data", "uid": "orders-uid"},
        "spec": {},
        "status": {"conditions": [said]},
    }
    return bool(facts_of(resource).problems)


@pytest.mark.parametrize("made", [each for each in ALL if not each.is_fine], ids=named)
def test_what_the_operator_calls_wrong_or_unknown_is_a_problem_to_the_plugin(made: Made) -> None:
    assert is_wrong(made) != ((made.type, made.reason) in EXCEPTIONS), "one table has it, or the exceptions"


@pytest.mark.parametrize("made", [each for each in ALL if each.is_fine], ids=named)
def test_what_the_operator_calls_fine_is_no_problem_to_the_plugin(made: Made) -> None:
    assert not is_wrong(made)


def test_the_conditions_of_each_kind_are_found() -> None:
    found = {(each.kind, each.type) for each in ALL}
    assert {("BookiePool", "AuditHealthy"), ("BookiePool", "RetentionHealthy"), ("Ledger", "Sealed")} <= found
    assert {("Topic", "JobsHealthy"), ("Topic", "ResourceConflict"), ("BookiePool", "Paused")} <= found
    assert {(each.type, each.reason) for each in ALL} >= EXCEPTIONS.keys(), (
        "an exception is of a condition that is made"
    )
