"""The table of an investigation, transition by transition, without a process."""

import ast
import inspect
import textwrap

import pytest

from flatwater_watch.diagnose.monitor import Monitor
from flatwater_watch.diagnose.states import TRANSITIONS, CaseAction, CaseEvent, CaseState
from flatwater_watch.heap.roots import Roots

BEGIN = [
    (CaseEvent.READING, CaseState.BEGINNING, CaseAction.TAKE_FIRST_CENSUS),
    (CaseEvent.CENSUS_COMPLETE, CaseState.WATCHING, CaseAction.WAIT),
]
SUSPECT = [
    (CaseEvent.READING, CaseState.WATCHING, CaseAction.CHECK_READINGS),
    (CaseEvent.SUSPICION, CaseState.COUNTING, CaseAction.TAKE_FIRST_CENSUS),
    (CaseEvent.READING, CaseState.COUNTING, CaseAction.TAKE_FIRST_CENSUS),
    (CaseEvent.CENSUS_COMPLETE, CaseState.PROVING, CaseAction.WAIT),
    (CaseEvent.READING, CaseState.PROVING, CaseAction.AWAIT_DRIFT),
    (CaseEvent.TIME_TO_COMPARE, CaseState.COMPARING, CaseAction.COMPARE_CENSUSES),
    (CaseEvent.READING, CaseState.COMPARING, CaseAction.COMPARE_CENSUSES),
]
LOOKED = (CaseEvent.COMPARED, CaseState.COMPARING, CaseAction.CHOOSE_NEXT_STEP)
TRACE = (CaseEvent.NO_LINE, CaseState.TRACING, CaseAction.START_TRACE)
SEARCH = [
    (CaseEvent.UNEXPLAINED, CaseState.SEARCHING, CaseAction.ADD_LIBRARY_ROOTS),
    (CaseEvent.LIBRARIES_UNCLEAR, CaseState.SEARCHING, CaseAction.START_GARBAGE_SEARCH),
    (CaseEvent.READING, CaseState.SEARCHING, CaseAction.CHECK_GARBAGE_SEARCH),
]
ENDS = {
    CaseState.BEGINNING: CaseAction.WAIT,
    CaseState.WATCHING: CaseAction.WAIT,
    CaseState.COUNTING: CaseAction.WAIT,
    CaseState.PROVING: CaseAction.WAIT,
    CaseState.COMPARING: CaseAction.COMPARE_FIRST_AT_END,
    CaseState.SEARCHING: CaseAction.FINISH_GARBAGE_SEARCH,
    CaseState.TRACING: CaseAction.SEARCH_TRACED_GARBAGE,
    CaseState.RECORDING_RISES: CaseAction.PUBLISH_NATIVE_LINE,
}
"""What happens in each state when no further reading comes."""
WALKS = {
    "nothing was proven": [LOOKED, (CaseEvent.UNPROVEN, CaseState.WATCHING, CaseAction.CLOSE_UNPROVEN)],
    "native growth that becomes sure later": [
        LOOKED,
        (CaseEvent.COMPLETE, CaseState.WATCHING, CaseAction.PUBLISH),
        (CaseEvent.READING, CaseState.WATCHING, CaseAction.CHECK_READINGS),
        (CaseEvent.NATIVE_CERTAIN, CaseState.WATCHING, CaseAction.PUBLISH_NATIVE_GROWTH),
    ],
    "an owner with its line": [
        LOOKED,
        TRACE,
        (CaseEvent.READING, CaseState.TRACING, CaseAction.AWAIT_LINE),
        (CaseEvent.TIME_TO_COMPARE, CaseState.COMPARING, CaseAction.COMPARE_CENSUSES),
        LOOKED,
        (CaseEvent.COMPLETE, CaseState.WATCHING, CaseAction.PUBLISH),
    ],
    "an owner that may not be traced": [LOOKED, TRACE, (CaseEvent.REFUSED, CaseState.WATCHING, CaseAction.PUBLISH)],
    "native growth, with its line": [
        LOOKED,
        (CaseEvent.COMPLETE, CaseState.WATCHING, CaseAction.PUBLISH),
        (CaseEvent.NATIVE_WITHOUT_LINE, CaseState.RECORDING_RISES, CaseAction.START_RECORDING),
        (CaseEvent.READING, CaseState.RECORDING_RISES, CaseAction.AWAIT_RISES),
        (CaseEvent.TIME_TO_COMPARE, CaseState.WATCHING, CaseAction.PUBLISH_NATIVE_LINE),
    ],
    "native growth in a program that is traced": [
        LOOKED,
        (CaseEvent.COMPLETE, CaseState.WATCHING, CaseAction.PUBLISH),
        (CaseEvent.NATIVE_WITHOUT_LINE, CaseState.RECORDING_RISES, CaseAction.START_RECORDING),
        (CaseEvent.REFUSED, CaseState.WATCHING, CaseAction.WAIT),
    ],
    "growth in bursts": [
        LOOKED,
        (CaseEvent.COMPARE_AGAIN, CaseState.COMPARING, CaseAction.WAIT),
        (CaseEvent.READING, CaseState.COMPARING, CaseAction.COMPARE_CENSUSES),
        LOOKED,
    ],
    "what a library holds": [
        (CaseEvent.UNEXPLAINED, CaseState.SEARCHING, CaseAction.ADD_LIBRARY_ROOTS),
        (CaseEvent.LIBRARIES_GREW, CaseState.COUNTING, CaseAction.WAIT),
        *SUSPECT[2:],
        LOOKED,
    ],
    "cyclic garbage": [
        *SEARCH,
        (CaseEvent.TIME_TO_COMPARE, CaseState.SEARCHING, CaseAction.COMPARE_CENSUSES),
        *SEARCH,
        (CaseEvent.COMPARED, CaseState.COMPARING, CaseAction.CHOOSE_NEXT_STEP),
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
    assert taken == {(state, event) for state, event in TRANSITIONS if event is not CaseEvent.END}


def test_the_end_is_answered_in_every_state() -> None:
    """It keeps the state, in which the next end of the loop finds nothing more to do, or leads back to watching."""
    for state in CaseState:
        to, action = TRANSITIONS[state, CaseEvent.END]
        assert action is ENDS[state]
        assert to in {state, CaseState.WATCHING}


def test_a_reading_is_answered_in_every_state() -> None:
    assert {state for state, event in TRANSITIONS if event is CaseEvent.READING} == set(CaseState)
    assert {action for _, action in TRANSITIONS.values()} == set(CaseAction)


def answers(name: str) -> set[CaseEvent]:
    """Events that a method of the monitor may answer with, read from its code."""
    code = ast.parse(textwrap.dedent(inspect.getsource(getattr(Monitor, name))))
    found = set[CaseEvent]()
    for node in ast.walk(code):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "CaseEvent":
            found.add(CaseEvent[node.attr])
        if isinstance(node, ast.Attribute) and node.attr == "_finish_comparison":
            found |= answers("_finish_comparison")
    return found


def test_each_answer_of_an_action_leads_on() -> None:
    """No event is left without a row: the loop of the monitor looks each up."""
    monitor = Monitor(Roots())
    for to, action in TRANSITIONS.values():
        for event in answers(monitor._actions[action].__name__):
            assert (to, event) in TRANSITIONS, f"{action} answers {event} in {to}"
