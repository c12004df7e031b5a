"""Certificates for tests: an authority, and certificates that are valid or invalid in one chosen way."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from daybook.runtime.tls import TlsFiles

DAY = dt.timedelta(days=1)
_SIGNS = x509.KeyUsage(
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
"""What an authority's key is for: strict verifiers refuse one that does not say so."""


@dataclass(frozen=True)
class Authority:
    """A certificate authority; two of them never trust each other."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> bytes:
        """The authority's certificate."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self,
        folder: Path,
        name: str,
        *,
        host: str = "localhost",
        days_left: int = 1,
        trusts: "Authority | None" = None,
        uris: Sequence[str] = (),
    ) -> TlsFiles:
        """Write `<name>.crt`, `.key` and `.ca` into `folder`, for `host` and 127.0.0.1 if the host is localhost.

        Negative `days_left`: expired. `trusts`: the authority in the CA file, this one by default.
        """
        names: list[x509.GeneralName] = [x509.DNSName(host)]
        if host == "localhost":
            names.append(x509.IPAddress(ip_address("127.0.0.1")))
        names += [x509.UniformResourceIdentifier(uri) for uri in uris]
        end = dt.datetime.now(dt.UTC) + days_left * DAY
        certificate, key = self.sign(subject(name), x509.SubjectAlternativeName(names), end=end)
        files = TlsFiles(folder / f"{name}.crt", folder / f"{name}.key", folder / f"{name}.ca")
        assert files.certificate is not None
        assert files.key is not None
        assert files.ca is not None
        for path, data in (
            (files.certificate, certificate),
            (files.key, key),
            (files.ca, (trusts or self).pem),
        ):
            fresh = path.with_suffix(".new")
            fresh.write_bytes(data)
            fresh.rename(path)
        return files

    def sign(
        self, name: x509.Name, *extensions: x509.ExtensionType, end: dt.datetime | None = None
    ) -> tuple[bytes, bytes]:
        """A certificate for `name`, for five days until `end` (default: in two days), and its new key; both as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        end = end or dt.datetime.now(dt.UTC) + 2 * DAY
        built = (
            _builder(name, self.certificate.subject, key).not_valid_before(end - 5 * DAY).not_valid_after(end)
        )
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        for extension in (*extensions, issuer):
            built = built.add_extension(extension, critical=False)
        signed = built.sign(self.key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM), private_pem(key)


def new_authority(name: str = "test CA") -> Authority:
    """A self-signed authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    certificate = (
        _builder(subject(name), subject(name), key)
        .not_valid_before(now - 30 * DAY)
        .not_valid_after(now + 30 * DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_SIGNS, critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(key, certificate)


def _builder(name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def subject(common: str, organisations: Sequence[str] = ()) -> x509.Name:
    """A name of its common name and these organisations."""
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organisations]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    """The key as unencrypted PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
