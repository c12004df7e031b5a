"""How large the explored worlds are: small ones on every test run, larger ones on demand."""

from typing import Final

from tests.model.explore.parts import Bounds, TopicBounds

PLAIN: Final = Bounds(3, 3, 2, spares=0, timeouts=1)
STRIPED: Final = Bounds(3, 2, 2, spares=1, timeouts=1)
ENSEMBLE_CHANGE: Final = Bounds(2, 2, 2, spares=1, entries=2, timeouts=1)
TWO_RECOVERERS: Final = Bounds(2, 2, 2, spares=0, recoverers=2, timeouts=0)
TWO_RECOVERERS_QA1: Final = Bounds(2, 2, 1, spares=0, recoverers=2, timeouts=0)
CLOSE_RACE: Final = Bounds(2, 2, 2, spares=0, timeouts=1, unknown_outcomes=1, closes=1)
IMPATIENT: Final = Bounds(2, 2, 1, spares=1, timeouts=1, ticks=1)
LOST_DISK: Final = Bounds(2, 2, 2, spares=1, timeouts=0, wipes=1)
LIMBO_ENDS: Final = Bounds(2, 2, 2, spares=1, entries=2, timeouts=0, wipes=1, repairs=1)
LOST_DISK_OF_THREE: Final = Bounds(3, 3, 2, spares=0, timeouts=0, wipes=1)

ENSEMBLE_CHANGE_OF_ONE: Final = Bounds(2, 2, 2, spares=1, timeouts=1)
STRIPED_PAIR: Final = Bounds(3, 2, 2, spares=0, entries=2, timeouts=0)

SMALL: Final = (
    PLAIN,
    STRIPED,
    ENSEMBLE_CHANGE,
    TWO_RECOVERERS,
    STRIPED_PAIR,
    TWO_RECOVERERS_QA1,
    CLOSE_RACE,
    IMPATIENT,
    LOST_DISK,
    LIMBO_ENDS,
)
MEDIUM: Final = (
    Bounds(2, 2, 2, spares=1, timeouts=1, unknown_outcomes=1, closes=1),
    LOST_DISK_OF_THREE,
    Bounds(2, 2, 2, spares=1, entries=2, timeouts=1, wipes=1, repairs=1),
    Bounds(3, 3, 2, spares=0, entries=2, timeouts=0),
    Bounds(3, 3, 2, spares=1, timeouts=1),
    Bounds(3, 3, 2, spares=0, recoverers=2, timeouts=0),
    Bounds(2, 2, 1, spares=0, recoverers=2, timeouts=1),
    Bounds(2, 2, 1, spares=0, entries=2, timeouts=1, wipes=1),
    Bounds(3, 2, 2, spares=0, entries=3, timeouts=1),
)
LARGE: Final = (
    *MEDIUM,
    Bounds(3, 3, 2, spares=1, entries=2, timeouts=1, closes=1),
    Bounds(3, 3, 2, spares=1, entries=2, timeouts=1, wipes=1),
    Bounds(3, 3, 2, spares=1, entries=2, recoverers=2, timeouts=1),
    Bounds(3, 3, 2, spares=1, entries=1, timeouts=1, answers_take_time=True),
)
BOUNDS: Final = {"small": SMALL, "medium": MEDIUM, "large": LARGE}

SMALL_TOPICS: Final = (
    TopicBounds(messages=2),
    TopicBounds(messages=1, unknown=1),
    TopicBounds(messages=1, fences=1),
    TopicBounds(messages=1, deaths=1),
    TopicBounds(messages=1, trims=1),
)
MEDIUM_TOPICS: Final = (
    TopicBounds(messages=2, fences=1),
    TopicBounds(messages=2, unknown=1),
    TopicBounds(messages=1, unknown=1, ticks=1, trims=1),
    TopicBounds(owners=3, messages=1, deaths=1),
)
TOPIC_BOUNDS: Final = {"small": SMALL_TOPICS, "medium": MEDIUM_TOPICS, "large": MEDIUM_TOPICS}
