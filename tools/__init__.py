"""Tools that measure and report. `make test` runs none of them; each writes a page of docs/, or a part of one.

growth/       how costs grow with ledgers, open ledgers and a large store: `make growth`
slo/          what losses cost, and what each E, Qw, Qa survives: `make slo`
reliability/  the record of all long runs: `make reliability`
rule_index/   where each rule of the protocol is kept, in docs/protocol.md: `make rules`
bit_flips/    every bit of a store and a journal, flipped: `make bit-flips`
diagrams.py   docs/states.md, from the tables of transitions in the code: `make diagrams`
"""
