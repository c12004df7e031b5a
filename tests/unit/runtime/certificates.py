"""Certificates for tests: an authority, and certificates that are valid or invalid in one chosen way."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from daybook.runtime.tls import TlsFiles

DAY = dt.timedelta(days=1)


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
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(host)]
        if host == "localhost":
            names.append(x509.IPAddress(ip_address("127.0.0.1")))
        names += [x509.UniformResourceIdentifier(uri) for uri in uris]
        end = dt.datetime.now(dt.UTC) + days_left * DAY
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(end - 5 * DAY)
            .not_valid_after(end)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
            )
            .sign(self.key, hashes.SHA256())
        )
        files = TlsFiles(folder / f"{name}.crt", folder / f"{name}.key", folder / f"{name}.ca")
        assert files.certificate is not None
        assert files.key is not None
        assert files.ca is not None
        for path, data in (
            (files.certificate, certificate.public_bytes(serialization.Encoding.PEM)),
            (files.key, _private(key)),
            (files.ca, (trusts or self).pem),
        ):
            fresh = path.with_suffix(".new")
            fresh.write_bytes(data)
            fresh.rename(path)
        return files


def new_authority(name: str = "test CA") -> Authority:
    """A self-signed authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 30 * DAY)
        .not_valid_after(now + 30 * DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(key, certificate)


def _name(common: str) -> x509.Name:
    """A name with a common name only."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key as unencrypted PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
