"""What an error of Spark says in one line.

The text of such an error is a page or two of stacks, in Java and in Python, of which a condition of Kubernetes keeps the beginning. What a person
needs is mostly in the last line of the stack in Python, where a task failed, else in the first line that says more than that Java was called.
"""

import sys
from collections.abc import Iterator
from typing import Final

_TRACEBACK: Final = "Traceback (most recent call last):"
_CALLED: Final = "An error occurred while calling "
"""Begins what Py4J says of any error of Java."""


def spark_words(error: BaseException) -> str:
    """What an error of Spark or of its Java says; "" for any other error."""
    if sys.modules.get("pyspark") is None:
        return ""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException | Py4JError):
        return ""
    kind = type(error).__name__
    try:
        text = str(error)
    except (Py4JError, OSError, AssertionError):  # it asks Java for the text, which may be what has ended
        return f"{kind}: Spark's Java process has ended, and its log says why"
    return first_line(text) or kind


def first_line(text: str) -> str:
    """The line of an error's text that says most."""
    lines = text.splitlines()
    return next(reversed(list(_ends_of_tracebacks(lines))), "") or next(_that_say_something(lines), "")


def _ends_of_tracebacks(lines: list[str]) -> Iterator[str]:
    """The line behind each stack of Python; of errors that were raised from each other the last one is what reached Spark."""
    is_within = False
    for line in lines:
        if line.rstrip().endswith(_TRACEBACK):
            is_within = True
        elif is_within and line.strip() and not line[0].isspace():
            is_within = False
            yield line.strip()


def _that_say_something(lines: list[str]) -> Iterator[str]:
    for line in lines:
        words = line.strip().removeprefix(":").strip()
        if words and not words.startswith(_CALLED):
            yield words
