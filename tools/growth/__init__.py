"""How Daybook's costs grow with what it holds: `make growth` measures, and writes docs/growth.md."""
