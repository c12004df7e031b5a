"""What measures and reports, by hand: none of it is part of `make test`, and each writes a page of docs/.

growth/       how costs grow with ledgers, open ledgers and a large store: `make growth`
slo/          what losses cost, and what each E, Qw, Qa survives: `make slo`
reliability/  the record of all long runs: `make reliability`
bit_flips/    every bit of a store and a journal, flipped: `make bit-flips`
"""
