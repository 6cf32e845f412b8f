"""Objects that `gc.freeze` hides from the collector's lists, as a server calls it before it forks."""

import gc
import sys
import types
from typing import Any

_SKIPPED_TYPE_IDS = frozenset(map(id, (
    types.BuiltinFunctionType, types.CellType, types.CodeType, types.FrameType, types.FunctionType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodDescriptorType, types.MethodType,
    types.ModuleType, types.WrapperDescriptorType, classmethod, property, staticmethod,
)))  # fmt: skip
"""Ids of classes that are not searched: most objects are of these, and hold hardly any container that grows."""


def frozen_objects() -> list[Any]:
    """Return the frozen objects that modules reach without passing through functions; empty if nothing is frozen."""
    # Runs no code of the watched program.
    if not gc.get_freeze_count():
        return []
    seen_ids = set(map(id, gc.get_objects()))
    level: list[Any] = [sys.modules, *sys.modules.values()]
    frozen: list[Any] = []
    while level:  # without a limit, so that two searches find the same objects
        children_by_id = {id(obj): obj for obj in gc.get_referents(*level) if id(type(obj)) not in _SKIPPED_TYPE_IDS}
        level = [obj for obj_id, obj in children_by_id.items() if obj_id not in seen_ids and gc.is_tracked(obj)]
        seen_ids.update(map(id, level))
        frozen += level
    # Objects that were made meanwhile, by this search or another thread, are not frozen: the collector lists them.
    known_ids = set(map(id, gc.get_objects()))
    return [obj for obj in frozen if id(obj) not in known_ids]


def all_referrers(objects: list[Any], frozen: list[Any]) -> list[Any]:
    """Return the objects that refer to any of `objects`, those of `frozen` included."""
    # Runs no code of the watched program. The collector alone would leave frozen objects out.
    ids = set(map(id, objects))
    return gc.get_referrers(*objects) + [obj for obj in frozen if not ids.isdisjoint(map(id, gc.get_referents(obj)))]
