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
from typing import Final, Self, TypeAlias

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
    """One consistent set of files."""

    fingerprint: Fingerprint
    certificate: bytes | None
    key: bytes | None
    ca: bytes | None
    context: ssl.SSLContext
    """It has loaded them, which showed that they can be used."""


class _Changes:
    """Notices when the files have become another usable set; an unusable one is logged once."""

    def __init__(self, files: TlsFiles, protocol: int = ssl.PROTOCOL_TLS_SERVER) -> None:
        """Read and check the files. Raises TlsError."""
        self._files = files
        self._protocol = protocol
        self._reason = ""
        self.known = _load(files, protocol)
        """The set in use."""

    def usable(self) -> _Material | None:
        """The set that the files are now; None if it is the known one, or cannot be used."""
        try:
            if _fingerprint(self._files) == self.known.fingerprint:
                return None
            material = _load(self._files, self._protocol)
        except TlsError as error:
            if str(error) != self._reason:
                self._reason = str(error)
                _LOG.error("new TLS files cannot be used; the old ones stay in use", reason=self._reason)
            return None
        self._reason = ""
        return material


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
        self._changes = _Changes(files)
        material = self._changes.known
        self.credentials = grpc.ssl_channel_credentials(material.ca, material.key, material.certificate)

    def is_stale(self) -> bool:
        """Whether the files are now a different, usable set: then create a new object and rebuild the channels."""
        return self._changes.usable() is not None

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
        self._server_side = server_side
        self._lock = threading.Lock()
        self._changes = _Changes(files, ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
        self._configure(self._changes.known)

    def current(self) -> ssl.SSLContext:
        """The context of the last good set of files."""
        with self._lock:
            material = self._changes.usable()
            if material is not None:
                self._configure(material)
                self._changes.known = material
            return self._changes.known.context

    def _configure(self, material: _Material) -> None:
        context = material.context
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._server_side and material.ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        if not self._server_side and material.ca is None:
            context.load_default_certs()


class FollowingContext(ssl.SSLContext):
    """The context of a server that takes one context for good, as asyncio's do: each connection uses the files as they are then."""

    def __new__(cls, files: TlsFiles) -> Self:  # noqa: ARG004 - the base class takes the protocol alone
        """See the class."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, files: TlsFiles) -> None:
        """Read and check the files. Raises TlsError."""
        self._contexts = TlsContexts(files, server_side=True)

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Begin the TLS of a connection."""
        context = self._contexts.current()
        return context.wrap_bio(incoming, outgoing, server_side, server_hostname, session)


class _Rotation:
    """Returns a new configuration when the files have changed; gRPC calls it before every handshake, in any thread."""

    def __init__(self, files: TlsFiles) -> None:
        """Read and check the files. Raises TlsError."""
        self._files = files
        self._lock = threading.Lock()
        self._changes = _Changes(files)

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """The configuration of the last good set."""
        material = self._changes.known
        assert material.key is not None
        assert material.certificate is not None
        return grpc.ssl_server_certificate_configuration(
            [(material.key, material.certificate)], root_certificates=material.ca
        )

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """The new configuration; None to keep the old one."""
        with self._lock:
            material = self._changes.usable()
            if material is None:
                return None
            self._changes.known = material
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


def _load(files: TlsFiles, protocol: int = ssl.PROTOCOL_TLS_SERVER) -> _Material:
    """Read all files as one consistent set, and check them by loading them into a context of `protocol`. Raises TlsError."""
    for _ in range(_READ_ATTEMPTS):
        before = _fingerprint(files)
        try:
            ca = _read(files.ca)
            context = _context(files, ca, protocol)
            material = _Material(before, _read(files.certificate), _read(files.key), ca, context)
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


def _context(files: TlsFiles, ca: bytes | None, protocol: int) -> ssl.SSLContext:
    """A context that has loaded the files. Raises TlsError unless the key matches the certificate and the CA file contains certificates."""
    context = ssl.SSLContext(protocol)
    if files.certificate is not None and files.key is not None:
        try:
            context.load_cert_chain(files.certificate, files.key, password="")
        except (OSError, ValueError) as error:
            msg = (
                f"certificate {files.certificate} and key {files.key} cannot be used together: {error}; "
                "both must be PEM, the key unencrypted and the certificate's own"
            )
            raise TlsError(msg) from error
    if ca is not None:
        try:
            context.load_verify_locations(cadata=ca.decode("ascii"))
        except (ssl.SSLError, ValueError) as error:
            msg = f"the CA file {files.ca} contains no usable certificate: {error}; it must be PEM"
            raise TlsError(msg) from error
    return context
