"""TLS from files that may be replaced at any time, for example by a certificate manager.

A server uses new certificates for new connections without a restart. A channel cannot: its owner calls
`client_credentials` again for each connection and closes channels that were opened with older credentials. This module
reads the files as one consistent set and checks them before use, so that a half-done rotation keeps the old certificate
instead of breaking the next connection.
"""

import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import grpc

from daybook.runtime.clock import monotonic_s
from daybook.runtime.logs import get_logger

_LOG: Final = get_logger(__name__)
_READ_ATTEMPTS: Final = 5
RENEWAL_CHECK_INTERVAL_S: Final = 1.0

Fingerprint: TypeAlias = tuple[tuple[int, int, int], ...]


class TlsError(Exception):
    """A certificate, key or CA file is missing, unreadable or does not match the others."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of one side. Certificate and key belong together; the CA signs the other side's certificate.

    A server with a CA requires certificates of its clients (mutual TLS). A client without one trusts the system's CAs.
    """

    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None

    def __post_init__(self) -> None:
        """Raise TlsError for a certificate without a key, or a key without a certificate."""
        if (self.certificate is None) != (self.key is None):
            msg = "TLS needs certificate and key together: set both, or none"
            raise TlsError(msg)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that are set."""
        return tuple(path for path in (self.certificate, self.key, self.ca) if path is not None)


@dataclass(frozen=True, slots=True)
class _Material:
    """The bytes of one consistent set of files."""

    fingerprint: Fingerprint
    certificate: bytes | None
    key: bytes | None
    ca: bytes | None


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Credentials for `add_secure_port` that follow the files. Raises TlsError if they cannot be used now.

    Later a set that cannot be used is logged once, and the last good one stays in use.
    """
    if files.certificate is None:
        msg = "a TLS server needs a certificate and its key: set both"
        raise TlsError(msg)
    rotation = _Rotation(files)
    return grpc.dynamic_ssl_server_credentials(
        rotation.configuration(),
        rotation.fetch,  # type: ignore[arg-type]  # None means "no change"; the stub does not know
        require_client_authentication=files.ca is not None,
    )


class ClientTls:
    """A client's credentials from the files as they were when this object was created."""

    def __init__(self, files: TlsFiles) -> None:
        """Read and check the files. Raises TlsError."""
        self._files = files
        material = _load(files)
        self._fingerprint = material.fingerprint
        self._reason = ""
        self.credentials = grpc.ssl_channel_credentials(material.ca, material.key, material.certificate)

    def is_stale(self) -> bool:
        """Whether the files are now a different, usable set: then create a new object and rebuild the channels."""
        try:
            return _fingerprint(self._files) != self._fingerprint and bool(_load(self._files))
        except TlsError as error:
            if str(error) != self._reason:
                self._reason = str(error)
                _LOG.error("new TLS files cannot be used; the old ones stay in use", reason=self._reason)
            return False

    def renewed(self) -> "ClientTls":
        """New credentials if these are stale, else these."""
        try:
            return ClientTls(self._files) if self.is_stale() else self
        except TlsError:
            return self  # replaced once more since the last check: the next check decides


class ClientCredentials:
    """The argument of `daybook.connect(credentials=…)`: the present credentials, by calling it.

    It returns the same object until the files have changed, and checks the files once in `RENEWAL_CHECK_INTERVAL_S`. Later an
    unusable set of files is logged once, and the last good one stays in use.
    """

    def __init__(self, files: TlsFiles) -> None:
        """Read and check the files. Raises TlsError."""
        self._tls = ClientTls(files)
        self._checked_s = monotonic_s()
        self._lock = threading.Lock()
        self._contexts = TlsContexts(files, server_side=False)

    def __call__(self) -> grpc.ChannelCredentials:
        """For a channel of gRPC."""
        with self._lock:
            now_s = monotonic_s()
            if now_s - self._checked_s >= RENEWAL_CHECK_INTERVAL_S:
                self._checked_s = now_s
                self._tls = self._tls.renewed()
            return self._tls.credentials

    def ssl_context(self) -> ssl.SSLContext:
        """For a connection without gRPC."""
        return self._contexts.current()


def client_credentials(files: TlsFiles) -> ClientCredentials:
    """Credentials that follow the files. Raises TlsError if they are unusable now."""
    return ClientCredentials(files)


class TlsContexts:
    """Contexts of Python's own TLS that follow the files, for connections without gRPC."""

    def __init__(self, files: TlsFiles, *, server_side: bool) -> None:
        """Read and check the files. Raises TlsError."""
        self._files = files
        self._server_side = server_side
        self._lock = threading.Lock()
        self._reason = ""
        self._fingerprint = _fingerprint(files)
        self._context = self._make()

    def current(self) -> ssl.SSLContext:
        """The context of the last good set of files."""
        with self._lock:
            try:
                fingerprint = _fingerprint(self._files)
                if fingerprint != self._fingerprint:
                    self._context = self._make()
                    self._fingerprint = fingerprint
                    self._reason = ""
            except TlsError as error:
                if str(error) != self._reason:
                    self._reason = str(error)
                    _LOG.error("new TLS files cannot be used; the old ones stay in use", reason=self._reason)
            return self._context

    def _make(self) -> ssl.SSLContext:
        """A context of the files as they are. Raises TlsError."""
        files = self._files
        _load(files)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if self._server_side else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            if files.certificate is not None:
                context.load_cert_chain(files.certificate, files.key, password="")
            if files.ca is not None:
                context.load_verify_locations(files.ca)
            elif not self._server_side:
                context.load_default_certs()
        except (OSError, ValueError) as error:
            msg = f"the TLS files {', '.join(map(str, files.paths))} cannot be used together: {error}"
            raise TlsError(msg) from error
        if self._server_side and files.ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class _Rotation:
    """Returns a new configuration when the files have changed; gRPC calls it before every handshake, in any thread."""

    def __init__(self, files: TlsFiles) -> None:
        """Read and check the files. Raises TlsError."""
        self._files = files
        self._lock = threading.Lock()
        self._material = _load(files)
        self._reason = ""

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """The configuration of the last good set."""
        material = self._material
        assert material.key is not None
        assert material.certificate is not None
        return grpc.ssl_server_certificate_configuration(
            [(material.key, material.certificate)], root_certificates=material.ca
        )

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """The new configuration; None to keep the old one."""
        with self._lock:
            try:
                if _fingerprint(self._files) == self._material.fingerprint:
                    return None
                self._material = _load(self._files)
            except TlsError as error:
                if str(error) != self._reason:
                    self._reason = str(error)
                    _LOG.error("new TLS files cannot be used; the old ones stay in use", reason=self._reason)
                return None
            self._reason = ""
            _LOG.info("new TLS files are in use", certificate=str(self._files.certificate))
            return self.configuration()


def _fingerprint(files: TlsFiles) -> Fingerprint:
    """Values that change when a file is replaced, rewritten, or reached through another link. Raises TlsError."""
    marks = []
    for path in files.paths:
        try:
            status = path.stat()
        except OSError as error:
            msg = f"the TLS file {path} cannot be read: {error.strerror}"
            raise TlsError(msg) from error
        marks.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(marks)


def _load(files: TlsFiles) -> _Material:
    """Read all files as one consistent set, and check them. Raises TlsError."""
    for _ in range(_READ_ATTEMPTS):
        before = _fingerprint(files)
        try:
            material = _Material(before, _read(files.certificate), _read(files.key), _read(files.ca))
            _check(files, material)
        except TlsError:
            if _fingerprint(files) == before:
                raise
        else:
            if _fingerprint(files) == before:
                return material
    msg = f"the TLS files {', '.join(map(str, files.paths))} change faster than they can be read"
    raise TlsError(msg)


def _read(path: Path | None) -> bytes | None:
    """The file's bytes. Raises TlsError."""
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        msg = f"the TLS file {path} cannot be read: {error.strerror}"
        raise TlsError(msg) from error


def _check(files: TlsFiles, material: _Material) -> None:
    """Raise TlsError unless the key matches the certificate and the CA file contains certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if files.certificate is not None and files.key is not None:
        try:
            context.load_cert_chain(files.certificate, files.key, password="")
        except (OSError, ValueError) as error:
            msg = (
                f"certificate {files.certificate} and key {files.key} cannot be used together: {error}; "
                "both must be PEM, the key unencrypted and the certificate's own"
            )
            raise TlsError(msg) from error
    if material.ca is not None:
        try:
            context.load_verify_locations(cadata=material.ca.decode("ascii"))
        except (ssl.SSLError, ValueError) as error:
            msg = f"the CA file {files.ca} contains no usable certificate: {error}; it must be PEM"
            raise TlsError(msg) from error
