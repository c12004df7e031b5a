"""The record of all long runs, as a page."""
