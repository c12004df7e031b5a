"""Finds what mypyc compiles to something else than it means: a coroutine that suspends while it handles an exception.

Python keeps the exception that a coroutine handles with the coroutine. A compiled one leaves it with the thread when it suspends: other
tasks then see an exception that is not theirs, and if they handle one as well, the two are exchanged. A cancellation is lost that way, or
asyncio gets an "invalid exception object". So no module that is compiled may wait in an `except`, a `finally`, or at the end of an
`async with` (docs/adr/0012-compiled-modules.md).
"""

import ast

_Suspension = ast.Await | ast.Yield | ast.YieldFrom | ast.AsyncFor | ast.AsyncWith
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def suspensions_in_handlers(source: str) -> list[int]:
    """The lines of `source` where a coroutine or a generator may suspend while it handles an exception, ascending."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AsyncWith):
            lines.add(node.lineno)
        elif isinstance(node, ast.Try | ast.TryStar):
            for handling in (*node.handlers, *node.finalbody):
                lines |= _suspensions(handling)
    return sorted(lines)


def _suspensions(node: ast.AST) -> set[int]:
    """The lines where `node` itself suspends: what a function within it does is that function's."""
    if isinstance(node, _Function):
        return set()
    lines: set[int] = set()
    if isinstance(node, _Suspension):
        lines.add(node.lineno)
    elif isinstance(node, ast.comprehension) and node.is_async:
        lines.add(node.iter.lineno)
    for child in ast.iter_child_nodes(node):
        lines |= _suspensions(child)
    return lines
