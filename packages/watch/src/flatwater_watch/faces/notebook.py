"""The extension of IPython: `%load_ext flatwater_watch`, then `%%watch` in a cell's first line; findings are cards."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from flatwater_watch.agent.outcome import Outcome
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.errors import ConfigError
from flatwater_watch.faces.context import Watch
from flatwater_watch.faces.summary_lines import summary_head
from flatwater_watch.pages.blocks import Block, Listing, Paragraph
from flatwater_watch.pages.finding_cards import finding_cards

CARD_STYLE = """
.flatwater .finding { margin: 8px 0; padding: 10px 16px; border: 1px solid #8884; border-left: 5px solid #64748b;
  border-radius: 10px; }
.flatwater .grave { border-left-color: #dc2626; }
.flatwater h3 { margin: 0 0 6px; font-size: 1em; overflow-wrap: anywhere; }
.flatwater .verdict { margin-right: 8px; padding: 1px 8px; border-radius: 6px; background: #8883; font-size: .85em; }
.flatwater dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 14px; margin: 0; }
.flatwater dt { font-weight: normal; opacity: .7; }
.flatwater dd { margin: 0; overflow-wrap: anywhere; }
"""


def load_ipython_extension(shell: Any) -> None:  # noqa: ANN401  (IPython's)
    """Add `%%watch`, and show a watch as cards; `%load_ext flatwater_watch` calls this function."""

    def watch(line: str, cell: str) -> None:
        """Run the cell watched, and say what grows in it: `%%watch`, or `%%watch --budget 8GiB`.

        Raises:
            UsageError: another watch is open, or there are other words behind `%%watch`.
        """
        try:
            cell_watch = Watch(unit=None, budget=_parse_budget(line), report=False)
            cell_watch.open()
        except ConfigError as fault:  # IPython shows a UsageError as one line, without a traceback
            raise import_module("IPython.core.error").UsageError(str(fault)) from fault
        try:
            # A comment in the place of the line with %%watch, so that lines have the numbers that the user sees; but
            # another magic, such as %%time, must stay the first line.
            shell.run_cell(cell if cell.startswith("%%") else f"#\n{cell}")
        finally:
            cell_watch.close()
        import_module("IPython.display").display(cell_watch)

    shell.register_magic_function(watch, "cell", "watch")
    if find_spec("plotly") is not None and find_spec("jinja2") is not None:  # else it is shown as text
        shell.display_formatter.formatters["text/html"].for_type(Watch, notebook_cards)


def _parse_budget(line: str) -> str | None:
    """Return the amount of `--budget` in the words behind `%%watch`; None if there are no words.

    Raises:
        ConfigError: there are other words.
    """
    match line.split():
        case []:
            return None
        case ["--budget", amount]:
            return amount
    raise ConfigError(f"%%watch {line}: expected `%%watch`, or `%%watch --budget 8GiB`")


def notebook_cards(watch: Watch) -> str:
    """Return the HTML of a watch's findings so far, for a notebook.

    Raises:
        ConfigError: the watch was never opened.
    """
    from flatwater_watch.pages.document import fragment  # noqa: PLC0415  (a watch alone needs no templates)

    summary = watch.summary()
    outcome = Outcome.from_json(summary["outcome"])
    sentences = [text for text in (outcome.unexplained_growth_sentence(), *outcome.known, *outcome.next) if text]
    blocks: tuple[Block, ...] = (
        *(Paragraph(line) for line in summary_head(summary)),
        finding_cards([(Finding.from_json(record), "") for record in summary["findings"]]),  # "": without a remark
        Listing([*sentences, *(f"not seen: {sentence}" for sentence in summary["unseen"])]),
    )
    return f'<style>{CARD_STYLE}</style><div class="flatwater">{"".join(fragment(block) for block in blocks)}</div>'
