"""Tokens are believed only with the right key, algorithm, time and role; no error shows one."""

import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from daybook_broker.auth.http import operation_of
from daybook_broker.auth.tokens import Identity, KeyFileError, TokenKey, public_key, secret_key
from daybook_broker.errors import AuthenticationError

from daybook.core.topics.permissions import Operation

SECRET = b"s" * 32
TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"


def _file(folder: Path, data: bytes) -> Path:
    file = folder / "key"
    file.write_bytes(data)
    return file


def _refused(key: TokenKey, token: str, reason: str) -> None:
    with pytest.raises(AuthenticationError, match=reason) as caught:
        key.identify(token)
    for part in token.split("."):
        assert len(part) < 8 or part not in str(caught.value)


def test_a_token_signed_with_the_secret_names_the_role(tmp_path: Path) -> None:
    key = secret_key(_file(tmp_path, SECRET), "sub")
    assert key.identify(jwt.encode({"sub": "app"}, SECRET, "HS256")) == Identity("app")
    later_s = int(time.time()) + 60
    claims = {"sub": "app", "exp": later_s, "aud": "any", "iat": later_s}
    assert key.identify(jwt.encode(claims, SECRET, "HS256")) == Identity("app", later_s)
    by_name = secret_key(_file(tmp_path, SECRET), "name")
    assert by_name.identify(jwt.encode({"name": "x", "sub": "app"}, SECRET, "HS256")) == Identity("x")


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"sub": "app", "exp": 1}, "has expired"),
        ({"sub": "app", "nbf": 2**40}, "not valid yet"),
        ({}, "names no role in its claim 'sub'"),
        ({"sub": 7}, "names no role"),
        ({"sub": " "}, "names no role"),
        ({"sub": ["app"]}, "names no role"),
        ({"sub": "app", "exp": "soon"}, "no JWT that can be read"),
        ({"sub": "app", "exp": float("inf")}, "no JWT that can be read"),
    ],
)
def test_a_token_that_says_too_little_is_refused(claims: dict[str, Any], reason: str) -> None:
    _refused(TokenKey(SECRET, "HS256"), jwt.encode(claims, SECRET, "HS256"), reason)


def test_a_token_that_somebody_else_signed_is_refused(tmp_path: Path) -> None:
    key = TokenKey(SECRET, "HS256")
    _refused(key, jwt.encode({"sub": "app"}, b"x" * 32, "HS256"), "not signed with HS256")
    _refused(key, jwt.encode({"sub": "app"}, SECRET + SECRET, "HS512"), "not signed with HS256")
    _refused(key, jwt.encode({"sub": "app"}, "", "none"), "not signed with HS256")
    for text in ("", "a.b.c", "no token", "é", "." * 5000):
        _refused(key, text, "no JWT that can be read")
    private = rsa.generate_private_key(65537, 2048)
    pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    public = public_key(_file(tmp_path, pem), "sub")
    # the classic mistake: the public key taken for a secret
    header, body = (
        jwt.utils.base64url_encode(each).decode() for each in (b'{"alg":"HS256"}', b'{"sub":"root"}')
    )
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    forged = jwt.utils.base64url_encode(algorithm.sign(f"{header}.{body}".encode(), pem)).decode()
    _refused(public, f"{header}.{body}.{forged}", "not signed with RS256")


@pytest.mark.parametrize("encoding", [Encoding.PEM, Encoding.DER])
def test_public_keys_check_what_their_private_keys_signed(tmp_path: Path, encoding: Encoding) -> None:
    for private, algorithm in (
        (rsa.generate_private_key(65537, 2048), "RS256"),
        (ec.generate_private_key(ec.SECP256R1()), "ES256"),
    ):
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        public = private.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)
        key = public_key(_file(tmp_path, public), "sub")
        assert key.identify(jwt.encode({"sub": "app"}, pem, algorithm)) == Identity("app")
        _refused(key, jwt.encode({"sub": "app"}, SECRET, "HS256"), f"not signed with {algorithm}")


def test_keys_that_are_weak_or_none_stop_the_start(tmp_path: Path) -> None:
    for data in (b"short", b"-----BEGIN PUBLIC KEY-----" + b"x" * 32):
        with pytest.raises(KeyFileError, match="at least 32 bytes"):
            secret_key(_file(tmp_path, data), "sub")
    with pytest.raises(KeyFileError, match="cannot be read"):
        secret_key(tmp_path / "missing", "sub")
    for key in (ed25519.Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP384R1())):
        pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        with pytest.raises(KeyFileError, match="neither RSA"):
            public_key(_file(tmp_path, pem), "sub")
    for data in (b"nothing", b"-----BEGIN NOTHING"):
        with pytest.raises(KeyFileError, match="no public key"):
            public_key(_file(tmp_path, data), "sub")


@pytest.mark.parametrize(
    ("method", "route", "expected"),
    [
        ("GET", f"{TOPIC}/stats", Operation.LOOK),
        ("GET", "/lookup/v2/topic/persistent/{tenant}/{namespace}/{topic}", Operation.LOOK),
        ("GET", f"{NAMESPACE}/topics", Operation.LOOK),
        ("PUT", TOPIC, Operation.MANAGE),
        ("DELETE", f"{TOPIC}/partitions", Operation.MANAGE),
        ("POST", f"{TOPIC}/retention", Operation.MANAGE),
        ("POST", f"{TOPIC}/subscription/{{subscription}}/skip_all", Operation.CONSUME),
        ("GET", f"{NAMESPACE}/permissions", Operation.MANAGE),
        ("POST", f"{NAMESPACE}/permissions/{{role}}", Operation.GOVERN),
        ("POST", f"{NAMESPACE}/retention", Operation.GOVERN),
        ("PUT", f"{NAMESPACE}/unload", Operation.GOVERN),
        ("PUT", NAMESPACE, Operation.GOVERN),
        ("GET", "/admin/v2/namespaces/{tenant}", Operation.GOVERN),
        ("PUT", "/admin/v2/tenants/{tenant}", Operation.GOVERN),
        ("GET", "/admin/v2/brokers/load", Operation.GOVERN),
        ("GET", "/daybook/v1/topics", Operation.OBSERVE),
        ("GET", "/daybook/v1/topics/{topic}", Operation.LOOK),
        ("POST", "/daybook/v1/topics/{topic}/trim", Operation.MAINTAIN),
        ("POST", "/daybook/v1/topics/{topic}/offload", Operation.MAINTAIN),
        ("POST", "/daybook/v1/topics/{topic}/restore", Operation.MAINTAIN),
    ],
)
def test_a_request_needs_what_its_path_says(method: str, route: str, expected: Operation) -> None:
    assert operation_of(method, route) is expected
