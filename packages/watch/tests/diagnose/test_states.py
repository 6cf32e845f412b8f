"""The table of an investigation, transition by transition, without a process."""

import ast
import inspect
import textwrap

import pytest

from flatwater_watch.diagnose.investigator import Investigator
from flatwater_watch.diagnose.monitor import Monitor
from flatwater_watch.diagnose.states import TRANSITIONS, CaseAction, CaseEvent, CaseState
from flatwater_watch.heap.roots import Roots

BEGIN = [
    (CaseEvent.READING, CaseState.BEGINNING, CaseAction.COUNT),
    (CaseEvent.COUNTED, CaseState.WATCHING, CaseAction.KEEP),
]
SUSPECT = [
    (CaseEvent.READING, CaseState.WATCHING, CaseAction.NOTICE),
    (CaseEvent.SUSPICION, CaseState.COUNTING, CaseAction.COUNT),
    (CaseEvent.READING, CaseState.COUNTING, CaseAction.COUNT),
    (CaseEvent.COUNTED, CaseState.PROVING, CaseAction.KEEP),
    (CaseEvent.READING, CaseState.PROVING, CaseAction.PROVE),
    (CaseEvent.DUE, CaseState.LOOKING, CaseAction.LOOK),
    (CaseEvent.READING, CaseState.LOOKING, CaseAction.LOOK),
]
LOOKED = (CaseEvent.LOOKED, CaseState.LOOKING, CaseAction.JUDGE)
TRACE = (CaseEvent.NO_LINE, CaseState.TRACING, CaseAction.TRACE)
SEARCH = [
    (CaseEvent.UNEXPLAINED, CaseState.SEARCHING, CaseAction.SEARCH),
    (CaseEvent.READING, CaseState.SEARCHING, CaseAction.ASK),
]
WALKS = {
    "nothing was proven": [LOOKED, (CaseEvent.UNPROVEN, CaseState.WATCHING, CaseAction.LEAVE)],
    "native growth that becomes sure later": [
        LOOKED,
        (CaseEvent.DONE, CaseState.WATCHING, CaseAction.TELL),
        (CaseEvent.READING, CaseState.WATCHING, CaseAction.NOTICE),
        (CaseEvent.UNTOLD, CaseState.WATCHING, CaseAction.TELL_REST),
    ],
    "an owner with its line": [
        LOOKED,
        TRACE,
        (CaseEvent.READING, CaseState.TRACING, CaseAction.AWAIT_LINE),
        (CaseEvent.DUE, CaseState.LOOKING, CaseAction.LOOK),
        LOOKED,
        (CaseEvent.DONE, CaseState.WATCHING, CaseAction.TELL),
    ],
    "an owner that may not be traced": [LOOKED, TRACE, (CaseEvent.REFUSED, CaseState.WATCHING, CaseAction.TELL)],
    "native growth, with its line": [
        LOOKED,
        (CaseEvent.DONE, CaseState.WATCHING, CaseAction.TELL),
        (CaseEvent.LINELESS, CaseState.FOLLOWING, CaseAction.FOLLOW),
        (CaseEvent.READING, CaseState.FOLLOWING, CaseAction.AWAIT_RISE),
        (CaseEvent.DUE, CaseState.WATCHING, CaseAction.TELL_LINE),
    ],
    "native growth in a program that is traced": [
        LOOKED,
        (CaseEvent.DONE, CaseState.WATCHING, CaseAction.TELL),
        (CaseEvent.LINELESS, CaseState.FOLLOWING, CaseAction.FOLLOW),
        (CaseEvent.REFUSED, CaseState.WATCHING, CaseAction.KEEP),
    ],
    "growth in bursts": [
        LOOKED,
        (CaseEvent.AGAIN, CaseState.LOOKING, CaseAction.KEEP),
        (CaseEvent.READING, CaseState.LOOKING, CaseAction.LOOK),
        LOOKED,
    ],
    "what a library holds": [
        (CaseEvent.UNEXPLAINED, CaseState.SEARCHING, CaseAction.WIDEN),
        (CaseEvent.LONGER, CaseState.COUNTING, CaseAction.KEEP),
        *SUSPECT[2:],
        LOOKED,
    ],
    "cyclic garbage": [
        (CaseEvent.UNEXPLAINED, CaseState.SEARCHING, CaseAction.WIDEN),
        *SEARCH,
        (CaseEvent.DUE, CaseState.SEARCHING, CaseAction.LOOK),
        *SEARCH,
        (CaseEvent.LOOKED, CaseState.LOOKING, CaseAction.JUDGE),
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
    assert {action for _, action in TRANSITIONS.values()} == set(CaseAction)


def answers(name: str) -> set[CaseEvent]:
    """Events that a method of the monitor may answer with, read from its code."""
    code = ast.parse(textwrap.dedent(inspect.getsource(vars(Investigator)[name])))
    found = set[CaseEvent]()
    for node in ast.walk(code):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "CaseEvent":
            found.add(CaseEvent[node.attr])
        if isinstance(node, ast.Attribute) and node.attr == "_finish_look":
            found |= answers("_finish_look")
    return found


def test_each_answer_of_an_action_leads_on() -> None:
    """No event is left without a row: the loop of the monitor looks each up."""
    monitor = Monitor(Roots())
    for to, action in TRANSITIONS.values():
        for event in answers(monitor._actions[action].__name__):
            assert (to, event) in TRANSITIONS, f"{action} answers {event} in {to}"
