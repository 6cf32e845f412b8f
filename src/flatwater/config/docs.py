"""The sentence that stands under each field of a configuration, read from the class's source.

tyro shows the same sentences as help text; here they become the comments of a dumped file.
"""

import ast
import inspect
import textwrap
from functools import cache


@cache
def field_docs(cls: type) -> dict[str, str]:
    """Field name -> its documentation, inherited fields included, for the fields that have one."""
    documented: dict[str, str] = {}
    for declaring in reversed(cls.__mro__[:-1]):
        documented |= _own_docs(declaring)
    return documented


def _own_docs(cls: type) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except OSError:  # a class made in an interactive session has no source
        return {}
    body = tree.body[0]
    if not isinstance(body, ast.ClassDef):
        return {}
    documented = {}
    for declared, sentence in zip(body.body, body.body[1:], strict=False):
        match declared, sentence:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                documented[name] = inspect.cleandoc(text)
    return documented
