"""Tokens: JWTs of Pulsar's kind, checked with a secret or a public key.

The algorithm follows from the key and never from the token, so that nobody signs with a public key as if it were a secret. No text
here contains a token or a part of one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key
from jwt.types import Options

from daybook.core.errors import DaybookError, PolicyError
from daybook.core.topics.permissions import check_role
from daybook.runtime.logs import get_logger
from daybook_broker.errors import AuthenticationError

log = get_logger(__name__)

SECRET_BYTES_MIN: Final = 32
"""Of an HS256 secret: as long as what it makes."""
RSA_BITS_MIN: Final = 2048
_CHECKS: Final[Options] = {"verify_aud": False, "verify_iat": False, "verify_sub": False}
"""Pulsar's tokens have no audience unless somebody asks for one; clocks that differ say nothing; the role is checked here."""


class KeyFileError(DaybookError):
    """The broker's key for tokens cannot be used."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a client is, and until when (seconds since 1970; None: for as long as it is connected)."""

    role: str
    expires_at_s: float | None = None


class TokenKey:
    """What tokens are checked with."""

    def __init__(self, key: Any, algorithm: str, role_claim: str = "sub") -> None:
        self._key = key
        self._algorithm = algorithm
        self._claim = role_claim

    def identify(self, token: str) -> Identity:
        """Whose token it is. Raises AuthenticationError."""
        try:
            claims = jwt.decode(token, self._key, algorithms=[self._algorithm], options=_CHECKS)
            expires_at_s = float(claims["exp"]) if "exp" in claims else None
        except jwt.ExpiredSignatureError as error:
            msg = "the token has expired: get a new one"
            raise AuthenticationError(msg) from error
        except jwt.ImmatureSignatureError as error:
            msg = "the token is not valid yet: compare the clocks, or wait"
            raise AuthenticationError(msg) from error
        except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError) as error:
            msg = f"the token was not signed with {self._algorithm} and the key of this cluster: get one that was"
            raise AuthenticationError(msg) from error
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            msg = f"what came as a token is no JWT that can be read ({type(error).__name__}): get a new one"
            raise AuthenticationError(msg) from None
        role = claims.get(self._claim)
        try:
            return Identity(check_role(role if isinstance(role, str) else ""), expires_at_s)
        except PolicyError as error:
            msg = f"the token names no role in its claim {self._claim!r}: get one that does"
            raise AuthenticationError(msg) from error


def secret_key(file: Path, role_claim: str) -> TokenKey:
    """The key of HS256 tokens. Raises KeyFileError."""
    secret = _read(file)
    if len(secret) < SECRET_BYTES_MIN or secret.lstrip().startswith(b"-----BEGIN"):
        msg = f"token_secret_file {file} has no secret of at least {SECRET_BYTES_MIN} bytes: make one with `openssl rand -out FILE 32`"
        raise KeyFileError(msg)
    return TokenKey(secret, "HS256", role_claim)


def public_key(file: Path, role_claim: str) -> TokenKey:
    """The key of RS256 or ES256 tokens, whichever kind of key it is. Raises KeyFileError."""
    data = _read(file)
    load = load_pem_public_key if data.lstrip().startswith(b"-----BEGIN") else load_der_public_key
    try:
        key = load(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        msg = f"token_public_key_file {file} has no public key in PEM or DER: {error}"
        raise KeyFileError(msg) from error
    if isinstance(key, RSAPublicKey) and key.key_size >= RSA_BITS_MIN:
        return TokenKey(key, "RS256", role_claim)
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return TokenKey(key, "ES256", role_claim)
    msg = f"token_public_key_file {file} is neither RSA of {RSA_BITS_MIN} bits or more nor of the curve P-256: make such a key"
    raise KeyFileError(msg)


class FollowedKey:
    """The key of a file that may be replaced at any time. One that cannot be used is logged once, and the last good one stays in use."""

    def __init__(self, file: Path, role_claim: str, read: Callable[[Path, str], TokenKey]) -> None:
        """`read` is `secret_key` or `public_key`. Raises KeyFileError."""
        self._file = file
        self._claim = role_claim
        self._read = read
        self._mark = _mark(file)
        self._key = read(file, role_claim)
        self._reason = ""

    def identify(self, token: str) -> Identity:
        """Whose token it is. Raises AuthenticationError."""
        mark = _mark(self._file)
        if mark != self._mark:
            try:
                self._key = self._read(self._file, self._claim)
            except KeyFileError as error:
                if str(error) != self._reason:
                    self._reason = str(error)
                    log.error(
                        "a new key of tokens cannot be used; the old one stays in use", why=self._reason
                    )
            else:
                self._mark, self._reason = mark, ""
                log.info("a new key of tokens is in use", file=str(self._file))
        return self._key.identify(token)


def _mark(file: Path) -> tuple[int, int, int] | None:
    """It changes when the file is replaced or rewritten; None for one that cannot be read now."""
    try:
        status = file.stat()
    except OSError:
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        msg = f"the key of tokens cannot be read: {error}"
        raise KeyFileError(msg) from error
