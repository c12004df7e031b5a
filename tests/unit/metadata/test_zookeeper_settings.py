"""ZooKeeper's TLS and authentication from the environment."""

import json

import pytest
from kazoo.security import CREATOR_ALL_ACL

from daybook.metadata.store.environment import zookeeper_options
from daybook.metadata.store.settings import options_of_variables
from daybook.metadata.store.zookeeper import ZooKeeperOptions
from daybook.runtime.settings import SettingsError


def options(monkeypatch: pytest.MonkeyPatch, **variables: str) -> ZooKeeperOptions:
    """The options of these variables."""
    for name, value in variables.items():
        monkeypatch.setenv(f"DAYBOOK_ZOOKEEPER_{name}", value)
    return zookeeper_options()


def test_without_variables_the_options_are_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options(monkeypatch) == ZooKeeperOptions() == options_of_variables()


def test_tls_files_enable_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    found = options(monkeypatch, TLS_CA="ca", TLS_CERTIFICATE="crt", TLS_KEY="key", TLS_KEY_PASSWORD="pw")
    assert (found.tls, found.ca_file, found.cert_file, found.key_file) == (True, "ca", "crt", "key")
    assert found.key_password == "pw"


@pytest.mark.parametrize("certificate", [{}, {"TLS_CERTIFICATE": "crt", "TLS_KEY": "key"}])
def test_open_nodes_with_a_certificate_cause_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, certificate: dict[str, str]
) -> None:
    assert options(monkeypatch, **certificate).acl is None
    assert ("set a digest, or x509_owners" in caplog.text) is bool(certificate)


def test_the_subjects_of_all_certificates_own_the_nodes(
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


def test_the_authenticated_user_owns_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
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
