"""The table of an investigation, transition by transition, without a process."""

import ast
import inspect
import textwrap

import pytest

from flatwater_watch.diagnose.investigator import Investigator
from flatwater_watch.diagnose.monitor import Monitor
from flatwater_watch.diagnose.states import TRANSITIONS, Action, Event, State
from flatwater_watch.heap.roots import Roots

BEGIN = [(Event.READING, State.BEGINNING, Action.COUNT), (Event.COUNTED, State.WATCHING, Action.KEEP)]
SUSPECT = [
    (Event.READING, State.WATCHING, Action.NOTICE),
    (Event.SUSPICION, State.COUNTING, Action.COUNT),
    (Event.READING, State.COUNTING, Action.COUNT),
    (Event.COUNTED, State.PROVING, Action.KEEP),
    (Event.READING, State.PROVING, Action.PROVE),
    (Event.DUE, State.LOOKING, Action.LOOK),
    (Event.READING, State.LOOKING, Action.LOOK),
]
LOOKED = (Event.LOOKED, State.LOOKING, Action.JUDGE)
TRACE = (Event.NO_LINE, State.TRACING, Action.TRACE)
WALKS = {
    "nothing was proven": [LOOKED, (Event.UNPROVEN, State.WATCHING, Action.LEAVE)],
    "native growth that becomes sure later": [
        LOOKED,
        (Event.DONE, State.WATCHING, Action.TELL),
        (Event.READING, State.WATCHING, Action.NOTICE),
        (Event.UNTOLD, State.WATCHING, Action.TELL_REST),
    ],
    "an owner with its line": [
        LOOKED,
        TRACE,
        (Event.READING, State.TRACING, Action.AWAIT_LINE),
        (Event.DUE, State.LOOKING, Action.LOOK),
        LOOKED,
        (Event.DONE, State.WATCHING, Action.TELL),
    ],
    "an owner that may not be traced": [LOOKED, TRACE, (Event.REFUSED, State.WATCHING, Action.TELL)],
    "native growth, with its line": [
        LOOKED,
        (Event.DONE, State.WATCHING, Action.TELL),
        (Event.LINELESS, State.FOLLOWING, Action.FOLLOW),
        (Event.READING, State.FOLLOWING, Action.AWAIT_RISE),
        (Event.DUE, State.WATCHING, Action.TELL_LINE),
    ],
    "native growth in a program that is traced": [
        LOOKED,
        (Event.DONE, State.WATCHING, Action.TELL),
        (Event.LINELESS, State.FOLLOWING, Action.FOLLOW),
        (Event.REFUSED, State.WATCHING, Action.KEEP),
    ],
    "growth in bursts": [
        LOOKED,
        (Event.AGAIN, State.LOOKING, Action.KEEP),
        (Event.READING, State.LOOKING, Action.LOOK),
        LOOKED,
    ],
    "what a library holds": [
        (Event.UNEXPLAINED, State.SEARCHING, Action.WIDEN),
        (Event.LONGER, State.COUNTING, Action.KEEP),
        *SUSPECT[2:],
        LOOKED,
    ],
    "cyclic garbage": [
        (Event.UNEXPLAINED, State.SEARCHING, Action.WIDEN),
        (Event.UNEXPLAINED, State.SEARCHING, Action.SEARCH),
        (Event.READING, State.SEARCHING, Action.ASK),
        (Event.DUE, State.SEARCHING, Action.LOOK),
        (Event.UNEXPLAINED, State.SEARCHING, Action.SEARCH),
        (Event.READING, State.SEARCHING, Action.ASK),
        (Event.LOOKED, State.LOOKING, Action.JUDGE),
    ],
}


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_through_the_table(name: str) -> None:
    state = State.BEGINNING
    for event, to, action in [*BEGIN, *SUSPECT, *WALKS[name]]:
        assert TRANSITIONS[state, event] == (to, action)
        state = to


def test_the_walks_take_every_transition() -> None:
    taken = set[tuple[State, Event]]()
    for walk in WALKS.values():
        state = State.BEGINNING
        for event, to, _ in [*BEGIN, *SUSPECT, *walk]:
            taken.add((state, event))
            state = to
    assert taken == set(TRANSITIONS)


def test_a_reading_is_answered_in_every_state() -> None:
    assert {state for state, event in TRANSITIONS if event is Event.READING} == set(State)
    assert {action for _, action in TRANSITIONS.values()} == set(Action)


def answers(name: str) -> set[Event]:
    """Events that a method of the monitor may answer with, read from its code."""
    code = ast.parse(textwrap.dedent(inspect.getsource(vars(Investigator)[name])))
    found = set[Event]()
    for node in ast.walk(code):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Event":
            found.add(Event[node.attr])
        if isinstance(node, ast.Attribute) and node.attr == "_seen":
            found |= answers("_seen")
    return found


def test_each_answer_of_an_action_leads_on() -> None:
    """No event is left without a row: the loop of the monitor looks each up."""
    monitor = Monitor(Roots())
    for to, action in TRANSITIONS.values():
        for event in answers(monitor._actions[action].__name__):
            assert (to, event) in TRANSITIONS, f"{action} answers {event} in {to}"
