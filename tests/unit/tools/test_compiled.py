"""What is compiled suspends nowhere where mypyc would exchange the exceptions of two coroutines, and is compiled with its base classes."""

import importlib.util
import inspect
from pathlib import Path

import pytest

from tools.compiled import MODULES, names
from tools.compiled.__main__ import flags_for
from tools.compiled.suspensions import suspensions_in_handlers

COMPILED = sorted(name for files in MODULES.values() for name in names(files))


@pytest.mark.parametrize("module", COMPILED)
def test_a_compiled_module_suspends_nowhere_while_it_handles_an_exception(module: str) -> None:
    spec = importlib.util.find_spec(module)
    assert spec is not None, f"tools/compiled names {module}, which is no module any more"
    assert spec.origin is not None
    # a compiled module's source is beside its library
    source = Path(spec.origin).with_name(f"{module.rpartition('.')[2]}.py")
    lines = suspensions_in_handlers(source.read_text(encoding="utf-8"))
    assert not lines, f"waits while it handles an exception, in lines {lines}: take it off the list"


@pytest.mark.parametrize("module", COMPILED)
def test_the_bases_of_a_compiled_class_are_compiled(module: str) -> None:
    """Otherwise its attributes lie in a dict that every access looks up, as if nothing was compiled."""
    for _, each in inspect.getmembers(importlib.import_module(module), inspect.isclass):
        if each.__module__ != module or issubclass(each, BaseException):
            continue
        pure = [
            base.__qualname__
            for base in each.__mro__
            if base.__module__.startswith("daybook") and base.__module__ not in COMPILED
        ]
        assert not pure, f"{each.__qualname__} inherits from {pure}: put the modules of these on the list"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("async def f():\n try:\n  await g()\n except E:\n  h()\n finally:\n  i()\n", []),
        ("async def f():\n try:\n  g()\n except E:\n  await h()\n", [5]),
        ("async def f():\n try:\n  g()\n finally:\n  if h:\n   await i()\n", [6]),
        ("async def f():\n try:\n  g()\n except* E:\n  await h()\n", [5]),
        ("async def f():\n async with g():\n  h()\n", [2]),
        ("async def f():\n try:\n  g()\n finally:\n  async for h in i():\n   pass\n", [5]),
        ("async def f():\n try:\n  g()\n finally:\n  [h async for h in i()]\n", [5]),
        ("def f():\n try:\n  g()\n finally:\n  yield\n", [5]),
        ("def f():\n try:\n  g()\n finally:\n  async def h():\n   await i()\n", []),
        ("async def f():\n with g():\n  await h()\n", []),
    ],
)
def test_a_suspension_is_found_in_a_handler_alone(source: str, lines: list[int]) -> None:
    assert suspensions_in_handlers(source) == lines


@pytest.mark.parametrize(
    ("version", "has_all"),
    [
        ("cc (Debian 15.2.0) 15.2.0\nCopyright (C) 2025 Free Software Foundation, Inc.", True),
        ("clang version 19", False),
    ],
)
def test_a_flag_that_gcc_alone_knows_is_for_gcc_alone(tmp_path: Path, version: str, *, has_all: bool) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text(f"#!/bin/sh\ncat <<'END'\n{version}\nEND\n")
    compiler.chmod(0o755)
    assert ("--param" in flags_for(str(compiler))) is has_all


def test_without_a_compiler_the_build_says_so_and_not_the_choice_of_flags(tmp_path: Path) -> None:
    assert flags_for(str(tmp_path / "none"))
