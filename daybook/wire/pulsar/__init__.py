"""The Pulsar binary protocol: frames, commands, entries and batches, for whoever speaks it or reads what it stored.

A topic's entries are stored as a producer sent them, so a reader of ledgers needs this package without any broker. It depends
on the core alone and imports nothing of a broker.

In reading order:

    pulsar.proto    the messages of the protocol; pulsar_pb2 is generated from it
    errors          what can be wrong with bytes of others
    frames          the frame around a command and its payload, and the buffer that cuts frames out of a connection's bytes
    by_hand         SEND, SEND_RECEIPT and MESSAGE without protobuf: one of each for every entry
    entries         what a frame carries beside its command, and a ledger stores: checksum, metadata, payload
    producer_entry  whether a broker may store what a producer sent
    message_count   how many messages an entry has, without protobuf
    chunks          which message an entry is a chunk of
    compression     payloads without their compression
    batches         the messages of a batch entry, and a batch made anew
    compacting      the keys of an entry's messages, and the entry without some of them
"""
