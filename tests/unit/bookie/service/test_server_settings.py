"""Settings that cannot work together are refused, and every bound on memory adds up to less than 512 MiB."""

from pathlib import Path
from typing import Any

import pytest
from daybook_bookie.settings import BookieSettings
from pydantic import SecretStr, ValidationError

from daybook.metadata.store.settings import options_of_process

MIB = 1024 * 1024


def make(**changes: Any) -> BookieSettings:
    """Settings with what must be given."""
    values: dict[str, Any] = {
        "bookie_id": "ns.pool-0",
        "zookeeper": "zk:2181",
        "journal_dir": Path("j"),
        "store_dir": Path("s"),
    }
    return BookieSettings(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bookie_id": "a/b"}, "cannot name a bookie"),
        ({"address": "nowhere"}, "is not an address"),
        ({"disk_full_ratio": 0.99}, "disk_full_ratio < disk_reserve_ratio"),
        ({"disk_low_water_ratio": 0.97}, "disk_low_water_ratio"),
        ({"flush_bytes": 65 * MIB}, "is over write_cache_bytes"),
        ({"tls_certificate": Path("c")}, "go together"),
        ({"tls_ca": Path("c")}, "needs tls_certificate"),
        ({"write_cache_bytes": MIB}, "greater than or equal"),
        ({"no_such_setting": 1}, "Extra inputs"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        make(**changes)


def test_the_bounds_on_memory_add_up() -> None:
    settings = make()
    lmdb_transaction = 32 * MIB
    assert 2 * settings.write_cache_bytes + settings.journal_queue_bytes + lmdb_transaction < 256 * MIB


def test_zookeeper_is_reached_as_the_settings_say() -> None:
    plain = options_of_process(make())
    assert (plain.tls, plain.auth, plain.acl) == (False, (), None)
    secured = options_of_process(
        make(zookeeper_tls=True, zookeeper_tls_ca=Path("ca"), zookeeper_digest=SecretStr("me:secret"))
    )
    assert (secured.tls, secured.ca_file, secured.auth) == (True, "ca", (("digest", "me:secret"),))
    assert secured.acl, "nodes belong to who made them"
    assert "secret" not in repr(make(zookeeper_digest=SecretStr("me:secret")))
