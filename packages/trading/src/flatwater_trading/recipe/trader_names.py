"""Names of the traders that a result compares, in its tables of equity and in result.json; imports nothing heavy."""

from collections.abc import Iterable

CHAMPION, CHANCE, ORACLE = "champion", "random", "oracle"
"""Names of the traders that are not simple rules. The oracle knows the law of a synthetic market."""
EQUAL_WEIGHT = "equal weight"
"""All instruments in equal parts: what alpha and beta are measured against where there is no benchmark."""
BUY_AND_HOLD = "buy and hold"
"""Equal amounts of all instruments with a close on the first day, sold on the last."""


def simple_rules(traders: Iterable[str]) -> tuple[str, ...]:
    """Return the traders that are simple rules, which a champion has to beat."""
    return tuple(name for name in traders if name not in {CHAMPION, CHANCE, ORACLE})
