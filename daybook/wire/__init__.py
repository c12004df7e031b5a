"""The wire between clients and bookies: the gRPC service, the raw messages of its two fast methods, channels.

It depends on the core alone. daybook.runtime reads certificates; callers pass them as gRPC credentials.

In reading order:

    bookie.proto        the protobuf messages of control calls; bookie_pb2 is generated from it
    service             the table of methods, a client's callables, a server's handlers
    messages            the raw messages of the append stream and of reads
    channel             channels, with the limits that both ends share
    connection_failure  why a bookie cannot be reached
"""
