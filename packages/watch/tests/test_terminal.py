"""Nothing that somebody else has named gives orders to a terminal, and nothing of it is read as markup."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.progress import Progress, TextColumn
from rich.table import Table
from rich.text import Text

from flatwater_watch.sanitize import MAXIMUM_LETTERS, escape_controls, short_repr
from flatwater_watch.terminal import PrintableStream, Terminal, print_sentence, terminal

ORDERS = {*map(chr, range(32)), *map(chr, range(0x7F, 0xA0))} - {"\n", "\t"}
HOSTILE = "a\x1b]0;owned\x07\x9b31m\r\x08b[bold]c[/]\u202e\udcff"


@given(st.text())
def test_no_order_is_left_in_any_text(text: str) -> None:
    told = escape_controls(text)
    assert not set(told) & ORDERS
    told.encode()
    assert escape_controls(told) == told
    if text.isascii() and text.isprintable():
        assert told == text


def test_the_console_passes_no_order_on_wherever_it_stands() -> None:
    said = io.StringIO()
    console = Terminal(file=said, width=120)
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE)
    with Progress(TextColumn("{task.description}"), console=console) as bar:
        bar.add_task(HOSTILE)
    console.print(HOSTILE, table, Text(HOSTILE), HOSTILE, style="red")
    with console.status(HOSTILE):
        pass
    assert not set(said.getvalue()) & ORDERS
    assert said.getvalue().count(r"a\x1b]0;owned") >= 4
    assert said.getvalue().count("[bold]c[/]") >= 4


@pytest.mark.parametrize(("columns", "width"), [("72", 72), ("160", 160), ("3", 40), ("wide", 100), (None, 100)])
def test_what_is_piped_is_as_wide_as_columns_says(
    columns: str | None, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", columns)
    terminal().rule(characters="-")
    assert capsys.readouterr().out.strip("\n") == "-" * width


def test_a_sentence_is_broken_between_words_on_a_terminal_alone() -> None:
    path = "/" + "a-b" * 10
    sentence = f"it is {path} [1] now\nand then"
    for is_terminal, told in ((True, f"it is\n{path}\n[1] now\nand then\n"), (False, f"{sentence}\n")):
        out = io.StringIO()
        print_sentence(Terminal(file=out, width=20, force_terminal=is_terminal), sentence)
        assert out.getvalue() == told


def test_names_are_no_pictures() -> None:
    out = io.StringIO()
    console = Terminal(file=out)
    console.print("in boat:Boat: 4 environments", markup=True)
    assert out.getvalue() == "in boat:Boat: 4 environments\n"


def test_colours_of_our_own_still_pass() -> None:
    said = io.StringIO()
    console = Terminal(file=said, width=80, force_terminal=True, color_system="standard")
    console.print(Text("a\x1b[2Jb", style="red"))
    assert said.getvalue() == "\x1b[31ma\\x1b[2Jb\x1b[0m\n"


def test_a_library_may_colour_what_it_prints_and_nothing_else() -> None:
    said = io.StringIO()
    stream = PrintableStream(said)
    assert stream.write("\x1b[1mbold\x1b[0m \x1b]0;x\x07") == 19
    assert said.getvalue() == "\x1b[1mbold\x1b[0m \\x1b]0;x\\x07"


def test_a_long_or_endless_value_is_shown_in_short() -> None:
    assert short_repr("x") == "'x'"
    assert len(short_repr("x" * 100_000)) < 2 * MAXIMUM_LETTERS
    assert "thousands of digits" in short_repr(10**5000)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert "nested too deeply" in short_repr(deep)
