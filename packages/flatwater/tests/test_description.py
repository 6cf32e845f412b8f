"""A recipe's description says what readers need, comes back as it was, and whatever else a file holds is refused."""

import json
from typing import Any

import pytest

from flatwater.description import MAXIMUM_ENTRIES, describe_recipe, parse_description
from flatwater.recipe import find_installed_recipe, recipe_names


@pytest.mark.parametrize("name", recipe_names())
def test_each_recipe_that_ships_comes_back_as_it_was(name: str) -> None:
    recipe = find_installed_recipe(name)
    assert recipe is not None
    found = describe_recipe(recipe, {"env": "x"})
    again = parse_description(json.dumps(found.to_json()).encode())
    assert again == found
    for field in ("name", "journal", "players", "trained", "title", "headline", "numbers", "context_fields"):
        assert getattr(again, field) == getattr(recipe, field)
    assert again.curves == dict(recipe.curves)
    assert again.layout.rounds == recipe.layout.rounds
    assert [column.show(0.4567) for column in again.layout.live_columns] == [
        column.show(0.4567) for column in recipe.layout.live_columns
    ]


def test_no_name_leads_to_a_recipe_but_those_of_the_table() -> None:
    for name in ("payload:R", "flatwater_trading.recipe.recipe:ERL", "", "erl ", "os:system", "__class__"):
        assert find_installed_recipe(name) is None


CHANGES: list[tuple[str, Any]] = [
    ("name", 3),
    ("name", "a\x1b[2J"),
    ("name", "x" * 201),
    ("round", "two\nlines"),
    ("curves", {}),
    ("curves", {f"c{at}": "x" for at in range(MAXIMUM_ENTRIES + 1)}),
    ("curves", ["a"]),
    ("journal", "../../etc/passwd"),
    ("title", "{0.__class__}"),
    ("title", "{split!r}"),
    ("headline", {"title": "a", "key": "b", "form": "{:1000000000}", "against": "c", "said": "{}"}),
    ("headline", {"title": "a", "key": "b", "form": "{}", "against": "c", "said": "{x.y}"}),
    ("headline", "text"),
    ("numbers", [{"title": "a", "key": "b", "form": "{.real}"}]),
    ("numbers", {"a": 1}),
    ("glance", [{"title": "a", "name": "b", "way": "os:system"}]),
    ("said", "text"),
    ("own_parts", "yes"),
    ("trained_on", None),
]


@pytest.mark.parametrize(("field", "value"), CHANGES)
def test_what_cannot_be_shown_is_refused(field: str, value: object) -> None:
    recipe = find_installed_recipe("ppo")
    assert recipe is not None
    content = describe_recipe(recipe, {}).to_json() | {field: value}
    with pytest.raises(ValueError):  # noqa: PT011  (each says what is wrong in words of its own)
        parse_description(json.dumps(content).encode())
    del content[field]
    if field != "own_parts":
        with pytest.raises(ValueError, match={"said": "context_fields"}.get(field, field)):
            parse_description(json.dumps(content).encode())
