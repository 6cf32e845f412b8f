"""An investigation as states and a table: which event leads where, and what is done on the way. Pure.

Each reading is an event. An action does one thing and answers with the event that follows from it, or with none: then
the state stays until the next reading.
"""

from enum import Enum


class CaseState(Enum):
    """Where an investigation stands between two readings."""

    BEGINNING = "the first census is being taken, to compare the end with"
    WATCHING = "readings only: nothing rises that is not known"
    COUNTING = "something rises: the census before is being taken"
    PROVING = "the readings must show a drift"
    LOOKING = "the census after is being taken, and compared with the one before"
    SEARCHING = "too little is explained: libraries are asked, and a fork looks for cyclic garbage"
    TRACING = "an owner, or garbage that may be one, has no line: allocations are traced until something is added to it"
    FOLLOWING = "native growth was told without a line: it is noted which line runs while memory rises"


class CaseEvent(Enum):
    """What happened."""

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


class Action(Enum):
    """What is done on the way to the next state."""

    KEEP = "nothing"
    COUNT = "go on with the census before"
    NOTICE = "ask the readings whether anything rises"
    PROVE = "ask the readings for a drift"
    LOOK = "go on with the census after, and compare"
    WIDEN = "add the globals of libraries that became longer to the roots"
    SEARCH = "begin the fork, if there is none yet"
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


TRANSITIONS: dict[tuple[CaseState, CaseEvent], tuple[CaseState, Action]] = {
    (CaseState.BEGINNING, CaseEvent.READING): (CaseState.BEGINNING, Action.COUNT),
    (CaseState.BEGINNING, CaseEvent.COUNTED): (CaseState.WATCHING, Action.KEEP),
    (CaseState.WATCHING, CaseEvent.READING): (CaseState.WATCHING, Action.NOTICE),
    (CaseState.WATCHING, CaseEvent.SUSPICION): (CaseState.COUNTING, Action.COUNT),
    (CaseState.WATCHING, CaseEvent.UNTOLD): (CaseState.WATCHING, Action.TELL_REST),
    (CaseState.COUNTING, CaseEvent.READING): (CaseState.COUNTING, Action.COUNT),
    (CaseState.COUNTING, CaseEvent.COUNTED): (CaseState.PROVING, Action.KEEP),
    (CaseState.PROVING, CaseEvent.READING): (CaseState.PROVING, Action.PROVE),
    (CaseState.PROVING, CaseEvent.DUE): (CaseState.LOOKING, Action.LOOK),
    (CaseState.LOOKING, CaseEvent.READING): (CaseState.LOOKING, Action.LOOK),
    (CaseState.LOOKING, CaseEvent.UNEXPLAINED): (CaseState.SEARCHING, Action.WIDEN),
    (CaseState.LOOKING, CaseEvent.LOOKED): (CaseState.LOOKING, Action.JUDGE),
    (CaseState.LOOKING, CaseEvent.UNPROVEN): (CaseState.WATCHING, Action.LEAVE),
    (CaseState.LOOKING, CaseEvent.NO_LINE): (CaseState.TRACING, Action.TRACE),
    (CaseState.LOOKING, CaseEvent.AGAIN): (CaseState.LOOKING, Action.KEEP),
    (CaseState.LOOKING, CaseEvent.DONE): (CaseState.WATCHING, Action.TELL),
    (CaseState.SEARCHING, CaseEvent.LONGER): (CaseState.COUNTING, Action.KEEP),
    (CaseState.SEARCHING, CaseEvent.READING): (CaseState.SEARCHING, Action.ASK),
    (CaseState.SEARCHING, CaseEvent.DUE): (CaseState.SEARCHING, Action.LOOK),
    (CaseState.SEARCHING, CaseEvent.UNEXPLAINED): (CaseState.SEARCHING, Action.SEARCH),
    (CaseState.SEARCHING, CaseEvent.LOOKED): (CaseState.LOOKING, Action.JUDGE),
    (CaseState.TRACING, CaseEvent.READING): (CaseState.TRACING, Action.AWAIT_LINE),
    (CaseState.TRACING, CaseEvent.DUE): (CaseState.LOOKING, Action.LOOK),
    (CaseState.TRACING, CaseEvent.REFUSED): (CaseState.WATCHING, Action.TELL),
    (CaseState.WATCHING, CaseEvent.LINELESS): (CaseState.FOLLOWING, Action.FOLLOW),
    (CaseState.FOLLOWING, CaseEvent.REFUSED): (CaseState.WATCHING, Action.KEEP),
    (CaseState.FOLLOWING, CaseEvent.READING): (CaseState.FOLLOWING, Action.AWAIT_RISE),
    (CaseState.FOLLOWING, CaseEvent.DUE): (CaseState.WATCHING, Action.TELL_LINE),
}
