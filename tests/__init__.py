"""The tests: one folder for each part of the project, and one for each way of driving all of it."""
