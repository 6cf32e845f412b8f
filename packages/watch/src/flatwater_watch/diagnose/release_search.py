"""The search of a library's code for the functions that release a table, and how their calls are written.

A table is a container of the library that grows, such as "regex._main._cache". A function releases it if it takes out
objects: one of many, such as `unregister(key)`, or all, such as `clear()`. It is found by the names that lead to the
table, such as "_cache", and by what its bytecode does with them (`code_use`).
"""

from collections.abc import Container, Iterable, Mapping
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import Any, NamedTuple

from flatwater_watch.diagnose.code_use import SELF, code_use, first_word, plain_function, required_parameters

_RELEASING = (
    "delete", "remove", "unregister", "unsubscribe", "disconnect", "unobserve", "unwatch", "evict", "forget", "discard",
    "detach", "kill", "cancel", "clear", "reset", "purge", "uncache", "release", "expire", "flush", "sync", "dispose",
    "cleanup", "close", "destroy", "shutdown",
)  # fmt: skip
"""First or last words of the names of functions that release objects, the surest first."""
_RELEASING_ALL = frozenset(_RELEASING[_RELEASING.index("clear") :])
"""Those that release all objects; the others release one if they take an argument, and come last if they take none."""
_OPPOSITES = (
    ("un", ""), ("dis", ""), ("de", ""), ("remove_", ""), ("remove", "add"), ("discard", "add"), ("detach", "attach"),
    ("delete", "set"),
)  # fmt: skip
"""Parts of the name of a function that undoes another, with what stands in the name of that."""
_GIVING = frozenset({"get", "is", "has"})
"""First words of the names of functions that give something; what such a function replaces is no release."""
MAXIMUM_CALLS = 2
"""Maximum number of calls that the advice names."""
DELETIONS = {"__delitem__": "del {}[{}]", "__delattr__": "delattr({}, {})"}
"""Methods that Python calls to release an object, with how that is written."""
_MAXIMUM_PASSING_CALLS = 6
"""Maximum number of calls in a function that only passes a release on."""
_CALL_DEPTH = 2
"""Depth to which the functions that a call calls are searched for a use of the table."""


def releases_one(call: str) -> bool:
    """Return whether a call releases one object of many, as "Saver.delete_thread(thread_id)", and not all of them."""
    if call.startswith(("del ", "delattr(")):
        return True
    name = call.partition("(")[0].rpartition(".")[2]
    return releasing_word(name) not in _RELEASING_ALL and not call.endswith("()")


def releasing_word(name: str) -> str:
    """Return the word for a release with which a function's name begins or ends: "clear" of "clear_cache".

    Empty for names without such a word, and for private functions.
    """
    if name in DELETIONS:
        return "delete"
    if name.startswith("_") or "internal" in name:
        return ""
    words = (first_word(name), name.rpartition("_")[2])
    return next((word for word in words if word in _RELEASING), "")


def written_calls(
    owner: str, namespace: Mapping[str, Any], names: Iterable[str], user_names: frozenset[str], *, is_class: bool
) -> tuple[str, ...]:
    """Return calls of functions with their parameters, the surest first, at most `MAXIMUM_CALLS`.

    First come functions that undo what the user's code calls. Last come those that should release one object but take
    no argument, or whose names have no word for a release.

    Args:
        owner: class, module or object before the dot of the calls.
        namespace: functions of the class or module by name.
        names: names of the functions.
        user_names: names in the user's functions.
        is_class: whether the functions are methods, whose first parameter is left out.
    """
    ranks = []
    for name in names:
        call, word = written_call(owner, name, namespace[name], is_class=is_class), releasing_word(name)
        is_last = word not in _RELEASING_ALL and not releases_one(call)
        word_rank = _RELEASING.index(word) if word else len(_RELEASING)
        ranks.append((not _undoes(name, user_names), is_last, word_rank, call))  # False sorts before True
    return tuple(call for *_, call in sorted(ranks)[:MAXIMUM_CALLS])


def _undoes(name: str, user_names: Container[str]) -> bool:
    """Return whether a function undoes, by its name, one that the user's code calls: "unschedule" for "schedule"."""
    opposites = (name.replace(word, opposite, 1) for word, opposite in _OPPOSITES if word in name)
    return any(opposite in user_names for opposite in opposites)


def written_call(owner: str, name: str, value: Any, *, is_class: bool) -> str:
    """Return the call of a function with its parameters: "Saver.delete_thread(thread_id)".

    Args:
        owner: class, module or object before the dot.
        name: name of the function.
        value: the function.
        is_class: whether it is a method, whose first parameter is left out.
    """
    parameters = required_parameters(value, is_method=is_class)
    if name in DELETIONS:
        return DELETIONS[name].format(owner, parameters or "key")  # C code describes no parameters
    # A function of C may describe none, but one that releases one object of many must be told which.
    if not parameters and plain_function(value) is None and releasing_word(name) not in _RELEASING_ALL:
        parameters = "..."
    return f"{owner}.{name}({parameters})"


class ReleaseSearch(NamedTuple):
    """A search for functions that release a table."""

    names: frozenset[str]
    """Names that lead to the table."""
    methods: frozenset[str]
    """Names of methods of objects on the way to the table that release it."""
    class_namespace: Mapping[str, Any]
    """Names of the class whose methods are searched; empty for a module."""
    module_namespace: Mapping[str, Any] | None
    """Names of the module whose global leads to the table: only there the names mean the table. None for a class."""
    package: str
    """Package of the library."""
    user_names: frozenset[str]
    """Names in the user's functions."""
    accepts_any_name: bool
    """Whether a function needs no word for a release in its name."""

    def releasing_names(self, namespace: Mapping[str, Any]) -> list[str]:
        """Return the names of functions in a class or module that release the table (take items out of it).

        A function with a word for a release in its name may release the table through other functions, or be of C, so
        that its code cannot be read. One without such a word must remove from the table itself, and add nothing to it.
        """
        names = []
        for name, value in list(namespace.items()):  # a list, as another thread may add names meanwhile
            if releasing_word(name):
                is_releasing = self.releases(value) or (self._is_library_c_function(value) and self._is_likely(name))
            else:
                is_named = self.accepts_any_name or _undoes(name, self.user_names)
                is_releasing = (is_named and self._removes(name, value)) or self._passes_release(name, value)
            if is_releasing:
                names.append(name)
        return names

    def _is_likely(self, name: str) -> bool:
        """Return whether a function of C likely takes items out of the table, by its name alone.

        That is a name such as "clear", or one that undoes a method of the class that the user's code calls.
        """
        called_methods = self.user_names.intersection(self.class_namespace)
        return releasing_word(name) in _RELEASING_ALL or _undoes(name, called_methods)

    def _removes(self, name: str, value: Any) -> bool:
        """Return whether a function removes from the table itself and adds nothing to it.

        Private functions, and those that the user's code calls already, do not count.
        """
        if name.startswith("_") or name in self.user_names:
            return False
        function = plain_function(value)
        if function is None or SELF in self.names or self.names.isdisjoint(function.__code__.co_names):
            return False
        use = code_use(function.__code__)
        return (
            self._names_mean_table(function)
            and not self.names.isdisjoint(use.removed)
            and self.names.isdisjoint(use.added)
        )

    def _names_mean_table(self, function: FunctionType) -> bool:
        """Return whether the names that lead to the table mean it in a function, too: not in one of another module."""
        return self.module_namespace is None or function.__globals__ is self.module_namespace

    def _passes_release(self, name: str, value: Any) -> bool:
        """Return whether a public function, not called by the user, does little else than call a releasing method."""
        if not self.methods or name.startswith("_") or name in self.user_names:
            return False
        function = plain_function(value)
        calls = [] if function is None else code_use(function.__code__).calls
        releasing = (called in self.methods and not self.names.isdisjoint(receivers) for called, receivers in calls)
        return len(calls) <= _MAXIMUM_PASSING_CALLS and any(releasing)

    def releases(self, value: Any, depth: int = _CALL_DEPTH) -> bool:
        """Return whether a function empties or replaces the table, or an object that holds it.

        It may do so itself, by a call of a holder's method that releases the table (`methods`), or by other calls.

        Args:
            value: function, class method or static method; False for anything else.
            depth: maximum depth of calls to follow.
        """
        function = plain_function(value)
        if function is None:
            return False
        use = code_use(function.__code__)
        if self._names_mean_table(function) and not self.names.isdisjoint(use.removed | use.replaced):
            return True
        for name, receiver_names in use.calls:
            if name in self.methods and self._stands_for_holder(receiver_names, function):
                return True
            if depth > 0 and self.releases(self._callee(name, receiver_names, function), depth - 1):
                return True
        return False

    def _stands_for_holder(self, receiver_names: frozenset[str], function: FunctionType) -> bool:
        """Return whether the object before the dot of a call is the table, or an object that holds it.

        Either the object has one of the names that lead to the table, or it is the result of a function that uses one,
        as in `get_registry().clear()`.

        Args:
            receiver_names: names that the object may stand for, by the code of `function`.
            function: function that makes the call.
        """
        if self._names_mean_table(function) and not self.names.isdisjoint(receiver_names):
            return True
        for name in receiver_names:
            giver = plain_function(dict.get(function.__globals__, name))
            if giver is None or giver.__globals__ is not self.module_namespace:
                continue
            if not self.names.isdisjoint(giver.__code__.co_names):
                return True
        return False

    def _callee(self, name: str, receiver_names: frozenset[str], function: FunctionType) -> Any:
        """Return the function that a call within `function` calls; None if it is not known.

        It is known for a global, `name(...)`, and for a method of the same class, `self.name(...)`.
        """
        if first_word(name) in _GIVING:
            return None
        if not receiver_names:
            return dict.get(function.__globals__, name)
        return self.class_namespace.get(name) if receiver_names == {SELF} else None

    def _is_library_c_function(self, value: Any) -> bool:
        """Return whether a function of the library is written in C, so that its code cannot be read."""
        # Methods come from the library's own class, so that those of C are the library's.
        if type(value) is MethodDescriptorType:
            return True
        module = value.__module__ if type(value) is BuiltinFunctionType else None
        # The module of C of a package `regex` may be called `_regex`.
        return type(module) is str and module.partition(".")[0].lstrip("_") == self.package
