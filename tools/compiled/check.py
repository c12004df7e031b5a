"""`python -m tools.compiled.check`: whether the Daybook that this Python imports has exactly the modules of the list compiled."""

import sys
from importlib import import_module

from tools.compiled import MODULES, names


def pure_modules() -> list[str]:
    """The modules of the list that are imported from their sources."""
    modules = [name for files in MODULES.values() for name in names(files)]
    return [name for name in modules if not str(import_module(name).__file__).endswith(".so")]


def main() -> int:
    """1 if some are not compiled."""
    pure = pure_modules()
    count = sum(map(len, MODULES.values()))
    if pure:
        print(f"{len(pure)} of {count} modules are not compiled here: {', '.join(pure)}", file=sys.stderr)
        return 1
    print(f"all {count} modules of tools/compiled are compiled")
    return 0


if __name__ == "__main__":
    sys.exit(main())
