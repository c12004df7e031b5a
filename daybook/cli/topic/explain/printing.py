"""What the two commands `topic explain` print, and their exit code."""

import json
from collections.abc import Sequence

import typer

from daybook.cli.output import out
from daybook.cli.topic.explain.dialect import Dialect
from daybook.cli.topic.explain.explain import explain, is_wrong, record_of, text_of
from daybook.cli.topic.explain.facts import Snapshot


def print_explained(snapshots: Sequence[Snapshot], dialect: Dialect, *, as_json: bool) -> None:
    """Print each topic; of several ones, the partitions of a topic, only those with which something is wrong.

    Raises typer.Exit with code 1 if anything is wrong.
    """
    explained = [(each, explain(each, dialect)) for each in snapshots]
    failed = [each for each in explained if is_wrong(each[1])]
    if as_json:
        out.print_json(json.dumps([record_of(*each) for each in explained]))
    else:
        for each in failed if len(explained) > 1 else explained:
            out.print(text_of(*each), markup=False, soft_wrap=True)
        if len(explained) > 1:
            out.print(f"{len(explained) - len(failed)} of {len(explained)} partitions are as they should be")
    if failed:
        raise typer.Exit(1)
