"""The exit codes by which a bookie's process reports why it ended, and what must happen next; life.py decides which.

They are a contract with what watches bookies from outside (a supervisor, the operator): a lost disk calls for an
authorised replacement (rule 29), a failed one for a restart that replays (rule 23), anything else for a person.
"""

from typing import Final

EXIT_STOPPED: Final = 0
"""It was asked to stop, and everything is written."""
EXIT_NOT_STARTED: Final = 1
"""It could not start; the last line that it says has the reason and what to do."""
EXIT_STORAGE_FAILED: Final = 3
"""Journal or store failed while it served: start it again, it replays (rule 23)."""
EXIT_DISK_LOST: Final = 4
"""The metadata store has its cookie and all its directories are empty: replace it if the disks are gone (rule 29)."""
EXIT_FORGOTTEN: Final = 5
"""Its directories have its cookie and the metadata store has none: it was decommissioned, and comes back (rule 29)."""
EXIT_SUPERSEDED: Final = 6
"""Another process has become the bookie, or its cookie was replaced or deleted: do not start this one again on what it has
(rule 57)."""
