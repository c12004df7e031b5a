"""Real processes under drawn faults: power cuts of all bookies at once, and minutes of chaos, judged offline."""
