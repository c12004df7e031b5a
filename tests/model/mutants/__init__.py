"""One switch for each rule of docs/protocol.md: it takes the rule out, and a named test must turn red.

A test that stays green without the rule it is named after pins nothing down. `python -m tests.model.mutants` finds such tests.
"""
