"""`python -m tools.rule_index`: write the index of rules at the end of docs/protocol.md."""

import sys

from tools.rule_index.index import PAGE, with_index


def main() -> int:
    """Replace the index in the page; the exit code is 0."""
    text = PAGE.read_text(encoding="utf-8")
    written = with_index(text)
    if written == text:
        print(f"{PAGE.name} is current")
    else:
        PAGE.write_text(written, encoding="utf-8")
        print(f"wrote the index of {PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
