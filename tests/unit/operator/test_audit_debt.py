"""Who waits for an audit waits for one, and those that nobody waits for cost a tenth of the time at most."""

from daybook_operator.plan.recovery.audit_debt import AuditDebt
from hypothesis import given
from hypothesis import strategies as st

WALL = 1_700_000_000_000
"""The wall clock is so far ahead of the monotonic one."""
TOOK_MS = 60_000
PAUSE_MS = 10_000


class Auditor:
    """Audits when the debt says so, one after the other; each takes a minute."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.debt = AuditDebt(self.now_ms, PAUSE_MS)
        self.audits = 0

    def want(self, *, is_waited_for: bool = True) -> int:
        """Somebody notices something now, and the status has it in whole seconds."""
        after_ms = -(-(WALL + self.now_ms) // 1000) * 1000
        self.debt.want(after_ms, is_waited_for=is_waited_for)
        return after_ms

    def until_settled(self, *, is_clean: bool = True, audits_max: int = 50) -> int:
        """How long it took until nothing is owed any more."""
        began_ms = self.now_ms
        for _ in range(audits_max):
            due_ms = self.debt.due_ms(self.now_ms, WALL + self.now_ms)
            if due_ms is None:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.debt.asked(self.now_ms)
            self.audit(is_clean=is_clean)
        return self.now_ms - began_ms

    def audit(self, *, is_clean: bool = True) -> None:
        started_ms = self.now_ms
        self.audits += 1
        self.now_ms += TOOK_MS
        self.debt.ended(
            began_ms=started_ms, began_wall_ms=WALL + started_ms, took_ms=TOOK_MS, is_clean=is_clean
        )


def test_each_step_of_a_roll_waits_for_one_audit() -> None:
    """It waited for the pause after the last one as well, which is ten times as long."""
    auditor = Auditor()
    auditor.until_settled()
    for step in range(1, 6):
        auditor.now_ms += 30_123  # the bookie stops, and is back
        auditor.debt.came(auditor.now_ms)
        auditor.want()
        waited_ms = auditor.until_settled()
        assert auditor.audits == step + 1, "one for each step"
        assert waited_ms <= TOOK_MS + 1_001


def test_an_audit_begins_only_when_it_can_count() -> None:
    auditor = Auditor()
    auditor.until_settled()
    auditor.now_ms += 1
    after_ms = auditor.want()
    due_ms = auditor.debt.due_ms(auditor.now_ms, WALL + auditor.now_ms)
    assert due_ms is not None
    assert WALL + due_ms > after_ms, "one that began before that would have to be made again"


def test_audits_that_nobody_waits_for_cost_a_tenth() -> None:
    auditor = Auditor()
    auditor.until_settled()
    began_ms = auditor.now_ms
    for _ in range(200):  # a bookie that crashes again and again
        auditor.now_ms += 5_000
        auditor.debt.came(auditor.now_ms)
        auditor.want(is_waited_for=False)
        auditor.until_settled()
    assert TOOK_MS * (auditor.audits - 1) <= (auditor.now_ms - began_ms) / 9


def test_an_audit_that_does_not_end_clean_is_not_made_again_at_once() -> None:
    auditor = Auditor()
    auditor.want()
    auditor.until_settled(is_clean=False, audits_max=4)
    assert auditor.now_ms >= 3 * TOOK_MS
    due_ms = auditor.debt.due_ms(auditor.now_ms, WALL + auditor.now_ms)
    assert due_ms is not None
    quiet = Auditor()
    quiet.until_settled(is_clean=False, audits_max=2)
    assert quiet.now_ms >= 10 * TOOK_MS


def test_an_audit_that_somebody_begins_to_wait_for_comes_sooner() -> None:
    auditor = Auditor()
    auditor.until_settled()
    auditor.debt.came(auditor.now_ms)
    auditor.want(is_waited_for=False)
    late_ms = auditor.debt.due_ms(auditor.now_ms, WALL + auditor.now_ms)
    assert late_ms is not None
    assert late_ms > auditor.now_ms + TOOK_MS
    auditor.want(is_waited_for=True)
    soon_ms = auditor.debt.due_ms(auditor.now_ms, WALL + auditor.now_ms)
    assert soon_ms is not None
    assert soon_ms <= auditor.now_ms + 1_001


@given(st.lists(st.tuples(st.integers(0, 20_000), st.booleans(), st.booleans(), st.booleans()), max_size=20))
def test_what_is_wanted_is_settled_by_an_audit_that_began_later(
    events: list[tuple[int, bool, bool, bool]],
) -> None:
    auditor = Auditor()
    wanted_ms = 0
    for pause_ms, comes, waits, is_clean in events:
        auditor.now_ms += pause_ms
        if comes:
            auditor.debt.came(auditor.now_ms)
        wanted_ms = max(wanted_ms, auditor.want(is_waited_for=waits))
        auditor.until_settled(is_clean=is_clean, audits_max=2)
    auditor.until_settled()
    assert auditor.debt.due_ms(auditor.now_ms, WALL + auditor.now_ms) is None
    clean_ms = auditor.debt.clean_since_wall_ms
    assert clean_ms is not None
    assert clean_ms > wanted_ms
    assert clean_ms > WALL + auditor.debt.came_ms
