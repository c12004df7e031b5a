"""The columns of ledgers, which are made of buffers: the same as Arrow makes of lists."""

import pyarrow as pa
import pytest
from daybook_spark.rows import ledger_rows
from daybook_spark.rows.columns import arrow_schema, default_schema
from daybook_spark.rows.ledger_rows import entry_rows, numbered_rows
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.format.entries import Entry, EntryRun
from daybook.core.format.payload_run import PayloadRun

SCHEMA = arrow_schema(default_schema({"zookeeper": "z:1", "ledger": "7"}))
LEDGER = 2**40


@given(
    st.integers(0, 2**50),
    st.lists(st.binary(max_size=40), min_size=1, max_size=20),
    st.permutations(SCHEMA.names),
)
def test_a_run_of_entries_is_a_batch_with_the_columns_that_are_asked_for(
    first: int, payloads: list[bytes], names: list[str]
) -> None:
    schema = pa.schema([SCHEMA.field(name) for name in names])
    run = tuple(Entry(first + number, data) for number, data in enumerate(payloads))
    (batch,) = entry_rows(LEDGER, [run], schema)
    batch.validate(full=True)
    assert batch.schema == schema
    assert batch.to_pydict() == {
        "ledger_id": [LEDGER] * len(run),
        "entry_id": [entry_id for entry_id, _ in run],
        "value": payloads,
    }


@given(st.integers(1, 20), st.integers(1, 40), st.integers(1, 3))
def test_payloads_of_one_size_are_the_same_column(count: int, size: int, pieces: int) -> None:
    payloads = [bytes([number]) * size for number in range(count)]
    parts = [b"".join(payloads[at : at + pieces]) for at in range(0, count, pieces)]
    run = EntryRun(range(5, 5 + count), PayloadRun(size, parts))
    (batch,) = entry_rows(LEDGER, [run], SCHEMA)
    batch.validate(full=True)
    assert batch["entry_id"].to_pylist() == list(range(5, 5 + count))
    assert batch["value"].to_pylist() == payloads


def test_a_run_with_a_gap_is_no_batch() -> None:
    with pytest.raises(AssertionError, match="every entry"):
        list(entry_rows(LEDGER, [(Entry(1, b""), Entry(3, b""))], SCHEMA))


def test_rows_without_payload_come_in_batches_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_rows, "NUMBERED_ROWS_MAX", 3)
    schema = pa.schema([SCHEMA.field("entry_id"), SCHEMA.field("ledger_id")])
    batches = list(numbered_rows(LEDGER, 5, 11, schema))
    assert [batch["entry_id"].to_pylist() for batch in batches] == [[5, 6, 7], [8, 9, 10], [11]]
    assert {ledger_id for batch in batches for ledger_id in batch["ledger_id"].to_pylist()} == {LEDGER}
    assert not list(numbered_rows(LEDGER, 5, 4, schema))
