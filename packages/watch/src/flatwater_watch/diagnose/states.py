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
    FOLLOWING = "native growth was told without a line: it is noted which line runs while memory rises"


class CaseEvent(Enum):
    """An event that leads an investigation to its next state."""

    READING = "a reading was taken"
    SUSPICION = "memory that nothing explains rises lately"
    UNTOLD = "the record is sure of native growth that the last investigation did not explain"
    COUNTED = "the census is there"
    DUE = "it is time to look"
    LOOKED = "what grew is known, as far as it can be"
    UNEXPLAINED = "the containers explain too little"
    UNPROVEN = "no drift came"
    NO_LINE = "the foremost owner has no line"
    AGAIN = "too little is explained, and looks are left: growth may come in bursts"
    LONGER = "globals of libraries became longer"
    REFUSED = "tracing may not begin, or cannot"
    DONE = "no further look is worth it"
    LINELESS = "native growth was told, and has no line"


class CaseAction(Enum):
    """The work on the way to the next state."""

    KEEP = "nothing"
    COUNT = "go on with the census before"
    NOTICE = "ask the readings whether anything rises"
    PROVE = "ask the readings for a drift"
    LOOK = "go on with the census after, and compare"
    WIDEN = "add the globals of libraries that became longer to the roots"
    SEARCH = "begin the fork, if it has not begun"
    ASK = "ask the fork whether it has ended"
    AWAIT_LINE = "ask whether the line is known"
    JUDGE = "decide whether another look is worth it"
    TRACE = "trace allocations"
    TELL = "tell what was found, with the rest that no object holds"
    TELL_REST = "tell the rest that no object holds"
    FOLLOW = "begin to note which line runs while memory rises"
    AWAIT_RISE = "ask whether enough was noted"
    TELL_LINE = "tell the line at which most of it rose"
    LEAVE = "tell nothing, and rest"


TRANSITIONS: dict[tuple[CaseState, CaseEvent], tuple[CaseState, CaseAction]] = {
    (CaseState.BEGINNING, CaseEvent.READING): (CaseState.BEGINNING, CaseAction.COUNT),
    (CaseState.BEGINNING, CaseEvent.COUNTED): (CaseState.WATCHING, CaseAction.KEEP),
    (CaseState.WATCHING, CaseEvent.READING): (CaseState.WATCHING, CaseAction.NOTICE),
    (CaseState.WATCHING, CaseEvent.SUSPICION): (CaseState.COUNTING, CaseAction.COUNT),
    (CaseState.WATCHING, CaseEvent.UNTOLD): (CaseState.WATCHING, CaseAction.TELL_REST),
    (CaseState.COUNTING, CaseEvent.READING): (CaseState.COUNTING, CaseAction.COUNT),
    (CaseState.COUNTING, CaseEvent.COUNTED): (CaseState.PROVING, CaseAction.KEEP),
    (CaseState.PROVING, CaseEvent.READING): (CaseState.PROVING, CaseAction.PROVE),
    (CaseState.PROVING, CaseEvent.DUE): (CaseState.LOOKING, CaseAction.LOOK),
    (CaseState.LOOKING, CaseEvent.READING): (CaseState.LOOKING, CaseAction.LOOK),
    (CaseState.LOOKING, CaseEvent.UNEXPLAINED): (CaseState.SEARCHING, CaseAction.WIDEN),
    (CaseState.LOOKING, CaseEvent.LOOKED): (CaseState.LOOKING, CaseAction.JUDGE),
    (CaseState.LOOKING, CaseEvent.UNPROVEN): (CaseState.WATCHING, CaseAction.LEAVE),
    (CaseState.LOOKING, CaseEvent.NO_LINE): (CaseState.TRACING, CaseAction.TRACE),
    (CaseState.LOOKING, CaseEvent.AGAIN): (CaseState.LOOKING, CaseAction.KEEP),
    (CaseState.LOOKING, CaseEvent.DONE): (CaseState.WATCHING, CaseAction.TELL),
    (CaseState.SEARCHING, CaseEvent.LONGER): (CaseState.COUNTING, CaseAction.KEEP),
    (CaseState.SEARCHING, CaseEvent.READING): (CaseState.SEARCHING, CaseAction.ASK),
    (CaseState.SEARCHING, CaseEvent.DUE): (CaseState.SEARCHING, CaseAction.LOOK),
    (CaseState.SEARCHING, CaseEvent.UNEXPLAINED): (CaseState.SEARCHING, CaseAction.SEARCH),
    (CaseState.SEARCHING, CaseEvent.LOOKED): (CaseState.LOOKING, CaseAction.JUDGE),
    (CaseState.TRACING, CaseEvent.READING): (CaseState.TRACING, CaseAction.AWAIT_LINE),
    (CaseState.TRACING, CaseEvent.DUE): (CaseState.LOOKING, CaseAction.LOOK),
    (CaseState.TRACING, CaseEvent.REFUSED): (CaseState.WATCHING, CaseAction.TELL),
    (CaseState.WATCHING, CaseEvent.LINELESS): (CaseState.FOLLOWING, CaseAction.FOLLOW),
    (CaseState.FOLLOWING, CaseEvent.REFUSED): (CaseState.WATCHING, CaseAction.KEEP),
    (CaseState.FOLLOWING, CaseEvent.READING): (CaseState.FOLLOWING, CaseAction.AWAIT_RISE),
    (CaseState.FOLLOWING, CaseEvent.DUE): (CaseState.WATCHING, CaseAction.TELL_LINE),
}
