"""`python -m daybook_operator` is `daybook-operator`."""

from daybook_operator.main import app

app()
