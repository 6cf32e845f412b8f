"""What full collections free is told in words, and is a cause only where it is most of what comes and much of all."""

import re
from math import inf

import pytest

from flatwater_watch.diagnose.evidence import COLLECTOR_OFF_ADVICE, GARBAGE_OWNER, RARE_COLLECTION_ADVICE
from flatwater_watch.diagnose.gc_sawtooth import (
    NAMELESS_GARBAGE,
    gc_amounts_text,
    gc_explains_growth,
    gc_sawtooth_evidence,
    is_negligible,
)
from flatwater_watch.diagnose.judge import make_findings
from flatwater_watch.meters.collector import GcSawtooth
from flatwater_watch.series.readings import Growth
from flatwater_watch.series.slope import Slope

MIB = 1 << 20
TEETH = GcSawtooth(freed=132.4 * MIB, rise=133.0 * MIB, bytes_before=400.0 * MIB, bytes_since=60.0 * MIB, seconds=20.0)
GROWTH = Growth(100, 400 * MIB, 800 * MIB, Slope(0.1 * MIB, 0.1 * MIB, 0.1 * MIB), "boundary")
CAUSE = gc_sawtooth_evidence(Slope(3.0 * MIB, 2.0 * MIB, 4.0 * MIB), collector_is_on=True)


@pytest.mark.parametrize(
    ("teeth", "cause"),
    [
        (TEETH, True),
        (None, False),
        (TEETH._replace(rise=170.0 * MIB), False),  # a fifth and more of what comes is still there after a collection
        (TEETH._replace(rise=160.0 * MIB), True),
        (TEETH._replace(bytes_before=2000.0 * MIB), False),  # small against what is in use
        (TEETH._replace(bytes_since=260.0 * MIB), True),
        (TEETH._replace(bytes_since=270.0 * MIB), False),  # something else has grown since the last collection
        (TEETH._replace(rise=inf), False),  # no two collections in a row were read
        (GcSawtooth(0.5 * MIB, 0.5 * MIB, 1.0 * MIB, 0.0, 1.0), False),  # not material
        (GcSawtooth(-1.0 * MIB, 0.0, 100.0 * MIB, 0.0, 1.0), False),
    ],
)
def test_collections_are_the_cause_where_they_free_most_of_what_comes(teeth: GcSawtooth | None, *, cause: bool) -> None:
    assert gc_explains_growth(teeth) is cause


@pytest.mark.parametrize(
    ("teeth", "waiting", "small"),
    [
        (TEETH._replace(freed=59.0 * MIB, rise=62.0 * MIB), 110 * MIB, True),
        (TEETH._replace(freed=59.0 * MIB, rise=62.0 * MIB), 120 * MIB, False),  # more than two turns bring
        (TEETH._replace(freed=59.0 * MIB, rise=80.0 * MIB), 50 * MIB, False),  # a quarter of it stays
        (TEETH, 20 * MIB, False),  # each frees so much that it is felt
        (TEETH._replace(freed=5.0 * MIB, rise=inf), 5 * MIB, False),
        (None, 20 * MIB, False),
    ],
)
def test_what_full_collections_free_before_it_is_felt_waits(
    teeth: GcSawtooth | None, waiting: int, *, small: bool
) -> None:
    assert is_negligible(teeth, waiting) is small


def test_the_finding_says_what_to_do_and_what_is_not_known() -> None:
    (found,) = make_findings([CAUSE], GROWTH)
    assert (found.verdict, found.owner, found.holders, found.limit_step) == ("leak", GARBAGE_OWNER, (), None)
    assert found.what == NAMELESS_GARBAGE
    assert found.advice.startswith(RARE_COLLECTION_ADVICE)
    off = gc_sawtooth_evidence(CAUSE.drift, collector_is_on=False)
    assert (off.advice or "").startswith(COLLECTOR_OFF_ADVICE)
    assert found.share == 1.0


@pytest.mark.parametrize(
    ("per_second", "unit", "words"),
    [
        (2.0, "step", "40 steps"),
        (1.0, "second", "20 seconds"),
        (0.05, "batch", "1 batch"),
        (0.1, "batch", "2 batches"),
        (0.01, "episode", "several .* one episode"),
        (77.7, "step", "1600 steps"),
    ],
)
def test_two_digits_are_told_per_unit(per_second: float, unit: str, words: str) -> None:
    assert re.fullmatch(rf"; .*\b130 MiB; .*\b{words}\b.*", gc_amounts_text(TEETH, per_second, unit))


def test_what_is_not_material_is_not_told() -> None:
    assert gc_amounts_text(TEETH._replace(freed=0.5 * MIB), 2.0, "step") == ""
