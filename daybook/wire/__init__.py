"""The wire between clients and bookies, and the protocol of Pulsar's clients.

It depends on the core alone. daybook.runtime reads certificates; callers pass them as gRPC credentials.

In reading order:

    bookie.proto        the protobuf messages of control calls; bookie_pb2 is generated from it
    service             the table of methods, a client's callables, a server's handlers
    messages            the raw messages of the append stream and of reads
    channel             channels, with the limits that both ends share
    message_buffer      cuts messages out of the bytes of a connection
    lane                append streams over a connection of their own, without gRPC
    connection_failure  why a bookie cannot be reached
    pulsar/             the Pulsar protocol
"""
