"""Where each rule of the protocol is kept: `make rules` writes the index at the end of docs/protocol.md.

index.py      finds the code, the tests and the mutants of each rule, and formats them as a table
__main__.py   the command
"""
