"""Explains why a bookie cannot be reached, and what to do.

A client receives a failed TLS handshake as UNAVAILABLE with a line of OpenSSL in its details; for the protocol it is a
lost connection like any other. A person needs to know that TLS failed, which certificate caused it, and why.
"""

from typing import Final

TLS: Final = "TLS"
"""The text that every explanation about certificates contains."""
_HANDSHAKE: Final = "handshake failed"
_VERIFY: Final = "CERTIFICATE_VERIFY_FAILED:"
_WRONG_NAME: Final = "Hostname Verification Check failed"
_NOT_TLS: Final = "WRONG_VERSION_NUMBER"
_CONNECTING: Final = "failed to connect to all addresses"
_LAST: Final = "last error: "
_CLOSED: Final = ("Socket closed", "Connection reset", "Broken pipe")


def why_unreachable(details: str, address: str, *, secure: bool) -> str:
    """Explain gRPC's `details` of a failed call to `address`; `secure`: the channel has TLS credentials."""
    if _VERIFY in details:
        reason = details.split(_VERIFY, 1)[1].split(":")[0].strip()
        return f"TLS failed: the bookie's certificate is refused ({reason}); check the CA file and the bookie's certificate"
    if _WRONG_NAME in details:
        host = address.rpartition(":")[0]
        return f"TLS failed: the bookie's certificate is not for {host}; it must name the host of the bookie's address"
    if _NOT_TLS in details:
        return "TLS failed: the bookie does not use TLS; leave the TLS options out, or give the bookie a certificate"
    if _HANDSHAKE in details:
        return f"TLS failed: {_last(details)}"
    if details.startswith(_CONNECTING) and details.endswith(_CLOSED):
        if secure:
            return (
                "the bookie closed the connection during the TLS handshake: it may require a client certificate, or refuse "
                "this one because it is expired or of a CA that it does not trust; its log gives the reason"
            )
        return "the bookie closed the connection at once: it may serve TLS only, which needs the CA file"
    return _last(details)


def _last(details: str) -> str:
    """The specific part of gRPC's details."""
    return details.rpartition(_LAST)[2] or "it gave no reason"
