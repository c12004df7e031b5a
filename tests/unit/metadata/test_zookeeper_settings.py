"""ZooKeeper's TLS and authentication from the environment."""

import json

import pytest
from kazoo.security import CREATOR_ALL_ACL

from daybook.metadata.store.settings import zookeeper_options
from daybook.metadata.store.zookeeper import ZooKeeperOptions
from daybook.runtime.settings import SettingsError


def options(monkeypatch: pytest.MonkeyPatch, **variables: str) -> ZooKeeperOptions:
    """The options of these variables."""
    for name, value in variables.items():
        monkeypatch.setenv(f"DAYBOOK_ZOOKEEPER_{name}", value)
    return zookeeper_options()


def test_nothing_set_is_what_a_program_gets_without_options(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options(monkeypatch) == ZooKeeperOptions()


def test_files_of_tls_turn_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found = options(monkeypatch, TLS_CA="ca", TLS_CERTIFICATE="crt", TLS_KEY="key", TLS_KEY_PASSWORD="pw")
    assert (found.tls, found.ca_file, found.cert_file, found.key_file) == (True, "ca", "crt", "key")
    assert found.key_password == "pw"


@pytest.mark.parametrize("certificate", [{}, {"TLS_CERTIFICATE": "crt", "TLS_KEY": "key"}])
def test_nodes_that_a_certificate_leaves_open_are_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, certificate: dict[str, str]
) -> None:
    assert options(monkeypatch, **certificate).acl is None
    assert ("set a digest, or x509_owners" in caplog.text) is bool(certificate)


def test_subjects_of_certificates_own_what_any_of_them_makes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    owners = ["CN=bookie,O=x", "CN=operator"]
    found = options(monkeypatch, TLS_CERTIFICATE="crt", TLS_KEY="key", X509_OWNERS=json.dumps(owners))
    assert found.acl is not None
    assert [(acl.id.scheme, acl.id.id) for acl in found.acl] == [
        ("auth", ""),
        *(("x509", owner) for owner in owners),
    ]
    assert caplog.text == ""


def test_who_authenticates_owns_what_it_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = options(monkeypatch, DIGEST="me:secret")
    assert (found.auth, found.acl) == ((("digest", "me:secret"),), tuple(CREATOR_ALL_ACL))
    assert "secret" not in repr(found)
    found = options(monkeypatch, SASL_MECHANISM="DIGEST-MD5", SASL_USERNAME="me", SASL_PASSWORD="secret")
    assert found.sasl == {"mechanism": "DIGEST-MD5", "username": "me", "password": "secret"}
    assert found.acl == tuple(CREATOR_ALL_ACL)
    assert "secret" not in repr(found)


@pytest.mark.parametrize("half", ["TLS_CERTIFICATE", "TLS_KEY"])
def test_half_a_pair_is_refused(monkeypatch: pytest.MonkeyPatch, half: str) -> None:
    with pytest.raises(SettingsError, match="tls_certificate and tls_key go together"):
        options(monkeypatch, **{half: "file"})
