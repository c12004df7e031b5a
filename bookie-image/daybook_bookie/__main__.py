"""`python -m daybook_bookie`: the same as the command `daybook-bookie`."""

from daybook_bookie.main import app

app(prog_name="daybook-bookie")
