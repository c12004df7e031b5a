"""Every bit of some pages of a store and of a small journal, flipped one at a time."""
