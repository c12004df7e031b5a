"""A broker's settings: what cannot work is refused with a text that says what to do."""

from pathlib import Path
from typing import Any

import pytest
from daybook_broker.settings import BrokerSettings
from pydantic import ValidationError

from daybook.core.quorum import Quorum
from daybook.core.topics.open_ledger import ManagedLedgerPolicy
from daybook.core.topics.policy import Policy


def make(**changes: Any) -> BrokerSettings:
    """Settings with what must be given."""
    return BrokerSettings(**{"broker_id": "broker-0", "zookeeper": "zk:2181", **changes})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"broker_id": "a/b"}, "cannot name a broker"),
        ({"address": "nowhere"}, "is not an address"),
        ({"advertised_address": "nowhere"}, "is not an address"),
        ({"listeners": ("internal",)}, "write name:pulsar://host:port"),
        ({"listeners": ("internal:pulsar://nowhere",)}, "is not an address"),
        ({"write_quorum": 4}, "quorum"),
        ({"durability": "sync"}, "set degrade=never"),
        ({"durability": "some"}, "async"),
        ({"tls_certificate": Path("c")}, "tls_certificate and tls_key go together"),
        ({"bookie_tls_key": Path("c")}, "bookie_tls_certificate and bookie_tls_key go together"),
        ({"tls_address": "0.0.0.0:6651"}, "tls_address and tls_certificate go together"),
        ({"tls_ca": Path("c")}, "needs tls_address"),
        ({"admin_tls_address": "0.0.0.0:8443"}, "tls_address and tls_certificate go together"),
        ({"admin_address": ""}, "needs admin_address or admin_tls_address"),
        ({"authentication": ("token",)}, "needs token_secret_file or token_public_key_file"),
        ({"token_secret_file": Path("s")}, "needs token_secret_file or token_public_key_file"),
        ({"authentication": ("tls",)}, "needs tls_ca"),
        ({"authentication": ("basic",)}, "'token' or 'tls'"),
        ({"superuser_roles": ("root",)}, "without it nobody has a role"),
        ({"ledger_age_ms_min": 2, "ledger_age_ms_max": 1}, "is over ledger_age_ms_max"),
        ({"retention_ms": -2}, "greater than or equal"),
        ({"no_such_setting": 1}, "Extra inputs"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        make(**changes)


def test_a_topics_ledgers_are_by_default_as_pulsar_has_them() -> None:
    settings = make()
    assert settings.ledger_policy == ManagedLedgerPolicy()
    assert settings.quorum == Quorum(3, 3, 2)
    assert settings.policy == Policy()
    assert make(durability="sync", degrade="never", ttl_ms=7).policy.quorum == Quorum(3, 3, 3)


def test_a_listener_has_an_address_for_each_way_to_connect() -> None:
    settings = make(listeners=("internal:pulsar://10.0.0.7:6650", "internal:pulsar+ssl://10.0.0.7:6651"))
    assert settings.listener_url("internal", tls=False) == "pulsar://10.0.0.7:6650"
    assert settings.listener_url("internal", tls=True) == "pulsar+ssl://10.0.0.7:6651"
    assert settings.listener_url("external", tls=False) is None
