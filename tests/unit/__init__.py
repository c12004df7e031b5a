"""One folder for each package, and in it the same folders."""
