"""Who may do what with the topics of a namespace: the permissions of roles, and the decision.

A role is who a client has shown to be. A namespace's policy gives roles *actions*; a broker's settings name *superusers*, who may do
everything, and *jobs*, who may see all topics and ask their owners for upkeep. What is not given is refused: a namespace that gives nothing
is closed to all but these. An action implies no other one: a role with `admin` creates and deletes topics, and reads no message.
"""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final, TypeAlias

from daybook.core.errors import PolicyError

ROLES_MAX: Final = 1_000
"""Roles that one namespace gives actions to."""
ROLE_BYTES_MAX: Final = 1024
"""Of a role's name, in UTF-8."""


class Action(Enum):
    """What a namespace allows a role; the names are Pulsar's, but for `admin`."""

    PRODUCE = "produce"
    CONSUME = "consume"
    ADMIN = "admin"
    """Create, delete and change topics, and see who has which permission."""


Permissions: TypeAlias = Mapping[str, frozenset[Action]]
"""The actions of each role."""


class Operation(Enum):
    """What a client wants: the actions of which one is enough, and whether jobs may do it everywhere; superusers always may."""

    LOOK = (frozenset(Action), True)
    """Find a topic, and see what is known about it."""
    PRODUCE = (frozenset({Action.PRODUCE}), False)
    CONSUME = (frozenset({Action.CONSUME}), False)
    MANAGE = (frozenset({Action.ADMIN}), False)
    """Change the topics of the namespace."""
    MAINTAIN = (frozenset({Action.ADMIN}), True)
    """Ask the owner of a topic to do what its policy allows anyway."""
    OBSERVE = (frozenset[Action](), True)
    """See the topics of all namespaces."""
    GOVERN = (frozenset[Action](), False)
    """Change tenants, namespaces, policies and permissions, or read the state of the whole cluster."""

    def __init__(self, actions: frozenset[Action], is_for_jobs: bool) -> None:
        self.actions: Final = actions
        self.is_for_jobs: Final = is_for_jobs


def is_allowed(
    role: str,
    operation: Operation,
    permissions: Permissions,
    superusers: Collection[str],
    jobs: Collection[str] = (),
) -> bool:
    """Whether a role may do something in a namespace with these permissions."""
    if role in superusers or (operation.is_for_jobs and role in jobs):
        return True
    return bool(operation.actions & permissions.get(role, frozenset()))


def check_role(role: str) -> str:
    """Return `role` if it can be one. Raises PolicyError."""
    if not role.strip() or len(role.encode(errors="replace")) > ROLE_BYTES_MAX:
        msg = f"{role[:100]!r} cannot be a role: use 1 to {ROLE_BYTES_MAX} bytes"
        raise PolicyError(msg)
    return role


def actions_of(found: object) -> frozenset[Action]:
    """The actions that a list names. Raises PolicyError."""
    try:
        if not isinstance(found, list):
            raise TypeError
        return frozenset(Action(each) for each in found)
    except (TypeError, ValueError) as error:
        allowed = ", ".join(each.value for each in Action)
        msg = f"{str(found)[:100]!r} are no actions: write a list with any of {allowed}"
        raise PolicyError(msg) from error


def check_permissions(permissions: Permissions) -> None:
    """Raise PolicyError for too many roles."""
    if len(permissions) > ROLES_MAX:
        msg = f"{len(permissions)} roles have permissions, and {ROLES_MAX} may: take some away, or let clients share a role"
        raise PolicyError(msg)


def permissions_of(record: object) -> dict[str, frozenset[Action]]:
    """Read the stored form. Raises PolicyError."""
    if not isinstance(record, dict):
        msg = f"{str(record)[:100]!r} are no permissions: an object with the actions of each role is needed"
        raise PolicyError(msg)
    return {check_role(role): actions_of(actions) for role, actions in record.items()}


def permissions_record(permissions: Permissions) -> dict[str, list[str]]:
    """The stored form, which is also Pulsar's."""
    return {role: sorted(each.value for each in actions) for role, actions in sorted(permissions.items())}
