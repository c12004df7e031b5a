"""How a client reaches bookies.

In reading order:

    channels           every bookie that this client uses: its address, its append stream, its calls
    append_stream      one long-lived stream to one bookie, for the frames of all ledgers
    calls              one request and its answer
    connection_errors  why bookies do not answer, for the person who reads an error
"""
