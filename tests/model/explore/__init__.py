"""The explorer: every order of events of the core, at small bounds."""
