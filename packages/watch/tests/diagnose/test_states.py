"""The table of an investigation, transition by transition, without a process."""

import ast
import inspect
import textwrap

import pytest

from flatwater_watch.diagnose.investigator import Investigator
from flatwater_watch.diagnose.monitor import Monitor
from flatwater_watch.diagnose.states import TRANSITIONS, Action, CaseEvent, CaseState
from flatwater_watch.heap.roots import Roots

BEGIN = [(CaseEvent.READING, CaseState.BEGINNING, Action.COUNT), (CaseEvent.COUNTED, CaseState.WATCHING, Action.KEEP)]
SUSPECT = [
    (CaseEvent.READING, CaseState.WATCHING, Action.NOTICE),
    (CaseEvent.SUSPICION, CaseState.COUNTING, Action.COUNT),
    (CaseEvent.READING, CaseState.COUNTING, Action.COUNT),
    (CaseEvent.COUNTED, CaseState.PROVING, Action.KEEP),
    (CaseEvent.READING, CaseState.PROVING, Action.PROVE),
    (CaseEvent.DUE, CaseState.LOOKING, Action.LOOK),
    (CaseEvent.READING, CaseState.LOOKING, Action.LOOK),
]
LOOKED = (CaseEvent.LOOKED, CaseState.LOOKING, Action.JUDGE)
TRACE = (CaseEvent.NO_LINE, CaseState.TRACING, Action.TRACE)
WALKS = {
    "nothing was proven": [LOOKED, (CaseEvent.UNPROVEN, CaseState.WATCHING, Action.LEAVE)],
    "native growth that becomes sure later": [
        LOOKED,
        (CaseEvent.DONE, CaseState.WATCHING, Action.TELL),
        (CaseEvent.READING, CaseState.WATCHING, Action.NOTICE),
        (CaseEvent.UNTOLD, CaseState.WATCHING, Action.TELL_REST),
    ],
    "an owner with its line": [
        LOOKED,
        TRACE,
        (CaseEvent.READING, CaseState.TRACING, Action.AWAIT_LINE),
        (CaseEvent.DUE, CaseState.LOOKING, Action.LOOK),
        LOOKED,
        (CaseEvent.DONE, CaseState.WATCHING, Action.TELL),
    ],
    "an owner that may not be traced": [LOOKED, TRACE, (CaseEvent.REFUSED, CaseState.WATCHING, Action.TELL)],
    "native growth, with its line": [
        LOOKED,
        (CaseEvent.DONE, CaseState.WATCHING, Action.TELL),
        (CaseEvent.LINELESS, CaseState.FOLLOWING, Action.FOLLOW),
        (CaseEvent.READING, CaseState.FOLLOWING, Action.AWAIT_RISE),
        (CaseEvent.DUE, CaseState.WATCHING, Action.TELL_LINE),
    ],
    "native growth in a program that is traced": [
        LOOKED,
        (CaseEvent.DONE, CaseState.WATCHING, Action.TELL),
        (CaseEvent.LINELESS, CaseState.FOLLOWING, Action.FOLLOW),
        (CaseEvent.REFUSED, CaseState.WATCHING, Action.KEEP),
    ],
    "growth in bursts": [
        LOOKED,
        (CaseEvent.AGAIN, CaseState.LOOKING, Action.KEEP),
        (CaseEvent.READING, CaseState.LOOKING, Action.LOOK),
        LOOKED,
    ],
    "what a library holds": [
        (CaseEvent.UNEXPLAINED, CaseState.SEARCHING, Action.WIDEN),
        (CaseEvent.LONGER, CaseState.COUNTING, Action.KEEP),
        *SUSPECT[2:],
        LOOKED,
    ],
    "cyclic garbage": [
        (CaseEvent.UNEXPLAINED, CaseState.SEARCHING, Action.WIDEN),
        (CaseEvent.UNEXPLAINED, CaseState.SEARCHING, Action.SEARCH),
        (CaseEvent.READING, CaseState.SEARCHING, Action.ASK),
        (CaseEvent.DUE, CaseState.SEARCHING, Action.LOOK),
        (CaseEvent.UNEXPLAINED, CaseState.SEARCHING, Action.SEARCH),
        (CaseEvent.READING, CaseState.SEARCHING, Action.ASK),
        (CaseEvent.LOOKED, CaseState.LOOKING, Action.JUDGE),
    ],
}


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_through_the_table(name: str) -> None:
    state = CaseState.BEGINNING
    for event, to, action in [*BEGIN, *SUSPECT, *WALKS[name]]:
        assert TRANSITIONS[state, event] == (to, action)
        state = to


def test_the_walks_take_every_transition() -> None:
    taken = set[tuple[CaseState, CaseEvent]]()
    for walk in WALKS.values():
        state = CaseState.BEGINNING
        for event, to, _ in [*BEGIN, *SUSPECT, *walk]:
            taken.add((state, event))
            state = to
    assert taken == set(TRANSITIONS)


def test_a_reading_is_answered_in_every_state() -> None:
    assert {state for state, event in TRANSITIONS if event is CaseEvent.READING} == set(CaseState)
    assert {action for _, action in TRANSITIONS.values()} == set(Action)


def answers(name: str) -> set[CaseEvent]:
    """Events that a method of the monitor may answer with, read from its code."""
    code = ast.parse(textwrap.dedent(inspect.getsource(vars(Investigator)[name])))
    found = set[CaseEvent]()
    for node in ast.walk(code):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "CaseEvent":
            found.add(CaseEvent[node.attr])
        if isinstance(node, ast.Attribute) and node.attr == "_seen":
            found |= answers("_seen")
    return found


def test_each_answer_of_an_action_leads_on() -> None:
    """No event is left without a row: the loop of the monitor looks each up."""
    monitor = Monitor(Roots())
    for to, action in TRANSITIONS.values():
        for event in answers(monitor._actions[action].__name__):
            assert (to, event) in TRANSITIONS, f"{action} answers {event} in {to}"
