"""docs/growth.md is what the records make of it, and says of each figure how it grows."""

import re

import pytest

from tools.growth.__main__ import MEASURES, merged
from tools.growth.page import PAGE, PARTS, UNITS, exponent_of, how_it_grows, load, page


def test_the_page_is_made_of_the_records() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(load()), "write it anew: make growth ARGS=--page-only"


def test_every_part_was_measured_at_more_than_one_size() -> None:
    assert MEASURES.keys() == PARTS.keys()
    for part in MEASURES:
        assert len({record["size"] for record in load() if record["part"] == part}) >= 3, part


def test_every_figure_has_a_row_and_a_sentence() -> None:
    records = load()
    figures = {(r["part"], r["what"], name) for r in records for name in r.keys() & UNITS.keys()}
    rows = [line for line in page(records).splitlines() if re.match(r"\| \w", line)]
    assert len(rows) == len(figures) > 30
    assert all(line.endswith(". |") for line in rows)
    for record in records:
        for name in record.keys() & UNITS.keys():
            assert any(f"| {record[name]:,} |" in row and UNITS[name] in row for row in rows)


def test_a_measurement_that_grows_too_fast_stands_out() -> None:
    records = [record for record in load() if record["what"] != "quick audit"]
    slow = [
        {**record, "what": "quick audit", "seconds": record["size"] ** 2 / 1e6}
        for record in records
        if record["what"] == "full audit"
    ]
    assert "**Faster than the size**" in next(
        line for line in page([*records, *slow]).splitlines() if line.startswith("| quick audit | s |")
    )


def test_what_is_measured_again_takes_the_place_of_what_was() -> None:
    old = [{"part": "ledgers", "what": "list", "size": size, "seconds": 1.0} for size in (10, 30)]
    new = [{"part": "ledgers", "what": "list", "size": size, "seconds": 2.0} for size in (30, 20)]
    assert [(r["size"], r["seconds"]) for r in merged(old, new)] == [(10, 1.0), (20, 2.0), (30, 2.0)]
    other = [{"part": "large-store", "what": "list", "size": 10, "seconds": 3.0}]
    assert merged(old, other) == [*old, *other]


@pytest.mark.parametrize(
    ("values", "exponent", "word"),
    [
        ([(1, 7.0), (10, 7.0), (100, 7.0)], 0.0, "Stays"),
        ([(10, 1.0), (100, 10.0), (1000, 100.0)], 1.0, "In proportion"),
        ([(10, 1.0), (1000, 10_000.0)], 2.0, "**Faster than the size**"),
        ([(10, 1.0), (1000, 10.0)], 0.5, "Slower than the size"),
        ([(10, 10.0), (1000, 1.0)], -0.5, "Falls"),
    ],
)
def test_growth_is_told_by_the_exponent_that_fits(
    values: list[tuple[int, float]], exponent: float, word: str
) -> None:
    found = exponent_of(values)
    assert found is not None
    assert abs(found - exponent) < 1e-9
    assert how_it_grows(values).startswith(word)


def test_nothing_is_said_where_nothing_can_be_told() -> None:
    assert how_it_grows([(10, 1.0)]) == "One size tells nothing."
    assert how_it_grows([(10, 0.0), (20, 1.0)]) == "Nothing that could be compared."
