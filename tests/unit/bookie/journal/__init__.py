"""A bookie's journal: format, groups, files, replay."""
