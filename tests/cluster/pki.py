"""Certificates of a control plane: an authority, the API server's certificate, and one for each client.

Kubernetes reads who a client is from its certificate: the common name is the user, each organisation a group.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.unit.runtime.certificates import new_authority, private_pem, subject


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
        self._authority = new_authority("kubernetes")
        self.certificate = folder / "ca.crt"
        self.certificate.write_bytes(self._authority.pem)

    def client(self, user: str, groups: Sequence[str] = ()) -> Pair:
        """A certificate for a user of the API server."""
        return self._issue(user, groups, x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]))

    def server(self, name: str, hosts: Sequence[str]) -> Pair:
        """A certificate for a server that is reached by these names and addresses."""
        names = x509.SubjectAlternativeName(list(map(_host, hosts)))
        return self._issue(name, (), x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), names)

    def _issue(self, name: str, groups: Sequence[str], *extensions: x509.ExtensionType) -> Pair:
        certificate, key = self._authority.sign(subject(name, groups), *extensions)
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pair.certificate.write_bytes(certificate)
        pair.key.write_bytes(key)
        return pair


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
        made.private.write_bytes(private_pem(key))
        made.public.write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        return made


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
