"""Who is lost: a bookie that stays away for longer than the delay, and nobody else (rule 33)."""

from daybook.core.audit.lost_bookies import LostBookies


def test_rule_33_a_rolling_restart_loses_no_bookie() -> None:
    tracker = LostBookies(delay_ms=60_000)
    everyone = frozenset("abcdef")
    now_ms = 0
    for _ in range(3):
        for name in sorted(everyone):
            tracker.observe(now_ms, everyone - {name}, frozenset())
            now_ms += 55_000
            tracker.observe(now_ms, everyone - {name}, frozenset())
            assert tracker.lost() == frozenset()
            tracker.observe(now_ms + 1, everyone, frozenset())
            now_ms += 1_000


def test_rule_33_a_bookie_is_lost_after_the_delay_and_a_listing_that_still_misses_it() -> None:
    tracker = LostBookies(delay_ms=60_000)
    tracker.observe(0, frozenset("abc"), frozenset())
    tracker.observe(1_000, frozenset("ab"), frozenset())
    assert tracker.next_check_ms() == 61_000
    tracker.observe(60_999, frozenset("ab"), frozenset())
    assert tracker.lost() == frozenset()
    assert tracker.missing() == frozenset("c")
    tracker.observe(61_000, frozenset("ab"), frozenset())
    assert tracker.lost() == frozenset("c")
    assert tracker.next_check_ms() is None
    tracker.observe(61_001, frozenset("abc"), frozenset())
    assert tracker.lost() == frozenset(), "it is back"


def test_rule_33_a_read_only_bookie_is_not_lost() -> None:
    tracker = LostBookies(delay_ms=1_000)
    tracker.observe(0, frozenset("abc"), frozenset())
    for now_ms in (1_000, 5_000, 9_000):
        tracker.observe(now_ms, frozenset("ab"), frozenset("c"))
        assert not tracker.lost() | tracker.missing()


def test_rule_33_auto_recovery_can_be_turned_off_for_all() -> None:
    tracker = LostBookies(delay_ms=1_000)
    tracker.observe(0, frozenset("abc"), frozenset())
    tracker.observe(10, frozenset("ab"), frozenset())
    tracker.set_enabled(enabled=False)
    tracker.observe(50_000, frozenset("ab"), frozenset())
    assert tracker.lost() == frozenset()
    assert tracker.next_check_ms() is None
    tracker.set_enabled(enabled=True)
    tracker.observe(50_001, frozenset("ab"), frozenset())
    assert tracker.lost() == frozenset(), "the delay begins anew"
    tracker.observe(51_001, frozenset("ab"), frozenset())
    assert tracker.lost() == frozenset("c")


def test_a_bookie_that_only_metadata_knows_can_be_lost_and_a_decommissioned_one_cannot() -> None:
    tracker = LostBookies(delay_ms=1_000)
    tracker.expect(frozenset("xy"))
    tracker.observe(0, frozenset("a"), frozenset())
    tracker.forget("y")
    tracker.observe(2_000, frozenset("a"), frozenset())
    assert tracker.lost() == frozenset("x")
