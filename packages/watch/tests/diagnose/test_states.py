"""The table of an investigation, transition by transition, without a process."""

import ast
import inspect
import textwrap

import pytest

from flatwater_watch.diagnose.monitor import Monitor
from flatwater_watch.diagnose.states import CaseEvent, CaseState
from flatwater_watch.heap.roots import Roots

TRANSITIONS = {
    source: (to, None if action is None else action.__name__)
    for source, (to, action) in Monitor(Roots())._transitions.items()
}
"""The table, with the names of the actions."""
BEGIN = [
    (CaseEvent.READING, CaseState.BEGINNING, "_take_first_census"),
    (CaseEvent.CENSUS_COMPLETE, CaseState.WATCHING, None),
]
SUSPECT = [
    (CaseEvent.READING, CaseState.WATCHING, "_check_readings"),
    (CaseEvent.SUSPICION, CaseState.COUNTING, "_take_first_census"),
    (CaseEvent.READING, CaseState.COUNTING, "_take_first_census"),
    (CaseEvent.CENSUS_COMPLETE, CaseState.PROVING, None),
    (CaseEvent.READING, CaseState.PROVING, "_await_drift"),
    (CaseEvent.TIME_TO_COMPARE, CaseState.COMPARING, "_compare_censuses"),
    (CaseEvent.READING, CaseState.COMPARING, "_compare_censuses"),
]
LOOKED = (CaseEvent.COMPARED, CaseState.COMPARING, "_choose_next_step")
TRACE = (CaseEvent.NO_LINE, CaseState.TRACING, "_start_trace")
SEARCH = [
    (CaseEvent.UNEXPLAINED, CaseState.SEARCHING, "_add_library_roots"),
    (CaseEvent.LIBRARIES_UNCLEAR, CaseState.SEARCHING, "_start_garbage_search"),
    (CaseEvent.READING, CaseState.SEARCHING, "_check_garbage_search"),
]
ENDS = {
    CaseState.BEGINNING: None,
    CaseState.WATCHING: None,
    CaseState.COUNTING: None,
    CaseState.PROVING: None,
    CaseState.COMPARING: "_compare_first_at_end",
    CaseState.SEARCHING: "_finish_garbage_search",
    CaseState.TRACING: "_search_traced_garbage",
    CaseState.RECORDING_RISES: "_publish_native_line",
}
"""What happens in each state when no further reading comes."""
WALKS = {
    "nothing was proven": [LOOKED, (CaseEvent.UNPROVEN, CaseState.WATCHING, "_close_unproven")],
    "native growth that becomes sure later": [
        LOOKED,
        (CaseEvent.COMPLETE, CaseState.WATCHING, "_publish_evidence"),
        (CaseEvent.READING, CaseState.WATCHING, "_check_readings"),
        (CaseEvent.NATIVE_CERTAIN, CaseState.WATCHING, "_publish_native_growth"),
    ],
    "an owner with its line": [
        LOOKED,
        TRACE,
        (CaseEvent.READING, CaseState.TRACING, "_await_line"),
        (CaseEvent.TIME_TO_COMPARE, CaseState.COMPARING, "_compare_censuses"),
        LOOKED,
        (CaseEvent.COMPLETE, CaseState.WATCHING, "_publish_evidence"),
    ],
    "an owner that may not be traced": [LOOKED, TRACE, (CaseEvent.REFUSED, CaseState.WATCHING, "_publish_evidence")],
    "native growth, with its line": [
        LOOKED,
        (CaseEvent.COMPLETE, CaseState.WATCHING, "_publish_evidence"),
        (CaseEvent.NATIVE_WITHOUT_LINE, CaseState.RECORDING_RISES, "_start_recording"),
        (CaseEvent.READING, CaseState.RECORDING_RISES, "_await_rises"),
        (CaseEvent.TIME_TO_COMPARE, CaseState.WATCHING, "_publish_native_line"),
    ],
    "native growth in a program that is traced": [
        LOOKED,
        (CaseEvent.COMPLETE, CaseState.WATCHING, "_publish_evidence"),
        (CaseEvent.NATIVE_WITHOUT_LINE, CaseState.RECORDING_RISES, "_start_recording"),
        (CaseEvent.REFUSED, CaseState.WATCHING, None),
    ],
    "growth in bursts": [
        LOOKED,
        (CaseEvent.COMPARE_AGAIN, CaseState.COMPARING, None),
        (CaseEvent.READING, CaseState.COMPARING, "_compare_censuses"),
        LOOKED,
    ],
    "what a library holds": [
        (CaseEvent.UNEXPLAINED, CaseState.SEARCHING, "_add_library_roots"),
        (CaseEvent.LIBRARIES_GREW, CaseState.COUNTING, None),
        *SUSPECT[2:],
        LOOKED,
    ],
    "cyclic garbage": [
        *SEARCH,
        (CaseEvent.TIME_TO_COMPARE, CaseState.SEARCHING, "_compare_censuses"),
        *SEARCH,
        (CaseEvent.COMPARED, CaseState.COMPARING, "_choose_next_step"),
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
        assert action == ENDS[state]
        assert to in {state, CaseState.WATCHING}


def test_a_reading_is_answered_in_every_state() -> None:
    assert {state for state, event in TRANSITIONS if event is CaseEvent.READING} == set(CaseState)


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
    for to, action in TRANSITIONS.values():
        for event in set() if action is None else answers(action):
            assert (to, event) in TRANSITIONS, f"{action} answers {event} in {to}"
