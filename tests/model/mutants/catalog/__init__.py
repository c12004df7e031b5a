"""The mutants, one module for each piece of the project; every module here is found without being listed."""
