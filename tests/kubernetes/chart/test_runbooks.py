"""Alerts and the pages of docs/operations belong together: every alert leads to a page, every page to commands that exist."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from typer.core import TyperGroup

from daybook.cli.kubectl.commands import app as kubectl_app
from daybook.cli.main import app as daybook_app
from tests.kubernetes.chart.conftest import Object, Render, of_kind
from tests.paths import ROOT

OPERATIONS: Final = ROOT / "docs" / "operations"
RUNBOOKS: Final = {path.stem: path for path in (OPERATIONS / "alerts").glob("*.md")}
PROCEDURES: Final = {
    "drain", "lost-disk", "lost-zone", "zookeeper-loss", "lost-broker", "growing-backlog", "full-disk", "restore", "upgrade",
}  # fmt: skip
PROGRAMS: Final = {"daybook": daybook_app, "kubectl daybook": kubectl_app}
SECTIONS: Final = ["How to see it", "Why", "What to do"]

_CODE: Final = re.compile(r"```console\n(.*?)```|(?<!`)`([^`\n]+)`", re.DOTALL)
_COMMAND: Final = re.compile(
    r"(?:^|\$ |-- |[A-Z] )(kubectl daybook|daybook)((?: [a-z][a-z-]*)+)(?= |$)", re.MULTILINE
)
"""A command with the words after it, as far as they may be names of commands."""


def alerts(render: Render, base: str = "docs/operations") -> dict[str, Object]:
    """The alerts of a release that has all that there are alerts for."""
    rule = {"enabled": True, "runbookBase": base}
    values = {"monitoring": {"prometheusRule": rule}, "broker": {"enabled": True}}
    (found,) = of_kind(render(values), "PrometheusRule")
    return {each["alert"]: each for group in found["spec"]["groups"] for each in group["rules"]}


def sections(text: str) -> list[str]:
    return re.findall(r"^## (.+)$", text, re.MULTILINE)


def test_every_alert_has_a_page_and_every_page_an_alert(render: Render) -> None:
    assert alerts(render).keys() == RUNBOOKS.keys()


def test_an_alert_leads_to_its_page(render: Render) -> None:
    for name, alert in alerts(render).items():
        assert ROOT / alert["annotations"]["runbook_url"] == RUNBOOKS[name]


def test_the_base_of_the_pages_is_a_value(render: Render) -> None:
    for name, alert in alerts(render, "https://docs.example.org/ops/").items():
        assert alert["annotations"]["runbook_url"] == f"https://docs.example.org/ops/alerts/{name}.md"


@pytest.mark.parametrize(
    "path",
    [*RUNBOOKS.values(), *(OPERATIONS / f"{name}.md" for name in sorted(PROCEDURES))],
    ids=lambda path: path.stem,
)
def test_a_page_says_how_to_see_it_why_and_what_to_do(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert sections(text)[:3] == SECTIONS
    assert all(part.strip() for part in re.split(r"^## .+$", text, flags=re.MULTILINE))
    assert path.parent == OPERATIONS or text.startswith(f"# {path.stem}\n")


def test_the_index_lists_every_page() -> None:
    index = OPERATIONS / "README.md"
    listed = set(re.findall(r"^\| \[[^]]+\]\(([^)]+)\)", index.read_text(encoding="utf-8"), re.MULTILINE))
    pages = {str(path.relative_to(OPERATIONS)) for path in OPERATIONS.rglob("*.md") if path != index}
    assert listed == pages


def commands_in(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of the project that a page names, with the words after it."""
    for block, inline in _CODE.findall(text):
        for program, words in _COMMAND.findall(block or inline):
            yield program, words.split()


def unknown(program: str, words: list[str]) -> str:
    """The first word that should be a command and is none; empty if all is well."""
    group: Any = typer.main.get_command(PROGRAMS[program])
    for word in words:
        if not isinstance(group, TyperGroup):
            return ""
        context = typer.Context(group)
        if group.get_command(context, word) is None:
            return word
        group = group.resolve_command(context, [word])[1]  # which loads it
    return ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`kubectl daybook explain -n data bk`", ""),
        ("`daybook ledger destroy LEDGER`", "destroy"),
        ("```console\n$ kubectl daybook mend bk\n```", "mend"),
        ("```console\n$ kubectl exec bk-0 -- daybook bookie lits\n```", "lits"),
        ("`kubectl annotate bookiepool bk daybook.dev/pause=true`", ""),
    ],
)
def test_the_check_of_commands_can_tell(text: str, expected: str) -> None:
    assert "".join(unknown(*each) for each in commands_in(text)) == expected


def test_the_commands_of_the_pages_exist() -> None:
    found = [
        (path.name, program, words)
        for path in sorted(OPERATIONS.rglob("*.md"))
        for program, words in commands_in(path.read_text(encoding="utf-8"))
    ]
    assert len(found) >= 80
    wrong = [(name, program, word) for name, program, words in found if (word := unknown(program, words))]
    assert not wrong
