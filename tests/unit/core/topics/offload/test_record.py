"""What a topic's list says of an offloaded ledger: its JSON, what is refused, and how it may change (rule 70)."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.errors import MetadataError
from daybook.core.topics.ledger_list import LedgerList, check_list_change
from daybook.core.topics.offload.record import PLACE_CHARS_MAX, Offload
from tests.unit.core.topics.offload.kit import LATER_JOB, offload, offloaded_list

FILE = offload(3, 10)
GONE = FILE.without_replicas
OTHER = offload(3, 10, job=LATER_JOB)

offloads = st.builds(
    Offload,
    place=st.text(min_size=1, max_size=PLACE_CHARS_MAX).filter(lambda text: text.isprintable()),
    format_version=st.integers(1, 9),
    size_bytes=st.integers(1, 2**63 - 1),
    entries=st.just(10),
    crc=st.integers(0, 2**32 - 1),
    offloaded_at_ms=st.integers(0, 10**13),
    replicas_until_ms=st.none() | st.integers(0, 10**13),
    replicas_gone=st.booleans(),
    unknown_fields=st.dictionaries(st.sampled_from(["x", "y"]), st.integers(), max_size=2),
)


@given(st.dictionaries(st.integers(0, 9), st.none() | offloads, max_size=4), st.text(max_size=5))
def test_a_list_with_files_comes_back_as_it_was(files: dict[int, Offload | None], job: str) -> None:
    found = offloaded_list(dict(sorted(files.items())), job)
    assert LedgerList.from_json(found.to_json()) == found


def test_the_stored_form_is_the_documented_one() -> None:
    stored = json.loads(offloaded_list({3: FILE, 4: None}).to_json())
    assert stored["offloadJob"] == "0123456789abcdef"
    assert [row["offloaded"] for row in stored["ledgers"]] == [True, False]
    assert stored["ledgers"][0]["offload"] == {
        "place": "file:///cold/3-0123456789abcdef.parquet",
        "formatVersion": 1,
        "size": 500,
        "entries": 10,
        "crc": 7,
        "offloadedAtMs": 1_000_000,
        "replicasUntilMs": 1_060_000,
        "replicasGone": False,
    }
    assert "offload" not in stored["ledgers"][1]


def test_only_a_list_whose_file_is_the_only_copy_is_refused_by_earlier_releases() -> None:
    assert json.loads(offloaded_list({3: FILE, 4: None}).to_json())["formatVersion"] == 1
    assert (
        json.loads(offloaded_list({3: FILE, 4: offload(4, 10).without_replicas}).to_json())["formatVersion"]
        == 2
    )


def test_a_list_of_an_earlier_release_has_no_offload() -> None:
    earlier = json.loads(offloaded_list({3: None}, job="").to_json())
    assert "offloadJob" not in earlier
    assert earlier["formatVersion"] == 1
    assert LedgerList.from_json(json.dumps(earlier).encode()).ledgers[0].has_replicas


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"formatVersion": 4}, "has format 4, this release reads 3"),
        ({"offloaded": False}, "is offloaded if it has a record"),
        ({"offload": None}, "is offloaded if it has a record"),
        ({"offload": {}}, "no topic's list"),
        ({"place": ""}, "its place has 0 characters"),
        ({"place": "x" * 1_001}, "its place has 1001 characters"),
        ({"size": 0}, "format 1, 0 bytes and 10 entries"),
        ({"entries": 0}, "format 1, 500 bytes and 0 entries"),
        ({"entries": 9}, "ledger 3 has 10 entries, and its file 9"),
        ({"crc": 2**32}, "no CRC"),
        ({"crc": "7"}, "no topic's list"),
    ],
)
def test_a_record_that_cannot_be_is_refused(change: dict[str, Any], what: str) -> None:
    record = json.loads(offloaded_list({3: FILE}).to_json())
    (name,) = change
    row = record["ledgers"][0]
    place = (
        record
        if name == "formatVersion"
        else row
        if name in row and name != "entries" and name != "size"
        else row["offload"]
    )
    place.update(change)
    with pytest.raises(MetadataError, match=what):
        LedgerList.from_json(json.dumps(record).encode())


@pytest.mark.parametrize(
    ("old", "new"),
    [(None, FILE), (FILE, GONE), (FILE, OTHER), (FILE, FILE), (GONE, GONE), (None, None), (FILE, None)],
)
def test_legal_steps_pass(old: Offload | None, new: Offload | None) -> None:
    check_list_change(offloaded_list({3: old, 4: None}), offloaded_list({3: new, 4: None}))


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (None, GONE, "only once the list has named the file"),
        (FILE, OTHER.without_replicas, "only once the list has named the file"),
        (GONE, FILE, "the only copy"),
        (GONE, OTHER, "the only copy"),
        (GONE, None, "the only copy"),
    ],
)
def test_rule_70_a_file_is_named_before_the_replicas_go_and_stays_after_that(
    old: Offload | None, new: Offload | None, what: str
) -> None:
    with pytest.raises(MetadataError, match=what):
        check_list_change(offloaded_list({3: old}), offloaded_list({3: new}))


def test_a_ledger_is_not_added_with_a_file() -> None:
    before = offloaded_list({3: None})
    with pytest.raises(MetadataError, match="was never offloaded"):
        check_list_change(before, offloaded_list({3: None, 4: offload(4, 10)}))


def test_rule_70_bookies_keep_what_has_a_file_until_the_list_gives_the_replicas_up() -> None:
    assert offloaded_list({3: FILE, 4: None}).named_ids == {3, 4}
    given_up = offloaded_list({3: GONE, 4: None})
    assert given_up.named_ids == {4}
    assert given_up.ids == {3, 4}, "readers find it"
    assert replace(given_up, ledgers=given_up.ledgers[1:]).named_ids == {4}
