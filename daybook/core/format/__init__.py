"""Entries as bytes: one layout on the wire, in the journal and in the store (ADR 1).

In reading order:

    frame       many entries of one ledger as one run of bytes, with a checksum for each
    checksums   what covers an entry with its ledger and its id
    payloads    the sizes of entries before they are in a frame
    entries     the entries of a frame as readers have them: checked, as columns
    lac_table   the LACs of many ledgers, without entries
    block       frames at rest: cut and joined by columns, without touching entries one by one
    intervals   which entries of a ledger exist, as a value that stays small
    stored_record  JSON records of the metadata store, and one text for each way in which they can be wrong
"""
