"""JSON for people is what the json module writes, byte for byte."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatwater_watch.files.json_values import indent_json

TEXT = st.text(st.characters(), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT


@given(st.recursive(SCALARS, lambda items: st.lists(items, max_size=3) | st.dictionaries(TEXT, items, max_size=3)))
def test_it_is_indented_as_the_json_module_does(value: object) -> None:
    assert indent_json(value) == json.dumps(value, indent=1).encode()


@pytest.mark.parametrize("value", ["\ud800", {"\udcff": ["a\ud800b", {}]}])
def test_text_that_is_no_unicode_is_indented_alike(value: object) -> None:
    assert indent_json(value) == json.dumps(value, indent=1).encode()


def test_a_number_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        indent_json([float("nan")])
