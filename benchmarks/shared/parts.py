"""The parts of a benchmark: measured one after the other, shown as text or JSON, held against what is claimed."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from claims import Claim, record_claims

Found = dict[str, Any]
"""Numbers of each part, by its name."""


def measure_parts(parts: Mapping[str, Callable[[], Any]], wanted: Sequence[str]) -> Found:
    """Measure the wanted parts, and name on stderr the part that is at work."""
    began, found = time.monotonic(), {}
    for name in wanted:
        print(f"{name} … [{time.monotonic() - began:.0f} s]", file=sys.stderr)
        found[name] = parts[name]()
    return found


def report_parts(
    found: Found,
    show: Callable[[Found], None],
    failures: Callable[[Found], Sequence[str]],
    claims: Callable[[Found], Iterable[Claim]],
    *,
    as_json: bool,
) -> int:
    """Keep the claims; print the numbers and, on stderr, the claims that do not hold; return 1 if there are any."""
    # Kept before it is judged: a claim that does not hold is a result as well.
    record_claims(claims(found))
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        show(found)
    wrong = failures(found)
    if wrong:
        print("does not hold: " + "; ".join(wrong), file=sys.stderr)
    return 1 if wrong else 0
