"""Runs the core's machines: carries out their effects, feeds the answers back, and decides nothing.

In reading order:

    driver       effects to requests, answers to events
    run          a machine from its start to its end, with its results as they come
    timers       when writers want to know the time
    flush_queue  when writers seal what was appended into frames
    callbacks    the functions that users gave to append_soon
    shared       what all open ledgers of a client share
    sink         the part of a ledger's driver that the streams know
"""
