"""The core as a whole.

sim/      histories drawn from a seed, under every fault that we know
explore/  every order of a few events, within small bounds
scripts/  histories that people read, with the answers of the machines
mutants/  each rule taken out: a test and a seed have to notice
"""
