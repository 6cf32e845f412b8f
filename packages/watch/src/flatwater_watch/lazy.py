"""The public names of a package, imported at their first use; its `__init__.pyi` says where each of them is.

    __getattr__, __dir__ = offer_names(__name__)

Programs get the names that type checkers, the reference and the listing of public names read. Importing a package
imports nothing else: not even `typing` and `pathlib`, which would take ten times as long as all of this.
"""

import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def offer_names(package: str) -> "tuple[Callable[[str], object], Callable[[], list[str]]]":
    """Return the functions `__getattr__` and `__dir__` for the `__init__.py` of a package.

    Args:
        package: name of the package. Each line `from MODULE import NAME as NAME` of its `__init__.pyi` is a name of the
            package; if MODULE is a package without such a name, its module NAME is meant.

    Returns:
        `__getattr__`, which finds a name and keeps it in the package, and `__dir__`, which lists the names.
    """
    module = sys.modules[package]
    stub_modules = dict[str, str]()  # module of each name; empty until the first name is asked for

    def module_by_name() -> dict[str, str]:
        if not stub_modules:
            stub_modules.update(_read_stub(f"{module.__path__[0]}/__init__.pyi"))
        return stub_modules

    def import_name(name: str) -> object:
        """Import and return the value of a name, and keep it in the package; raise AttributeError for another name."""
        module_path = module_by_name().get(name)
        if module_path is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        names = vars(import_module(module_path))
        value: object = names[name] if name in names else import_module(f"{module_path}.{name}")
        setattr(module, name, value)  # so that `__getattr__` is asked once for each name
        return value

    def list_names() -> list[str]:
        """Return the names of the stub, and those that Python gives each module, such as `__file__`."""
        return [*module_by_name(), *(name for name in vars(module) if name.startswith("__"))]

    return import_name, list_names


def _read_stub(path: str) -> dict[str, str]:
    """Return the module of each name in a stub, whose lines are `from MODULE import NAME as NAME`."""
    with open(path, encoding="utf-8") as stub:  # noqa: PTH123  (pathlib takes long to import)
        lines = [line.split() for line in stub]
    return {words[-1]: words[1] for words in lines if words[:1] == ["from"]}
