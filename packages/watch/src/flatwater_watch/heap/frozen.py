"""Objects that `gc.freeze` hides from the collector's lists, as a server calls it before it forks."""

import gc
import sys
import types
from typing import Any

_NO_WAY_IDS = frozenset(map(id, (
    types.BuiltinFunctionType, types.CellType, types.CodeType, types.FrameType, types.FunctionType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodDescriptorType, types.MethodType,
    types.ModuleType, types.WrapperDescriptorType, classmethod, property, staticmethod,
)))  # fmt: skip
"""Ids of the classes of most objects, below which hardly a container becomes longer; modules are roots."""


def frozen_objects() -> list[Any]:
    """The frozen objects that modules reach, without functions and what these hold; empty if the program froze none."""
    # Runs no code of the watched program.
    if not gc.get_freeze_count():
        return []
    seen_ids = set(map(id, gc.get_objects()))
    level: list[Any] = [sys.modules, *sys.modules.values()]
    frozen: list[Any] = []
    while level:  # to the end, so that two looks see the same
        below = {id(obj): obj for obj in gc.get_referents(*level) if id(type(obj)) not in _NO_WAY_IDS}
        level = [obj for obj_id, obj in below.items() if obj_id not in seen_ids and gc.is_tracked(obj)]
        seen_ids.update(map(id, level))
        frozen += level
    # Not what was made meanwhile, in this search or by another thread.
    known_ids = set(map(id, gc.get_objects()))
    return [obj for obj in frozen if id(obj) not in known_ids]


def all_referrers(objects: list[Any], frozen: list[Any]) -> list[Any]:
    """The objects that refer to any of `objects`, those among `frozen` included, as the collector leaves them out."""
    # Runs no code of the watched program.
    ids = set(map(id, objects))
    return gc.get_referrers(*objects) + [obj for obj in frozen if not ids.isdisjoint(map(id, gc.get_referents(obj)))]
