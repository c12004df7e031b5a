"""Whether an object of Kubernetes is as it should be, and the digest by which a field that is wanted no longer is noticed."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from daybook_operator.plan.effects import Apply, Effect, Manifest
from daybook_operator.plan.names import APPLIED_ANNOTATION
from daybook_operator.plan.quantities import are_same_amounts

_AMOUNTS: Final = {"requests", "limits"}
"""Fields of `resources`: what they map names to are quantities."""


def sealed(manifest: dict[str, Any]) -> Manifest:
    """`manifest` with a digest of itself, by which a field that is wanted no longer is noticed."""
    text = json.dumps(manifest, sort_keys=True).encode()
    annotations = {
        **manifest["metadata"].get("annotations", {}),
        APPLIED_ANNOTATION: hashlib.sha256(text).hexdigest()[:16],
    }
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}


def apply_if_needed(wanted: Manifest, live: Manifest | None) -> tuple[Effect, ...]:
    """Apply unless the object is so already, as far as this operator has a say in it."""
    return () if live is not None and is_within(wanted, live) else (Apply(wanted),)


def is_within(wanted: Any, live: Any) -> bool:
    """Whether all that is wanted is there; what the server or others added beside does not matter.

    Lists must be of one length: a container, port or variable more is drift. Amounts of resources are compared as such.
    """
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(
            key in live and (_are_amounts_within if key in _AMOUNTS else is_within)(value, live[key])
            if not _is_nothing(value)
            else not live.get(key)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(live, list | tuple) and len(wanted) == len(live) and all(map(is_within, wanted, live))
        )
    return bool(wanted == live)


def _are_amounts_within(wanted: Any, live: Any) -> bool:
    if not isinstance(wanted, Mapping) or not isinstance(live, Mapping):
        return bool(wanted == live)
    return all(key in live and are_same_amounts(value, live[key]) for key, value in wanted.items())


def _is_nothing(value: Any) -> bool:
    """What the server leaves out of what it stores."""
    return value is None or value == {} or value == []
