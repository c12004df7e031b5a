"""Who manages a topic: the resource of Kubernetes that says how many partitions it has and what is set for it.

The name stands in the policy node of the topic, of each partition where it has some. What a resource manages, nobody else changes:
requests of others are refused, and another resource reports a conflict.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from daybook.core.errors import ManagedTopicError, PolicyError


@dataclass(frozen=True, slots=True)
class Manager:
    """A Topic resource. `uid` distinguishes one that was created anew from its predecessor."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        """`Topic data/orders`, for messages."""
        return f"Topic {self.namespace}/{self.name}"

    def to_record(self) -> dict[str, str]:
        """The stored form."""
        return {"namespace": self.namespace, "name": self.name, "uid": self.uid}

    @classmethod
    def from_record(cls, record: Any) -> Self:
        """Read a stored record; fields of a later release are left out. Raises PolicyError."""
        if isinstance(record, Mapping):
            parts = [record.get(name) for name in ("namespace", "name", "uid")]
            texts = [part for part in parts if isinstance(part, str) and part]
            if len(texts) == len(parts):
                return cls(*texts)
        msg = f"managedBy={str(record)[:200]!r}: use an object with namespace, name and uid of a Topic"
        raise PolicyError(msg)


def check_manager(manager: Manager | None, uid: str) -> None:
    """Raise ManagedTopicError unless the topic has no manager, or its manager is the resource with this UID."""
    if manager is not None and manager.uid != uid:
        msg = f"{manager} manages this topic: change that resource instead"
        raise ManagedTopicError(msg)
