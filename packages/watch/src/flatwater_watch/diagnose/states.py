"""The states of an investigation, and a table: the next state and the action for each event.

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


class CaseAction(Enum):
    """The work on the way to the next state."""

    WAIT = "nothing"
    TAKE_FIRST_CENSUS = "go on with the first census"
    CHECK_READINGS = "ask the readings whether anything rises"
    AWAIT_DRIFT = "ask the readings for a drift"
    COMPARE_CENSUSES = "go on with the second census, and compare"
    COMPARE_FIRST_AT_END = "compare at once, with the time of a last search, if nothing was compared yet"
    ADD_LIBRARY_ROOTS = "add what holds containers that became longer to the roots"
    START_GARBAGE_SEARCH = "begin the fork, if it has not begun"
    CHECK_GARBAGE_SEARCH = "ask the fork whether it has ended"
    FINISH_GARBAGE_SEARCH = "wait for the fork"
    AWAIT_LINE = "ask whether the line is known"
    SEARCH_TRACED_GARBAGE = "look for the garbage that was traced so far, if it is garbage that has no line"
    CHOOSE_NEXT_STEP = "decide whether another comparison is worth it"
    START_TRACE = "trace allocations"
    PUBLISH = "report the findings, with native growth that no object explains"
    PUBLISH_NATIVE_GROWTH = "report native growth that the readings prove by now"
    START_RECORDING = "begin to record which line runs while memory rises"
    AWAIT_RISES = "ask whether enough was recorded"
    PUBLISH_NATIVE_LINE = "report the line at which most of it rose"
    CLOSE_UNPROVEN = "report nothing, and pause"


TRANSITIONS: dict[tuple[CaseState, CaseEvent], tuple[CaseState, CaseAction]] = {
    (CaseState.BEGINNING, CaseEvent.READING): (CaseState.BEGINNING, CaseAction.TAKE_FIRST_CENSUS),
    (CaseState.BEGINNING, CaseEvent.CENSUS_COMPLETE): (CaseState.WATCHING, CaseAction.WAIT),
    (CaseState.WATCHING, CaseEvent.READING): (CaseState.WATCHING, CaseAction.CHECK_READINGS),
    (CaseState.WATCHING, CaseEvent.SUSPICION): (CaseState.COUNTING, CaseAction.TAKE_FIRST_CENSUS),
    (CaseState.WATCHING, CaseEvent.NATIVE_CERTAIN): (CaseState.WATCHING, CaseAction.PUBLISH_NATIVE_GROWTH),
    (CaseState.COUNTING, CaseEvent.READING): (CaseState.COUNTING, CaseAction.TAKE_FIRST_CENSUS),
    (CaseState.COUNTING, CaseEvent.CENSUS_COMPLETE): (CaseState.PROVING, CaseAction.WAIT),
    (CaseState.PROVING, CaseEvent.READING): (CaseState.PROVING, CaseAction.AWAIT_DRIFT),
    (CaseState.PROVING, CaseEvent.TIME_TO_COMPARE): (CaseState.COMPARING, CaseAction.COMPARE_CENSUSES),
    (CaseState.COMPARING, CaseEvent.READING): (CaseState.COMPARING, CaseAction.COMPARE_CENSUSES),
    (CaseState.COMPARING, CaseEvent.UNEXPLAINED): (CaseState.SEARCHING, CaseAction.ADD_LIBRARY_ROOTS),
    (CaseState.COMPARING, CaseEvent.COMPARED): (CaseState.COMPARING, CaseAction.CHOOSE_NEXT_STEP),
    (CaseState.COMPARING, CaseEvent.UNPROVEN): (CaseState.WATCHING, CaseAction.CLOSE_UNPROVEN),
    (CaseState.COMPARING, CaseEvent.NO_LINE): (CaseState.TRACING, CaseAction.START_TRACE),
    (CaseState.COMPARING, CaseEvent.COMPARE_AGAIN): (CaseState.COMPARING, CaseAction.WAIT),
    (CaseState.COMPARING, CaseEvent.COMPLETE): (CaseState.WATCHING, CaseAction.PUBLISH),
    (CaseState.SEARCHING, CaseEvent.LIBRARIES_GREW): (CaseState.COUNTING, CaseAction.WAIT),
    (CaseState.SEARCHING, CaseEvent.READING): (CaseState.SEARCHING, CaseAction.CHECK_GARBAGE_SEARCH),
    (CaseState.SEARCHING, CaseEvent.TIME_TO_COMPARE): (CaseState.SEARCHING, CaseAction.COMPARE_CENSUSES),
    (CaseState.SEARCHING, CaseEvent.UNEXPLAINED): (CaseState.SEARCHING, CaseAction.ADD_LIBRARY_ROOTS),
    (CaseState.SEARCHING, CaseEvent.LIBRARIES_UNCLEAR): (CaseState.SEARCHING, CaseAction.START_GARBAGE_SEARCH),
    (CaseState.SEARCHING, CaseEvent.COMPARED): (CaseState.COMPARING, CaseAction.CHOOSE_NEXT_STEP),
    (CaseState.TRACING, CaseEvent.READING): (CaseState.TRACING, CaseAction.AWAIT_LINE),
    (CaseState.TRACING, CaseEvent.TIME_TO_COMPARE): (CaseState.COMPARING, CaseAction.COMPARE_CENSUSES),
    (CaseState.TRACING, CaseEvent.REFUSED): (CaseState.WATCHING, CaseAction.PUBLISH),
    (CaseState.WATCHING, CaseEvent.NATIVE_WITHOUT_LINE): (CaseState.RECORDING_RISES, CaseAction.START_RECORDING),
    (CaseState.RECORDING_RISES, CaseEvent.REFUSED): (CaseState.WATCHING, CaseAction.WAIT),
    (CaseState.RECORDING_RISES, CaseEvent.READING): (CaseState.RECORDING_RISES, CaseAction.AWAIT_RISES),
    (CaseState.RECORDING_RISES, CaseEvent.TIME_TO_COMPARE): (CaseState.WATCHING, CaseAction.PUBLISH_NATIVE_LINE),
    (CaseState.BEGINNING, CaseEvent.END): (CaseState.BEGINNING, CaseAction.WAIT),
    (CaseState.WATCHING, CaseEvent.END): (CaseState.WATCHING, CaseAction.WAIT),
    (CaseState.COUNTING, CaseEvent.END): (CaseState.COUNTING, CaseAction.WAIT),
    (CaseState.PROVING, CaseEvent.END): (CaseState.PROVING, CaseAction.WAIT),
    (CaseState.COMPARING, CaseEvent.END): (CaseState.COMPARING, CaseAction.COMPARE_FIRST_AT_END),
    (CaseState.SEARCHING, CaseEvent.END): (CaseState.SEARCHING, CaseAction.FINISH_GARBAGE_SEARCH),
    (CaseState.TRACING, CaseEvent.END): (CaseState.TRACING, CaseAction.SEARCH_TRACED_GARBAGE),
    (CaseState.RECORDING_RISES, CaseEvent.END): (CaseState.WATCHING, CaseAction.PUBLISH_NATIVE_LINE),
}
