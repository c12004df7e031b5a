"""What a policy says to jobs."""

from typing import Any

import pytest

from daybook.core.errors import PolicyError
from daybook.core.topics.job_terms import DEFAULT_LAG_MS, CompactionTerms, OffloadTerms, Timing
from daybook.core.topics.policy import PolicyLayer


@pytest.mark.parametrize(
    "schedule",
    [
        "0 3 * * *",
        "*/5 0-23/2 1,15 JAN-dec mon-Fri",
        "59 23 31 12 6",
        "? 00 01 01 0",
        "@daily",
        "@Hourly",
    ],
)
def test_a_schedule_is_what_cronjobs_take(schedule: str) -> None:
    assert Timing(schedule).schedule == schedule


@pytest.mark.parametrize(
    "schedule",
    [
        "",
        "0 3 * *",
        "0 3 * * * *",
        "0  3 * * *",
        "60 3 * * *",
        "0 24 * * *",
        "0 3 0 * *",
        "0 3 32 * *",
        "0 3 * 13 *",
        "0 3 * * 7",
        "0 3 * * */0",
        "0 3 * * mo",
        "@reboot",
        "TZ=UTC 0 3 * * *",
        "0 3 * * *\n",
        "0," * 100 + "0 3 * * *",
    ],
)
def test_what_no_schedule_is_is_refused_with_one(schedule: str) -> None:
    with pytest.raises(PolicyError, match="use a cron line of five fields, like '0 3 \\* \\* \\*'"):
        Timing(schedule)


@pytest.mark.parametrize("zone", ["UTC", "Etc/GMT+8", "America/Argentina/Buenos_Aires", "Europe/Berlin"])
def test_a_time_zone_is_a_name(zone: str) -> None:
    assert Timing("@daily", zone).time_zone == zone


@pytest.mark.parametrize("zone", ["", "europe/berlin", "Local", "A/b/c/d", "Europe/", "A" * 129])
def test_what_no_time_zone_is_is_refused_with_one(zone: str) -> None:
    with pytest.raises(PolicyError, match="use a name like Europe/Berlin"):
        Timing("@daily", zone)


def test_the_terms_of_a_policy_come_back_with_the_fields_of_a_later_release() -> None:
    record = {
        "formatVersion": 1,
        "compaction": {
            "schedule": "0 3 * * *",
            "timeZone": "Europe/Berlin",
            "keepsKeyless": False,
            "later": 1,
        },
        "offload": {
            "schedule": "@daily",
            "timeZone": "Etc/UTC",
            "to": "s3://bucket/daybook",
            "lagMs": 0,
            "withRows": True,
            "later": [2],
        },
    }
    found = PolicyLayer.from_record(record)
    assert found.to_record() == record
    assert found.compaction == CompactionTerms(
        Timing("0 3 * * *", "Europe/Berlin"), keeps_keyless=False, unknown_fields={"later": 1}
    )
    assert found.offload is not None
    assert found.offload.lag_ms == 0


def test_what_is_left_out_of_the_terms_is_as_usual() -> None:
    found = PolicyLayer.from_record(
        {"compaction": {"schedule": "@daily"}, "offload": {"schedule": "@daily", "to": "file:///data"}}
    )
    assert found.compaction == CompactionTerms(Timing("@daily"))
    assert found.offload == OffloadTerms(Timing("@daily"), "file:///data", DEFAULT_LAG_MS)


GOOD = {"schedule": "@daily", "to": "s3://b"}


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"compaction": "@daily"}, "compaction='@daily': use an object with a schedule"),
        ({"compaction": {}}, "schedule='': use a cron line"),
        ({"compaction": {"schedule": 3}}, "schedule='3' is not possible: use a text"),
        ({"compaction": {"schedule": "@daily", "timeZone": "here"}}, "timeZone='here': use a name"),
        ({"compaction": {"schedule": "@daily", "keepsKeyless": 1}}, "keepsKeyless='1' is not possible"),
        ({"offload": [1]}, "offload=.*use an object"),
        ({"offload": {"schedule": "@daily"}}, "offload.to='': use a URI"),
        ({"offload": GOOD | {"to": "/data"}}, "offload.to='/data': use a URI"),
        ({"offload": GOOD | {"to": "s3://b c"}}, "use a URI"),
        ({"offload": GOOD | {"to": "s3://" + "b" * 1024}}, "use a URI of at most 1024"),
        ({"offload": GOOD | {"lagMs": -1}}, "offload.lagMs=-1: at least 0"),
        ({"offload": GOOD | {"lagMs": "1"}}, "offload.lagMs='1' is not possible: use a whole number"),
        ({"offload": GOOD | {"withRows": "yes"}}, "withRows='yes' is not possible"),
    ],
)
def test_terms_that_cannot_be_are_refused_with_what_can(record: dict[str, Any], text: str) -> None:
    with pytest.raises(PolicyError, match=text):
        PolicyLayer.from_record(record)
