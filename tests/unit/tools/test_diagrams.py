"""docs/states.md is what the tables of transitions in the code make of it, and the tables make sense."""

from enum import Enum
from pathlib import Path

import pytest

from tools.diagrams import PAGE, Table, page, section, tables

TABLES = list(tables())


class Light(Enum):
    RED = "stop"
    GREEN = "GREEN"
    DARK = "broken; call somebody"


TRANSITIONS: dict[tuple[Enum, Enum], str] = {
    (Light.RED, Light.GREEN): "a while; or nobody comes",
    (Light.GREEN, Light.RED): "a while",
    (Light.GREEN, Light.DARK): "lightning",
}


def test_the_page_is_made_of_the_tables() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: make diagrams"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(table.path))
def test_a_table_is_of_one_enum_and_leads_to_every_state_of_it(table: Table) -> None:
    assert {type(state) for pair in table.transitions for state in pair} == {type(table.first)}
    assert table.states == list(type(table.first)), "a state that the table does not know"
    reached = {table.first}
    for _ in table.states:
        reached |= {new for old, new in table.transitions if old in reached}
    assert reached == set(table.states)


def test_a_section_shows_beginning_end_reasons_and_meanings() -> None:
    text = section(Table(Path("light.py"), "Traffic.\nIt flows.", TRANSITIONS))
    assert text == (
        "## light.py\n\nTraffic. It flows.\n\n"
        "```mermaid\nstateDiagram-v2\n    [*] --> RED\n    RED --> GREEN: a while, or nobody comes\n"
        "    GREEN --> RED: a while\n    GREEN --> DARK: lightning\n    DARK --> [*]\n```\n\n"
        "| state | meaning |\n|---|---|\n| RED | stop |\n| DARK | broken; call somebody |\n"
    )
