"""Which Python runs, and how it was built, which is worth a tenth and more of every figure.

`python -m bench.interpreter` prints it as JSON. The standard library is enough for that, so every interpreter can be asked.
"""

import json
import platform
import shlex
import sysconfig
from importlib.util import find_spec
from typing import Final

_OPTIMISED: Final = "--enable-optimizations"
_SPEED_OPTIONS: Final = (_OPTIMISED, "--with-lto", "--enable-bolt", "--with-pydebug")
_DEBIANS: Final = "--with-wheel-pkg-dir=/usr/share/python-wheels/"
"""Debian and Ubuntu build the interpreter with profiles and LTO, and record the options of their shared library, which have neither."""


def is_optimised() -> bool:
    """Whether the interpreter was built with a profile of what it runs."""
    options = _options()
    return _OPTIMISED in options or _DEBIANS in options


def python_build() -> str:
    """The interpreter, the options that change its speed, and whether what it runs of Daybook is compiled in parts."""
    options = _options()
    name = f"{platform.python_implementation()} {platform.python_version()}"
    kind = "with the modules of tools/compiled compiled" if _is_compiled() else "plain Python"
    if _DEBIANS in options:
        return f"{name}, Debian's or Ubuntu's build, which is optimised; {kind}"
    chosen = [option for option in options if option.startswith(_SPEED_OPTIONS)]
    return f"{name}, configured with {' '.join(chosen) or 'no option that optimises it'}; {kind}"


def _is_compiled() -> bool:
    spec = find_spec("daybook.core.stream")
    return spec is not None and str(spec.origin).endswith(".so")


def _options() -> list[str]:
    return shlex.split(sysconfig.get_config_var("CONFIG_ARGS") or "")


if __name__ == "__main__":
    print(json.dumps({"build": python_build(), "is_optimised": is_optimised()}))
