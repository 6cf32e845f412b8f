"""The states of an investigation, and the events that lead from one to the next by the table in `monitor.py`.

Each reading is an event, and so is the end of the watch. An action does one thing and returns the event that follows
from it, or None: then the state stays until the next reading, or the end.
"""

from enum import Enum


class CaseState(Enum):
    """The state of an investigation between two readings."""

    BEGINNING = "the first census is being taken, to compare the end with"
    WATCHING = "readings only: nothing rises that no finding explains"
    COUNTING = "something rises: the first census is being taken"
    PROVING = "the readings must show a drift"
    COMPARING = "the second census is being taken, and compared with the first"
    SEARCHING = "too little is explained: libraries are asked, and a fork looks for cyclic garbage"
    TRACING = "an owner, or garbage that may be one, has no line: allocations are traced until something is added to it"
    RECORDING_RISES = "native growth was reported without a line: it is recorded which line runs while memory rises"


class CaseEvent(Enum):
    """An event that leads an investigation to its next state."""

    READING = "a reading was taken"
    END = "no further reading comes"
    SUSPICION = "memory that nothing explains rises lately"
    NATIVE_CERTAIN = "the readings prove native growth that the last investigation did not explain"
    CENSUS_COMPLETE = "the census is there"
    TIME_TO_COMPARE = "it is time to compare"
    COMPARED = "what grew is known, as far as it can be"
    UNEXPLAINED = "the containers explain too little"
    UNPROVEN = "no drift came"
    NO_LINE = "the foremost owner has no line"
    COMPARE_AGAIN = "too little is explained, and comparisons are left: growth may come in bursts"
    LIBRARIES_GREW = "containers became longer that no root of the user's reaches"
    LIBRARIES_UNCLEAR = "no such container is known to have become longer so far"
    REFUSED = "tracing may not begin, or cannot"
    COMPLETE = "no further comparison is worth it"
    NATIVE_WITHOUT_LINE = "native growth was reported, and has no line"
