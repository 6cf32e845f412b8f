"""The states of an investigation, and a table: the next state and the action for each event.

Each reading is an event. An action does one thing and returns the event that follows from it, or None: then the state
stays until the next reading.
"""

from enum import Enum


class CaseState(Enum):
    """The state of an investigation between two readings."""

    BEGINNING = "the first census is being taken, to compare the end with"
    WATCHING = "readings only: nothing rises that is not known"
    COUNTING = "something rises: the census before is being taken"
    PROVING = "the readings must show a drift"
    LOOKING = "the census after is being taken, and compared with the one before"
    SEARCHING = "too little is explained: libraries are asked, and a fork looks for cyclic garbage"
    TRACING = "an owner, or garbage that may be one, has no line: allocations are traced until something is added to it"
    RECORDING_RISES = "native growth was told without a line: it is noted which line runs while memory rises"


class CaseEvent(Enum):
    """An event that leads an investigation to its next state."""

    READING = "a reading was taken"
    SUSPICION = "memory that nothing explains rises lately"
    NATIVE_CERTAIN = "the record is sure of native growth that the last investigation did not explain"
    CENSUS_COMPLETE = "the census is there"
    TIME_TO_COMPARE = "it is time to look"
    COMPARED = "what grew is known, as far as it can be"
    UNEXPLAINED = "the containers explain too little"
    UNPROVEN = "no drift came"
    NO_LINE = "the foremost owner has no line"
    LOOK_AGAIN = "too little is explained, and looks are left: growth may come in bursts"
    LIBRARIES_GREW = "globals of libraries became longer"
    REFUSED = "tracing may not begin, or cannot"
    COMPLETE = "no further look is worth it"
    NATIVE_WITHOUT_LINE = "native growth was told, and has no line"


class CaseAction(Enum):
    """The work on the way to the next state."""

    WAIT = "nothing"
    TAKE_FIRST_CENSUS = "go on with the census before"
    CHECK_READINGS = "ask the readings whether anything rises"
    AWAIT_DRIFT = "ask the readings for a drift"
    COMPARE_CENSUSES = "go on with the census after, and compare"
    ADD_LIBRARY_ROOTS = "add the globals of libraries that became longer to the roots"
    START_GARBAGE_SEARCH = "begin the fork, if it has not begun"
    CHECK_GARBAGE_SEARCH = "ask the fork whether it has ended"
    AWAIT_LINE = "ask whether the line is known"
    CHOOSE_NEXT_STEP = "decide whether another look is worth it"
    START_TRACE = "trace allocations"
    PUBLISH = "tell what was found, with the rest that no object holds"
    PUBLISH_NATIVE_REST = "tell the rest that no object holds"
    START_RECORDING = "begin to note which line runs while memory rises"
    AWAIT_RISES = "ask whether enough was noted"
    PUBLISH_NATIVE_LINE = "tell the line at which most of it rose"
    CLOSE_UNPROVEN = "tell nothing, and rest"


TRANSITIONS: dict[tuple[CaseState, CaseEvent], tuple[CaseState, CaseAction]] = {
    (CaseState.BEGINNING, CaseEvent.READING): (CaseState.BEGINNING, CaseAction.TAKE_FIRST_CENSUS),
    (CaseState.BEGINNING, CaseEvent.CENSUS_COMPLETE): (CaseState.WATCHING, CaseAction.WAIT),
    (CaseState.WATCHING, CaseEvent.READING): (CaseState.WATCHING, CaseAction.CHECK_READINGS),
    (CaseState.WATCHING, CaseEvent.SUSPICION): (CaseState.COUNTING, CaseAction.TAKE_FIRST_CENSUS),
    (CaseState.WATCHING, CaseEvent.NATIVE_CERTAIN): (CaseState.WATCHING, CaseAction.PUBLISH_NATIVE_REST),
    (CaseState.COUNTING, CaseEvent.READING): (CaseState.COUNTING, CaseAction.TAKE_FIRST_CENSUS),
    (CaseState.COUNTING, CaseEvent.CENSUS_COMPLETE): (CaseState.PROVING, CaseAction.WAIT),
    (CaseState.PROVING, CaseEvent.READING): (CaseState.PROVING, CaseAction.AWAIT_DRIFT),
    (CaseState.PROVING, CaseEvent.TIME_TO_COMPARE): (CaseState.LOOKING, CaseAction.COMPARE_CENSUSES),
    (CaseState.LOOKING, CaseEvent.READING): (CaseState.LOOKING, CaseAction.COMPARE_CENSUSES),
    (CaseState.LOOKING, CaseEvent.UNEXPLAINED): (CaseState.SEARCHING, CaseAction.ADD_LIBRARY_ROOTS),
    (CaseState.LOOKING, CaseEvent.COMPARED): (CaseState.LOOKING, CaseAction.CHOOSE_NEXT_STEP),
    (CaseState.LOOKING, CaseEvent.UNPROVEN): (CaseState.WATCHING, CaseAction.CLOSE_UNPROVEN),
    (CaseState.LOOKING, CaseEvent.NO_LINE): (CaseState.TRACING, CaseAction.START_TRACE),
    (CaseState.LOOKING, CaseEvent.LOOK_AGAIN): (CaseState.LOOKING, CaseAction.WAIT),
    (CaseState.LOOKING, CaseEvent.COMPLETE): (CaseState.WATCHING, CaseAction.PUBLISH),
    (CaseState.SEARCHING, CaseEvent.LIBRARIES_GREW): (CaseState.COUNTING, CaseAction.WAIT),
    (CaseState.SEARCHING, CaseEvent.READING): (CaseState.SEARCHING, CaseAction.CHECK_GARBAGE_SEARCH),
    (CaseState.SEARCHING, CaseEvent.TIME_TO_COMPARE): (CaseState.SEARCHING, CaseAction.COMPARE_CENSUSES),
    (CaseState.SEARCHING, CaseEvent.UNEXPLAINED): (CaseState.SEARCHING, CaseAction.START_GARBAGE_SEARCH),
    (CaseState.SEARCHING, CaseEvent.COMPARED): (CaseState.LOOKING, CaseAction.CHOOSE_NEXT_STEP),
    (CaseState.TRACING, CaseEvent.READING): (CaseState.TRACING, CaseAction.AWAIT_LINE),
    (CaseState.TRACING, CaseEvent.TIME_TO_COMPARE): (CaseState.LOOKING, CaseAction.COMPARE_CENSUSES),
    (CaseState.TRACING, CaseEvent.REFUSED): (CaseState.WATCHING, CaseAction.PUBLISH),
    (CaseState.WATCHING, CaseEvent.NATIVE_WITHOUT_LINE): (CaseState.RECORDING_RISES, CaseAction.START_RECORDING),
    (CaseState.RECORDING_RISES, CaseEvent.REFUSED): (CaseState.WATCHING, CaseAction.WAIT),
    (CaseState.RECORDING_RISES, CaseEvent.READING): (CaseState.RECORDING_RISES, CaseAction.AWAIT_RISES),
    (CaseState.RECORDING_RISES, CaseEvent.TIME_TO_COMPARE): (CaseState.WATCHING, CaseAction.PUBLISH_NATIVE_LINE),
}
