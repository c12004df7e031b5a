"""Why a topic is not as it should be: a pure judgement over a snapshot, and its text.

The steps have one order, from what was asked for to what a consumer sees. Each depends on those before it, so the first one that is
wrong is the one to act on. A step says what it found, quotes its evidence, and names the next command.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from daybook.cli.topic.explain.dialect import Dialect
from daybook.cli.topic.explain.facts import Snapshot
from daybook.cli.topic.explain.step import Step, Verdict
from daybook.cli.topic.explain.subscription_steps import holes, oldest_message, permits, unacked_limits
from daybook.cli.topic.explain.topic_steps import ensemble, fencing, owner, policy, quota, resource, session

Judge: TypeAlias = Callable[[Snapshot, Dialect], Step]

ORDER: Final[Sequence[Judge]] = (
    resource,
    policy,
    owner,
    session,
    fencing,
    ensemble,
    quota,
    permits,
    unacked_limits,
    holes,
    oldest_message,
)
_NAME_WIDTH: Final = 15
_INDENT: Final = " " * 26


def explain(snapshot: Snapshot, dialect: Dialect) -> tuple[Step, ...]:
    """All steps, in order."""
    return tuple(judge(snapshot, dialect) for judge in ORDER)


def is_wrong(steps: Iterable[Step]) -> bool:
    """Whether anything is."""
    return any(step.verdict is Verdict.WRONG for step in steps)


def text_of(snapshot: Snapshot, steps: Iterable[Step]) -> str:
    """The steps as people read them: a line for each, its evidence below, and the next command where there is one."""
    lines = [str(snapshot.topic)]
    for step in steps:
        lines.append(f"  {step.verdict.value:<8}{step.name:<{_NAME_WIDTH}} {step.what}")
        lines += [f"{_INDENT}{each}" for each in step.evidence]
        if step.next_command:
            lines.append(f"{_INDENT}next: {step.next_command}")
    return "\n".join(lines)


def record_of(snapshot: Snapshot, steps: Iterable[Step]) -> dict[str, Any]:
    """The same as JSON has it."""
    return {"topic": str(snapshot.topic), "steps": [step.record() for step in steps]}
