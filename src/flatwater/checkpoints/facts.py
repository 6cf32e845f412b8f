"""What a checkpoint says its run was made from, compared with what is there now."""

import json
from collections.abc import Iterator, Mapping

from flatwater.checkpoints.manifest import JSON, plain

_ABSENT = "absent"


def differences(saved: Mapping[str, JSON], current: Mapping[str, JSON]) -> list[str]:
    """One line for each fact that differs: `population.size: 16 in the checkpoint, 8 now`.

    Args:
        saved: a manifest's `facts`.
        current: the same facts of the run that wants to go on. Nested mappings are compared name by name, lists whole.
    """
    before, now = dict(_flat(plain(saved), "")), dict(_flat(plain(current), ""))
    names = [*before, *(name for name in now if name not in before)]
    return [
        f"{name}: {before.get(name, _ABSENT)} in the checkpoint, {now.get(name, _ABSENT)} now"
        for name in names
        if before.get(name, _ABSENT) != now.get(name, _ABSENT)
    ]


def _flat(value: JSON, name: str) -> Iterator[tuple[str, str]]:
    """Every fact below `value` by dotted name, as JSON text: `1` differs from `true` and `"1"`, but not from `1.0`."""
    if isinstance(value, Mapping) and (value or not name):
        for key, below in value.items():
            yield from _flat(below, f"{name}.{key}" if name else key)
    else:
        exact = int(value) if isinstance(value, float) and value.is_integer() else value
        yield name, json.dumps(exact, ensure_ascii=False)
