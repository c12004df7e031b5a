"""How a client reaches bookies.

In reading order:

    channels           every bookie that this client uses: its address, its append stream, its calls
    frame_sender       sends the frames of all ledgers to one bookie, on one long-lived append stream
    stream_life        the life of such a stream, and the reason of its end
    link               the connection of such a stream, and the one over gRPC
    lane               the one over the bookie's lane, which costs less than half
    calls              one request and its answer
    read_answer        puts an answer together
    gathering          fences and recovery reads of many ledgers in one request
    read_lane          the connections for reads over the bookie's lane
    connection_errors  why bookies do not answer, for the person who reads an error
"""
