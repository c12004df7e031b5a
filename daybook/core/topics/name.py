"""The names of topics and subscriptions: Pulsar's rules for them, and limits, before a name becomes part of a path.

Tenants and namespaces have Pulsar's characters. The last part of a topic's name may have any character but a slash, and a subscription's
name any character; the metadata percent-encodes both. A name of four parts is of Pulsar's first version, which had a cluster in it.
"""

import re
from dataclasses import dataclass
from typing import Final, Self

from daybook.core.errors import TopicNameError

NAME_BYTES_MAX: Final = 1024
"""Of one part of a name, in UTF-8. Percent-encoded it takes three times as much."""

_SCHEME: Final = "persistent"
_DEFAULT: Final = ("public", "default")
"""The tenant and namespace of a topic that is called by its last part alone."""
_ENTITY: Final = re.compile(r"[-=:.A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """A topic's name: `persistent://<tenant>/<namespace>/<local>`. Raises TopicNameError for parts that cannot be ones."""

    tenant: str
    namespace: str
    local: str

    def __post_init__(self) -> None:
        """Check the parts."""
        check_entity(self.tenant, "tenant")
        check_entity(self.namespace, "namespace")
        _check(self.local, "topic")

    def __str__(self) -> str:
        """The whole name, as clients write it."""
        return f"{_SCHEME}://{self.tenant}/{self.namespace}/{self.local}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The topic that a client calls `text`: a whole name, one without the scheme, or the last part alone.

        Raises TopicNameError.
        """
        scheme, has_scheme, rest = text.partition("://")
        if not has_scheme:
            scheme, rest = _SCHEME, text
        if scheme != _SCHEME:
            msg = f"{text[:200]!r} is a {scheme[:50]!r} topic, and only persistent topics exist: use persistent://tenant/namespace/topic"
            raise TopicNameError(msg)
        parts = rest.split("/")
        if len(parts) == 1 and not has_scheme:
            return cls(*_DEFAULT, rest)
        if len(parts) != 3:
            msg = f"{text[:200]!r} has {len(parts)} parts: use persistent://tenant/namespace/topic"
            raise TopicNameError(msg)
        return cls(*parts)


def check_entity(name: str, what: str) -> str:
    """Return `name` if a tenant or a namespace (`what`) can have it; raise TopicNameError otherwise."""
    if not _ENTITY.fullmatch(_check(name, what)):
        msg = f"{name[:200]!r} cannot name a {what}: use letters, digits and any of - = : . _"
        raise TopicNameError(msg)
    return name


def check_subscription(name: str) -> str:
    """Return `name` if a subscription can have it; raise TopicNameError otherwise."""
    return _check_text(name, "subscription")


def _check(name: str, what: str) -> str:
    if "/" in name:
        msg = f"{name[:200]!r} cannot name a {what}: use no slash"
        raise TopicNameError(msg)
    return _check_text(name, what)


def _check_text(name: str, what: str) -> str:
    if not name.strip():
        msg = f"{name[:200]!r} cannot name a {what}: use at least one visible character"
        raise TopicNameError(msg)
    try:
        size_bytes = len(name.encode())
    except UnicodeEncodeError as error:
        msg = f"{name[:200]!r} cannot name a {what}: half of a surrogate pair is no character"
        raise TopicNameError(msg) from error
    if size_bytes > NAME_BYTES_MAX:
        msg = (
            f"a {what} name of {size_bytes} bytes: at most {NAME_BYTES_MAX} are allowed; choose a shorter one"
        )
        raise TopicNameError(msg)
    return name
