"""The page of the Pulsar protocol has a test for each command that the broker serves."""

import re

from daybook_broker.connection.handlers import HANDLERS

from tests.paths import ROOT

ROW = re.compile(r"^\| (\d+) (\w+) \| (\w+) \| (.*?) \|(.*)\|$", re.MULTILINE)


def rows() -> dict[int, tuple[str, str, str]]:
    """The name, what the broker does and the tests of each command, by its number."""
    text = (ROOT / "docs/pulsar.md").read_text("utf-8")
    return {int(number): (name, does, tests) for number, name, _, does, tests in ROW.findall(text)}


def test_every_command_that_is_served_has_a_test() -> None:
    untested = [
        name
        for name, does, tests in rows().values()
        if does.startswith(("served", "sent")) and "[" not in tests
    ]
    assert untested == []


def test_what_is_served_has_a_handler() -> None:
    page = rows()
    missing = [
        row[0] for number, row in page.items() if row[1].startswith("served") and number not in HANDLERS
    ]
    assert missing == []
