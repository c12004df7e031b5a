"""Records that the release before left, and the test that this one reads each of them."""
