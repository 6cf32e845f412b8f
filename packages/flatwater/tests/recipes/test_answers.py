"""What a worker says: also of an answer that cannot be packed, it says why."""

import gc
import pickle
import signal
from collections.abc import Iterator

import pytest

from flatwater.cluster.worker import FAILED, NO_MEMORY, WorkerSession


class Large:
    """An answer for whose packing the system refuses memory."""

    def __reduce__(self) -> str:
        raise MemoryError


class Desk:
    """Its answers cannot be packed."""

    def __init__(self, _: object) -> None:
        pass

    def large(self) -> object:
        return Large()

    def generator(self) -> object:
        return (number for number in range(3))


@pytest.fixture
def answers() -> Iterator[WorkerSession]:
    before = signal.getsignal(signal.SIGTERM)
    yield WorkerSession()
    signal.signal(signal.SIGTERM, before)
    gc.unfreeze()


@pytest.mark.parametrize(
    ("question", "kind", "told"), [("large", NO_MEMORY, "MemoryError"), ("generator", FAILED, "pickle")]
)
def test_an_answer_that_cannot_be_packed_is_told(answers: WorkerSession, question: str, kind: str, told: str) -> None:
    made = answers.answer_message(pickle.dumps(("__init__", (f"{__name__}:Desk", None, None))))
    assert pickle.loads(made)[0] == "done"
    said, text, leaves = pickle.loads(answers.answer_message(pickle.dumps((question, ()))))
    assert said == kind
    assert told in text
    assert not leaves
