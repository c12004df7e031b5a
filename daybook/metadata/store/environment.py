"""How the environment says that ZooKeeper is reached: DAYBOOK_ZOOKEEPER_* variables, whose meaning `settings` has.

Most environments of readers set none of them. Then the settings, which pydantic checks, need not be imported: that takes 0.15 s, for which each
query of Spark would wait.
"""

import os

from daybook.metadata.store.zookeeper import ZooKeeperOptions

PREFIX = "DAYBOOK_ZOOKEEPER_"


def zookeeper_options() -> ZooKeeperOptions:
    """Options from the environment; created nodes belong to the authenticated user. Raises SettingsError."""
    if not any(name.upper().startswith(PREFIX) for name in os.environ):
        return ZooKeeperOptions()
    from daybook.metadata.store.settings import options_of_variables  # imports pydantic: see above

    return options_of_variables()
