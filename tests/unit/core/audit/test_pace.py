"""How fast an auditor reads ledgers (rule 37)."""

from daybook.core.audit.pace import PacedReads


def test_rule_37_fifty_thousand_ledgers_are_read_at_the_pace_of_the_metadata_store() -> None:
    reads = PacedReads(per_second=500, in_flight_max=50)
    reads.begin(range(50_000), 0)
    now_ms = in_flight = 0
    per_second: dict[int, int] = {}
    seen: list[int] = []
    while not reads.is_over:
        batch = reads.next(now_ms)
        in_flight += len(batch)
        assert in_flight <= 50
        per_second[now_ms // 1000] = per_second.get(now_ms // 1000, 0) + len(batch)
        seen += batch
        while in_flight and (now_ms % 20 == 0):
            reads.answered()
            in_flight -= 1
        now_ms += 10
    assert seen == list(range(50_000))
    assert max(per_second.values()) <= 500 + 125
    assert 99_000 <= now_ms <= 101_000


def test_rule_37_a_cycle_that_follows_at_once_does_not_exceed_the_pace() -> None:
    reads = PacedReads(per_second=100, in_flight_max=1000)
    handed_out = 0
    for _ in range(50):
        reads.begin(range(1000), 0)
        handed_out += len(reads.next(0))
    assert handed_out == 25
