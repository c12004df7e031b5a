"""Certificates of a control plane: an authority, the API server's certificate, and one for each client.

Kubernetes reads who a client is from its certificate: the common name is the user, each organisation a group.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE: Final = dt.timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs the certificates of one cluster; everything is written into `folder`."""

    def __init__(self, folder: Path) -> None:
        """Make the authority's own key and certificate, `ca.crt`."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject("kubernetes")
        constraint = x509.BasicConstraints(ca=True, path_length=0)
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        built = self._builder(self._name, self._key)
        built = built.add_extension(constraint, critical=True).add_extension(usage, critical=True)
        self.certificate = folder / "ca.crt"
        self.certificate.write_bytes(_pem(built.sign(self._key, hashes.SHA256())))

    def client(self, user: str, groups: Sequence[str] = ()) -> Pair:
        """A certificate for a user of the API server."""
        return self._issue(user, _subject(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def server(self, name: str, hosts: Sequence[str]) -> Pair:
        """A certificate for a server that is reached by these names and addresses."""
        return self._issue(name, _subject(name), ExtendedKeyUsageOID.SERVER_AUTH, hosts)

    def _issue(
        self, name: str, subject: x509.Name, usage: x509.ObjectIdentifier, hosts: Sequence[str]
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        built = self._builder(subject, key)
        built = built.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if hosts:
            built = built.add_extension(x509.SubjectAlternativeName(list(map(_host, hosts))), critical=False)
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pair.certificate.write_bytes(_pem(built.sign(self._key, hashes.SHA256())))
        pair.key.write_bytes(_private(key))
        return pair

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _LIFE)
            .not_valid_after(now + _LIFE)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )


@dataclass(frozen=True, slots=True)
class TokenKey:
    """The key that signs ServiceAccounts' tokens, and its public half."""

    private: Path
    public: Path

    @classmethod
    def make(cls, folder: Path) -> Self:
        """Draw one and write it into `folder`."""
        key = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
        made = cls(folder / "tokens.key", folder / "tokens.pub")
        made.private.write_bytes(_private(key))
        made.public.write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        return made


def _subject(common: str, organisations: Sequence[str] = ()) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organisations]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
