"""Hooks that count boundaries in known libraries: optimizer steps, environment steps, epochs, requests.

A boundary is a place that a program passes again and again. Its kind is `update`, `epoch`, `step`, `episode` or
`request`, and each kind has one call counter.

A library's functions are wrapped when the program imports it, right after its own code has run; nothing is imported
that the program does not import. Wrapped functions keep their behaviour, arguments and results.
"""

import functools
from collections.abc import Callable, Mapping
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType, FunctionType, ModuleType
from typing import Any

from flatwater_watch.agent.boundaries import REQUEST
from flatwater_watch.agent.call_counters import CallCounter, Count, make_call_counter, set_listener
from flatwater_watch.agent.guard import Guard
from flatwater_watch.agent.import_hook import prepare_on_import

_hooked_modules = set[str]()
"""Modules that are prepared, or will be on import. A fork inherits them prepared, so that nothing is wrapped twice."""
_COUNTERS = {kind: make_call_counter(kind) for kind in ("update", "epoch", "step", "episode", REQUEST)}


def hook_steps(count: Count) -> Mapping[str, CallCounter]:
    """Have `count` called, with the kind, at each boundary of libraries that are loaded now or later.

    Returns:
        The call counters by kind, which can let a number of boundaries pass without a call of `count`. That of requests
        is left out: each request is reported.
    """
    set_listener(count)
    prepare_on_import({name: prepare for name, prepare in _PREPARATIONS.items() if name not in _hooked_modules})
    _hooked_modules.update(_PREPARATIONS)
    return {kind: counter for kind, counter in _COUNTERS.items() if kind != REQUEST}


# --- torch ---


def _prepare_optimizers(module: ModuleType) -> None:
    """Count an update at each `step` of any optimizer, by torch's own hook."""
    if "register_optimizer_step_post_hook" in vars(module):  # torch 2.0 and later
        vars(module)["register_optimizer_step_post_hook"](_on_optimizer_step)


def _on_optimizer_step(_optimizer: object, _args: object, _kwargs: object) -> None:
    _COUNTERS["update"].count_call()


# --- environments ---


def _prepare_envs(module: ModuleType) -> None:
    """Count steps and episodes of all environment classes but wrappers, as the wrapped environment is counted."""
    env_class = vars(module)["Env"]
    wrapper_class = vars(module).get("Wrapper", ())  # without one: nothing is a subclass of the empty tuple
    _hook_subclasses(env_class, lambda cls: not issubclass(cls, wrapper_class))


def _prepare_vector_envs(module: ModuleType) -> None:
    """Count steps and episodes of all vector environment classes but those that wrap other environments."""
    wrapper_class = vars(module).get("VectorWrapper", ())  # as above

    def has_boundaries(cls: type) -> bool:
        # A synchronous vector environment steps environments of this process, which are counted themselves.
        return not issubclass(cls, wrapper_class) and cls.__name__ != "SyncVectorEnv"

    _hook_subclasses(vars(module)["VectorEnv"], has_boundaries)


def _hook_subclasses(parent: Any, has_boundaries: Callable[[type], bool]) -> None:
    """Count `step` and `reset` of all subclasses that `has_boundaries` accepts, those defined later included.

    The latter are seen by the parent's `__init_subclass__`, which Python calls for each new subclass.
    """

    def count_boundaries(cls: type) -> None:
        if has_boundaries(cls):
            _count_own_methods(cls)

    for cls in _all_subclasses(parent):
        count_boundaries(cls)
    original_hook = parent.__dict__.get("__init_subclass__")

    def __init_subclass__(cls: type, /, **kwargs: Any) -> None:  # noqa: N807  (Python's own name)
        """Count the boundaries of a subclass that is defined later, after the library's own `__init_subclass__`."""
        if original_hook is not None:
            # A classmethod in `__dict__` is not bound to a class: bind it to the new one.
            original_hook.__get__(None, cls)(**kwargs)
        else:
            super(parent, cls).__init_subclass__(**kwargs)
        Guard().run(count_boundaries, cls)

    parent.__init_subclass__ = classmethod(__init_subclass__)


def _all_subclasses(parent: Any) -> list[Any]:
    """Return all subclasses of a class, at any depth; one that is reached by two parents is in the list twice."""
    subclasses = []
    for cls in parent.__subclasses__():
        subclasses += [cls, *_all_subclasses(cls)]
    return subclasses


def _count_own_methods(cls: type) -> None:
    """Count the calls of a class's own `step` and `reset` as steps and episodes, but for calls by `super()`."""
    for name, kind in (("step", "step"), ("reset", "episode")):
        method = vars(cls).get(name)
        if type(method) is not FunctionType:  # not defined in this class, or no plain method
            continue
        # The class overrides counted methods of its parents: a call of these by `super()` must not count again.
        for parent in cls.__mro__[1:]:
            overridden = vars(parent).get(name)
            if _is_counted(overridden):
                original: Any = vars(overridden)["__wrapped__"]  # the parent's method as its library wrote it
                setattr(parent, name, _wrap_to_count_outermost(original, parent, name, kind))
        if not _is_counted(method):
            setattr(cls, name, _wrap_to_count(method, cls, name, kind))


def _is_counted(method: Any) -> bool:
    """Return whether this module made the method, by the attribute that `_copy_signature_` sets."""
    # Its value is the code object: a wrapper of the user's copies it with `functools.wraps`, and has another code.
    return type(method) is FunctionType and vars(method).get("__flatwater__") is method.__code__


def _wrap_to_count(method: Any, cls: type, name: str, kind: str) -> Callable[..., Any]:
    """Return the method of a class, wrapped so that each call counts a boundary of this kind first."""
    if not _takes_one_argument(method):  # the fast wrapper below passes exactly one argument on
        return _wrap_to_count_outermost(method, cls, name, kind)
    counting_method: Any = _COUNTERS[kind].wrap(method)
    # `self` and the argument get the names that the method has for them, so that calls by keyword work as before.
    counting_method.__code__ = counting_method.__code__.replace(co_varnames=method.__code__.co_varnames[:2])
    return _copy_signature_(counting_method, method)


def _wrap_to_count_outermost(method: Any, cls: type, name: str, kind: str) -> Callable[..., Any]:
    """Return a method of class `cls`, wrapped to count a boundary at each call but those by `super()`.

    A call by `super()` comes from a subclass's method of the same name, which has counted already.
    """
    # Twice as slow as `CallCounter.wrap`: only for methods with a counted override, or with other arguments than one.
    is_outermost = dict[type, bool]()  # by class of an object: whether a call on the object runs this method first
    count_call = _COUNTERS[kind].count_call

    def count_outermost_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Count a boundary unless a subclass's method calls this one by `super()`, then call the method."""
        own_class = type(self)
        if own_class not in is_outermost:
            # The first class of the resolution order that defines the method is the one whose method runs.
            is_outermost[own_class] = next(owner for owner in own_class.__mro__ if name in vars(owner)) is cls
        if is_outermost[own_class]:
            count_call()
        return method(self, *args, **kwargs)

    return _copy_signature_(count_outermost_call, method)


def _copy_signature_(wrapper: Any, method: Any) -> Callable[..., Any]:
    """Give a wrapper the name and signature of its method, and the attribute by which `_is_counted` knows it."""
    functools.update_wrapper(wrapper, method)
    vars(wrapper)["__flatwater__"] = wrapper.__code__
    return wrapper  # type: ignore[no-any-return]


def _takes_one_argument(method: Any) -> bool:
    """Return whether a method takes exactly one argument after `self`, by position or name, without a default.

    Most methods `step(self, action)` do.
    """
    code: CodeType = method.__code__
    has_other_parameters = (
        code.co_posonlyargcount or code.co_kwonlyargcount or code.co_flags & (CO_VARARGS | CO_VARKEYWORDS)
    )
    return code.co_argcount == len(("self", "action")) and not has_other_parameters and method.__defaults__ is None


# --- methods that are counted whatever class they are called on ---


def _counter_installer(kind: str, class_name: str, method_name: str) -> Callable[[ModuleType], None]:
    """Return a function that wraps a method in a loaded module, so that each call counts as a boundary of a kind."""

    def install_counter(module: ModuleType) -> None:
        """Count a boundary at each call of the method, if the class has it as a function."""
        cls = vars(module).get(class_name)
        method = None if cls is None else vars(cls).get(method_name)
        if type(method) is not FunctionType:
            return

        def count_and_call(*args: Any, **kwargs: Any) -> Any:
            # In any thread of a server.
            _COUNTERS[kind].count_call()
            return method(*args, **kwargs)

        setattr(cls, method_name, functools.update_wrapper(count_and_call, method))

    return install_counter


_UVICORN = ("h11_impl", "httptools_impl", "zttp_impl", "zttp_h2_impl")
_SERVERS = (
    *((f"uvicorn.protocols.http.{name}", "RequestResponseCycle", "run_asgi") for name in _UVICORN),
    ("gunicorn.workers.sync", "SyncWorker", "handle_request"),
    ("gunicorn.workers.gthread", "ThreadWorker", "handle_request"),
    ("gunicorn.workers.base_async", "AsyncWorker", "handle_request"),
    ("aiohttp.web_protocol", "RequestHandler", "_handle_request"),
    ("tornado.web", "RequestHandler", "_execute"),
    # Servers of werkzeug, wsgiref and Django inherit from this class.
    ("http.server", "BaseHTTPRequestHandler", "parse_request"),
)
_PREPARATIONS: dict[str, Callable[[ModuleType], None]] = {
    **{module: _counter_installer(REQUEST, cls, method) for module, cls, method in _SERVERS},
    "torch.optim.optimizer": _prepare_optimizers,
    "torch.utils.data.dataloader": _counter_installer("epoch", "DataLoader", "__iter__"),
    "gymnasium.core": _prepare_envs,
    "gymnasium.vector.vector_env": _prepare_vector_envs,
    "gym.core": _prepare_envs,
}
"""Functions by module that wrap the module's methods, once it is loaded."""
