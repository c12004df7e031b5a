"""`make e2e`: the chart on a real cluster of three nodes in three zones, harmed in every way, while entries are written."""
