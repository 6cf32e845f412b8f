"""Forms that come from a file name a value and say how its number is written, and can do nothing else."""

import pytest
from hostile_runs import FORMS
from hypothesis import given
from hypothesis import strategies as st

from flatwater_watch.format_strings import check_format, fill_format, write_value
from flatwater_watch.phrases import list_phrase


@pytest.mark.parametrize("form", [*FORMS[1:8], "{x:{y}}", "{:>1000}", "{:.1000f}", "{0}", "{x.y}", "{a[0]}", "x" * 301])
def test_a_form_that_asks_for_more_is_refused(form: str) -> None:
    for names in (True, False):
        with pytest.raises(ValueError, match=r"expected|brace|Single|unmatched"):
            check_format(form, has_names=names)


@pytest.mark.parametrize(
    "form", ["{:.2f}", "{:+.1%}", "{:.0f}", "{:.1f} x", "{:+z.1%}", "{:,}", "{}", "{{}} {:d}", "plain"]
)
def test_a_form_of_a_number_is_filled_in_as_python_does(form: str) -> None:
    check_format(form, has_names=False)
    assert write_value(form, 3) == form.format(3)


def test_what_does_not_fit_its_form_is_written_as_it_is() -> None:
    assert write_value("{:d}", 1.5) == "1.5"
    assert (
        fill_format("{a} {b:.1f} {c} {d:,} {e}", {"a": "x\x1b", "b": 1, "c": [1], "d": "text"}) == "x\\x1b 1.0 ? text ?"
    )


@given(st.text(st.sampled_from("{}:!.[]0aé_%f,+<"), max_size=12), st.integers())
def test_any_text_is_refused_or_filled_in(form: str, number: int) -> None:
    try:
        check_format(form, has_names=True)
    except ValueError:
        return
    assert isinstance(fill_format(form, {"a": number, "f": "x"}), str)


@pytest.mark.parametrize(
    ("count", "said"), [(1, "1 held-out episode of 1 batch"), (8, "8 held-out episodes of 8 batches")]
)
def test_what_is_counted_is_in_the_singular_where_it_is_one(count: int, said: str) -> None:
    form = "{n} {split} {n:episode} of {n} {n:batch}"
    check_format(form, has_names=True)
    assert fill_format(form, {"n": count, "split": "held-out"}) == said
    with pytest.raises(ValueError, match="expected braces"):
        check_format("{:episode}", has_names=False)


@pytest.mark.parametrize(("most", "said"), [(1, "a and 2 more"), (2, "a, b and 1 more"), (3, "a, b, c")])
def test_a_list_says_how_many_names_it_leaves_out(most: int, said: str) -> None:
    assert list_phrase(["a", "b", "c"], most) == said
