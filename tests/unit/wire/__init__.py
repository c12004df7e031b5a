"""What travels: messages, streams and TLS between client and bookie."""
