"""`python -m daybook_broker`: the same as the command `daybook-broker`."""

from daybook_broker.main import app

app(prog_name="daybook-broker")
