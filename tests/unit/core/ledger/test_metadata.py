"""Ledger metadata: its JSON, what is refused, and which changes are legal."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.errors import MetadataError
from daybook.core.ledger.metadata import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    check_custom_metadata,
    hash_password,
    password_key,
)
from daybook.core.ledger.transitions import check_transition
from daybook.core.quorum import Quorum

OPEN = LedgerMetadata(7, Quorum(3, 2, 2), (Fragment(0, 0, ("a", "b", "c")),))


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    """Metadata of any legal shape."""
    size = draw(st.integers(1, 5))
    write_quorum = draw(st.integers(1, size))
    bookies = st.lists(st.sampled_from("abcdefgh"), min_size=size, max_size=size, unique=True).map(tuple)
    starts = [0, *sorted(draw(st.sets(st.integers(1, 1000), max_size=4)))]
    lengths = sorted(
        draw(st.lists(st.integers(0, 10**9), min_size=len(starts) - 1, max_size=len(starts) - 1))
    )
    fragments = tuple(
        Fragment(start, length, draw(bookies)) for start, length in zip(starts, [0, *lengths], strict=True)
    )
    state = draw(st.sampled_from(LedgerState))
    closed = state is LedgerState.CLOSED
    return LedgerMetadata(
        draw(st.integers(0, 2**63 - 1)),
        Quorum(size, write_quorum, draw(st.integers(1, write_quorum))),
        fragments,
        state,
        draw(st.integers(starts[-1] - 1, 2000)) if closed else -1,
        draw(st.integers(0, 10**12)) if closed else 0,
        writer_token=draw(st.none() | st.text(max_size=8)),
        custom_metadata=draw(st.dictionaries(st.text(max_size=8), st.binary(max_size=8), max_size=3)),
        created_at_ms=draw(st.integers(0, 10**13)),
        restored_among=() if closed else draw(st.sampled_from([(), ("a", "z")])),
    )


@given(ledgers())
def test_metadata_comes_back_as_it_was(ledger: LedgerMetadata) -> None:
    assert LedgerMetadata.from_json(ledger.to_json()) == ledger


def test_the_stored_form_is_the_documented_one() -> None:
    assert json.loads(OPEN.to_json()) == {
        "formatVersion": 1,
        "ledgerId": 7,
        "ensembleSize": 3,
        "writeQuorumSize": 2,
        "ackQuorumSize": 2,
        "state": "OPEN",
        "length": 0,
        "lastEntryId": -1,
        "digestType": "CRC32C",
        "password": "",
        "writerToken": None,
        "ensembles": [{"firstEntry": 0, "lengthBefore": 0, "bookies": ["a", "b", "c"]}],
        "customMetadata": {},
        "createdAtMs": 0,
    }


def test_unknown_fields_are_kept() -> None:
    record = json.loads(OPEN.to_json()) | {"later": {"x": 1}}
    kept = LedgerMetadata.from_json(json.dumps(record).encode()).in_recovery()
    assert json.loads(kept.to_json())["later"] == {"x": 1}


def changed(**fields: Any) -> bytes:
    return json.dumps(json.loads(OPEN.to_json()) | fields).encode()


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "no ledger metadata"),
        (b"[]", "no ledger metadata"),
        (b"\xff", "no ledger metadata"),
        (changed(formatVersion=2), "format 2"),
        (changed(digestType="MD5"), "digest type 'MD5'"),
        (changed(ledgerId=-1), "no ledger id"),
        (changed(ledgerId=True), "no whole number"),
        (changed(ensembleSize=2), "needs 2 bookies, not 3"),
        (changed(ackQuorumSize=3), "write quorum"),
        (changed(state="BUSY"), "BUSY"),
        (changed(ensembles=[]), "begin at entry 0"),
        (
            changed(ensembles=[{"firstEntry": 1, "lengthBefore": 0, "bookies": ["a", "b", "c"]}]),
            "begin at entry 0",
        ),
        (
            changed(ensembles=[{"firstEntry": 0, "lengthBefore": 0, "bookies": ["a", "a", "c"]}]),
            "named twice",
        ),
        (
            changed(ensembles=[{"firstEntry": 0, "lengthBefore": 0, "bookies": ["a", "b", "/"]}]),
            "cannot name a bookie",
        ),
        (changed(state="CLOSED", lastEntryId=-2), "before its last ensemble"),
        (changed(customMetadata={"k": "!"}), "no ledger metadata"),
    ],
)
def test_records_that_no_history_leads_to_are_refused(data: bytes, what: str) -> None:
    with pytest.raises(MetadataError, match=what):
        LedgerMetadata.from_json(data)


@pytest.mark.parametrize(
    "new",
    [
        OPEN.with_ensemble(5, 50, ("a", "b", "d")),
        OPEN.with_ensemble(0, 0, ("a", "b", "d")),
        OPEN.with_replica(0, "c", "d"),
        OPEN.attached("token"),
        OPEN.in_recovery(),
        OPEN.in_recovery().closed(3, 30),
        OPEN.closed(-1, 0),
    ],
)
def test_legal_steps_pass(new: LedgerMetadata) -> None:
    check_transition(OPEN, new)


CLOSED = OPEN.with_ensemble(5, 50, ("a", "b", "d")).closed(9, 90)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (OPEN.in_recovery(), OPEN, "back to OPEN"),
        (CLOSED, replace(CLOSED, state=LedgerState.IN_RECOVERY), "back to IN_RECOVERY"),
        (CLOSED, CLOSED.closed(8, 80), "a close is final"),
        (CLOSED, CLOSED.with_ensemble(7, 70, ("a", "b", "e")), "keep their places"),
        (CLOSED, replace(CLOSED, fragments=CLOSED.fragments[:1]), "keep their places"),
        (
            OPEN.with_ensemble(5, 50, ("a", "b", "d")),
            OPEN.with_ensemble(6, 60, ("a", "b", "d")),
            "never removed or moved",
        ),
        (OPEN, replace(OPEN, quorum=Quorum(3, 3, 2)), "quorum never changes"),
        (OPEN, replace(OPEN, ledger_id=8), "ledger_id never changes"),
        (OPEN.attached("one"), replace(OPEN, writer_token="two"), "set once"),
        (OPEN.attached("one"), OPEN, "set once"),
        (replace(OPEN.in_recovery(), restored_among=("a",)), OPEN.in_recovery(), "stays until the close"),
        (
            replace(OPEN.in_recovery(), restored_among=("a", "b")),
            replace(OPEN.in_recovery(), restored_among=("b", "c")),
            "stays until the close",
        ),
        (OPEN.in_recovery(), replace(OPEN.in_recovery(), restored_among=("a",)), "only a restored ledger"),
    ],
)
def test_illegal_steps_are_refused(old: LedgerMetadata, new: LedgerMetadata, what: str) -> None:
    with pytest.raises(MetadataError, match=what):
        check_transition(old, new)


def test_rule_68_a_recovery_may_have_to_ask_one_more_bookie() -> None:
    restored = replace(OPEN.in_recovery(), restored_among=("a",))
    check_transition(restored, replace(restored, restored_among=("a", "e")))


def test_rule_53_a_ledger_is_attached_once() -> None:
    attached = OPEN.attached("one")
    for ledger in (attached, OPEN.in_recovery(), OPEN.closed(-1, 0)):
        with pytest.raises(MetadataError, match="rule 53"):
            ledger.attached("two")


def test_rule_17_the_same_start_replaces_the_last_fragment() -> None:
    twice = OPEN.with_ensemble(5, 50, ("a", "b", "d")).with_ensemble(5, 50, ("a", "b", "e"))
    assert [fragment.first_entry for fragment in twice.fragments] == [0, 5]
    assert twice.last_fragment.bookies == ("a", "b", "e")


def test_fragments_are_found_by_entry() -> None:
    assert [CLOSED.fragment_index(n) for n in (0, 4, 5, 9)] == [0, 0, 1, 1]
    assert [CLOSED.fragment_end(index) for index in (0, 1)] == [4, 9]
    assert OPEN.fragment_end(0) is None


def test_what_a_bookie_owes_keeps_its_position() -> None:
    assert [(first, last, stripe.mask) for first, last, stripe in CLOSED.stripes_of("a")] == [
        (0, 4, 0b101),
        (5, 9, 0b101),
    ]
    assert [(first, last) for first, last, _ in CLOSED.stripes_of("d")] == [(5, 9)]
    assert CLOSED.stripes_of("z") == []


def test_passwords_are_salted_hashes() -> None:
    stored = hash_password(b"secret", b"salt")
    assert b"secret" not in stored.encode()
    assert password_key(b"secret", stored) == stored
    assert password_key(b"wrong", stored) != stored


def test_large_custom_metadata_is_refused() -> None:
    with pytest.raises(MetadataError, match="at most 65536"):
        check_custom_metadata({"k": bytes(65536)})


@pytest.mark.parametrize("value", ["text", 5, None])
def test_custom_metadata_that_is_not_bytes_is_refused(value: object) -> None:
    with pytest.raises(MetadataError, match=r"'k' is .*: only bytes are allowed"):
        check_custom_metadata({"k": value})  # type: ignore[dict-item]  # a caller without a type checker


@pytest.mark.parametrize(
    ("second", "what"),
    [
        (Fragment(0, 10, ("a", "b", "d")), "rise"),
        (Fragment(9, 10, ("a", "b", "d")), "rise"),
        (Fragment(12, 4, ("a", "b", "d")), "rise"),
    ],
)
def test_fragments_that_do_not_rise_are_refused(second: Fragment, what: str) -> None:
    with pytest.raises(MetadataError, match=what):
        replace(OPEN, fragments=(*OPEN.fragments, Fragment(9, 5, ("a", "b", "e")), second))


@pytest.mark.parametrize("end", [{"last_entry": -2}, {"length": -1}])
def test_an_end_below_the_smallest_is_refused(end: dict[str, int]) -> None:
    with pytest.raises(MetadataError, match="the smallest are"):
        replace(OPEN, **end)  # type: ignore[arg-type]  # both are whole numbers


def test_numbers_beyond_64_bits_are_refused() -> None:
    record = json.loads(OPEN.to_json())
    record["createdAtMs"] = 2**63
    with pytest.raises(MetadataError, match="64 bits"):
        LedgerMetadata.from_json(json.dumps(record).encode())
