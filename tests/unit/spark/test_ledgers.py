"""Ledgers as tables."""

import pytest

import daybook
from tests.fixtures.spark import Load

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


async def test_a_ledger_is_a_table_of_its_entries(client: daybook.Client, load: Load) -> None:
    written = [b"entry %d" % number for number in range(1000)]
    ledger = await client.create_ledger()
    await ledger.append_many(written)
    await ledger.close()

    rows = load(ledger=ledger.id).orderBy("entry_id").collect()

    assert [(row.ledger_id, row.entry_id, bytes(row.value)) for row in rows] == [
        (ledger.id, number, data) for number, data in enumerate(written)
    ]
