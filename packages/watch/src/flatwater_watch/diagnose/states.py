"""An investigation as states and a table: which event leads where, and what is done on the way. Pure.

Each reading is an event. An action does one thing and answers with the event that follows from it, or with none: then
the state stays until the next reading.
"""

from enum import Enum


class State(Enum):
    """Where an investigation stands between two readings."""

    BEGINNING = "the first census is being taken, to compare the end with"
    WATCHING = "readings only: nothing rises that is not known"
    COUNTING = "something rises: the census before is being taken"
    PROVING = "the readings must show a drift"
    LOOKING = "the census after is being taken, and compared with the one before"
    SEARCHING = "too little is explained: libraries are asked, and a fork looks for cyclic garbage"
    TRACING = "an owner, or garbage that may be one, has no line: allocations are traced until something is added to it"
    FOLLOWING = "native growth was told without a line: it is noted which line runs while memory rises"


class Event(Enum):
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


TRANSITIONS: dict[tuple[State, Event], tuple[State, Action]] = {
    (State.BEGINNING, Event.READING): (State.BEGINNING, Action.COUNT),
    (State.BEGINNING, Event.COUNTED): (State.WATCHING, Action.KEEP),
    (State.WATCHING, Event.READING): (State.WATCHING, Action.NOTICE),
    (State.WATCHING, Event.SUSPICION): (State.COUNTING, Action.COUNT),
    (State.WATCHING, Event.UNTOLD): (State.WATCHING, Action.TELL_REST),
    (State.COUNTING, Event.READING): (State.COUNTING, Action.COUNT),
    (State.COUNTING, Event.COUNTED): (State.PROVING, Action.KEEP),
    (State.PROVING, Event.READING): (State.PROVING, Action.PROVE),
    (State.PROVING, Event.DUE): (State.LOOKING, Action.LOOK),
    (State.LOOKING, Event.READING): (State.LOOKING, Action.LOOK),
    (State.LOOKING, Event.UNEXPLAINED): (State.SEARCHING, Action.WIDEN),
    (State.LOOKING, Event.LOOKED): (State.LOOKING, Action.JUDGE),
    (State.LOOKING, Event.UNPROVEN): (State.WATCHING, Action.LEAVE),
    (State.LOOKING, Event.NO_LINE): (State.TRACING, Action.TRACE),
    (State.LOOKING, Event.AGAIN): (State.LOOKING, Action.KEEP),
    (State.LOOKING, Event.DONE): (State.WATCHING, Action.TELL),
    (State.SEARCHING, Event.LONGER): (State.COUNTING, Action.KEEP),
    (State.SEARCHING, Event.READING): (State.SEARCHING, Action.ASK),
    (State.SEARCHING, Event.DUE): (State.SEARCHING, Action.LOOK),
    (State.SEARCHING, Event.UNEXPLAINED): (State.SEARCHING, Action.SEARCH),
    (State.SEARCHING, Event.LOOKED): (State.LOOKING, Action.JUDGE),
    (State.TRACING, Event.READING): (State.TRACING, Action.AWAIT_LINE),
    (State.TRACING, Event.DUE): (State.LOOKING, Action.LOOK),
    (State.TRACING, Event.REFUSED): (State.WATCHING, Action.TELL),
    (State.WATCHING, Event.LINELESS): (State.FOLLOWING, Action.FOLLOW),
    (State.FOLLOWING, Event.REFUSED): (State.WATCHING, Action.KEEP),
    (State.FOLLOWING, Event.READING): (State.FOLLOWING, Action.AWAIT_RISE),
    (State.FOLLOWING, Event.DUE): (State.WATCHING, Action.TELL_LINE),
}
