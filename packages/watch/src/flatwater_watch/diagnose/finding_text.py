"""A finding in words: one line, one sentence, or a few lines for a person."""

import re
import textwrap
from collections.abc import Sequence

from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.verdicts import VERDICTS
from flatwater_watch.paths import file_name
from flatwater_watch.units import clock_words, format_bytes, short_bytes, two_digits

WIDTH = 99
"""Maximum columns of a line of `finding_lines`."""
LABEL_WIDTH = 10
"""Columns of the label at the beginning of a line of `finding_lines`."""

_CODE, _HARD_SPACE = re.compile(r"(?<![^\s(])`[^`]+`(?!\w)"), "\N{NO-BREAK SPACE}"
"""Code in backticks, and not the text from a backtick in a name to the next code; a space that ends no line."""
_PLURAL_OWNERS = re.compile(
    r"mapped files|worker processes|finalizers of weakref\.finalize|\w+'s (?:[a-z][a-z -]*s|children)"
)
"""Owners in the plural. A path of a variable never matches: it has no blank, or a colon before its name."""


def finding_lines(finding: Finding) -> list[str]:
    """Return a few lines for a person, each of at most `WIDTH` columns."""
    return _lines(finding, _labelled_texts(finding))


def lines_below_brief(finding: Finding) -> list[str]:
    """Return the lines of `finding_lines` without the one with the instruction (label "do").

    They are shown below `brief_text`, which has the instruction already.
    """
    return _lines(finding, [(label, text) for label, text in _labelled_texts(finding) if label != "do"])


def _lines(finding: Finding, labelled_texts: Sequence[tuple[str, str]]) -> list[str]:
    """Return the lines on a finding: a sentence with its verdict and rate, then each (label, text)."""
    lines = wrap_text(f"{finding.verdict}: ", f"{_rate_sentence(finding)}.", "  ")
    for label, text in labelled_texts:
        lines += wrap_text(f"  {label}".ljust(LABEL_WIDTH), text, " " * LABEL_WIDTH)
    return lines


def brief_text(finding: Finding) -> str:
    """Return a finding in two sentences: what grows at which line, and what to do."""
    return f"{growth_statement(finding)}. {split_advice(finding.advice)[0]}"


def growth_statement(finding: Finding) -> str:
    """Return a clause such as "train.HISTORY grows at train.py:12"; for a slowdown, the sentence on its phase."""
    if not VERDICTS[finding.verdict].is_of_bytes:  # a slowdown
        return finding.what
    site = finding.made_at
    place = "" if site is None else f" at {file_name(site.file)}:{site.line}"
    return f"{_owner_words(finding)} {verb_form(finding, 'grows', 'grow')}{place}"


def split_advice(advice: str) -> tuple[str, str]:
    """Return the first sentence of the advice, which is the instruction, and the rest, which is facts and may be empty.

    A full stop within backticks, as in `open(..., stream=True)`, ends no sentence.
    """
    # A sentence starts behind each full stop with a blank before which all backticks are closed.
    starts = (match.end() for match in re.finditer(r"\. ", advice))
    second_start = next((start for start in starts if advice.count("`", 0, start) % 2 == 0), len(advice) + 1)
    return advice[: second_start - 1], advice[second_start:]


def _owner_words(finding: Finding) -> str:
    """Return the owner of a finding in words: "train.HISTORY", or "agent.rows of learn()" for a local variable.

    The path of a local variable is "learn() in train.py: agent.rows"; its file is left out if the finding's line, which
    is printed behind, has the same file.
    """
    place, is_local, name = finding.owner.rpartition(": ")
    function, _, file = place.rpartition(" in ")
    if not (is_local and function):
        return _inside_words(finding) + finding.owner
    sentence_names_file = finding.made_at is not None and file_name(finding.made_at.file) == file  # by its line
    return f"{_inside_words(finding)}{name} of {function if sentence_names_file else place}"


def _inside_words(finding: Finding) -> str:
    """Return "memory inside " for native memory that an object of the program keeps; for all others, empty."""
    return "memory inside " if finding.verdict == "native" and finding.holders else ""


def _rate_sentence(finding: Finding) -> str:
    """Return a clause such as "train.HISTORY grows by 2 MiB a round, 80% of the growth".

    For a slowdown it is the sentence on its phase.
    """
    if not VERDICTS[finding.verdict].is_of_bytes:  # a slowdown
        return finding.what
    rate = f"{format_bytes(finding.bytes_per_step)} {_unit_with_article(finding)}, {finding.share:.0%} of the growth"
    return f"{subject_and_verb(finding)} by {rate}"


def subject_and_verb(finding: Finding) -> str:
    """Return the owner and its verb: "train.HISTORY grows", "atexit's callbacks grow"."""
    return f"{_inside_words(finding)}{finding.owner} {verb_form(finding, 'grows', 'grow')}"


def verb_form(finding: Finding, singular: str, plural: str) -> str:
    """Return the form of a verb that agrees with the owner: `plural` for an owner such as "atexit's callbacks"."""
    return plural if _PLURAL_OWNERS.fullmatch(finding.owner) else singular


def _unit_with_article(finding: Finding) -> str:
    """Return the unit with its article: "a round", "an episode"."""
    article = "an" if finding.unit[0] in "aeiou" else "a"
    return f"{article} {finding.unit}"


def _labelled_texts(finding: Finding) -> list[tuple[str, str]]:
    """Return the known facts as (label, text), in the order in which they are printed: ("made at", "train.py:12")."""
    texts = []
    if finding.holders:
        texts.append(("held by", " → ".join(finding.holders)))
    if finding.made_at is not None:
        texts.append(("made at", str(finding.made_at)))
    if VERDICTS[finding.verdict].is_of_bytes:
        low, high = (short_bytes(bound) for bound in finding.interval)
        texts.append(("what", f"{finding.what}; between {low} and {high} {_unit_with_article(finding)}"))
        texts.append(("until", growth_end(finding)))
    if finding.redundancy is not None:
        texts.append(("note", finding.redundancy))
    instruction, facts = split_advice(finding.advice)
    texts.append(("do", instruction))
    if facts:
        texts.append(("why", facts))
    return texts


def growth_end(finding: Finding) -> str:
    """Return clauses on when the owner is full and when memory reaches its limit, the earlier first.

    As in "full with 2 GiB at round 900; the limit of 8 GiB is not reached". Empty for a slowdown.
    """
    if not VERDICTS[finding.verdict].is_of_bytes:
        return ""
    if finding.verdict == "mapped":
        return "the system needs the memory for something else: then it takes these pages back"
    clauses = []
    if finding.plateau_bytes is not None:
        time_phrase = "" if finding.plateau_step is None else f" at {finding.unit} {two_digits(finding.plateau_step)}"
        clauses.append(f"full with {format_bytes(finding.plateau_bytes)}{time_phrase}")
    if finding.limit_bytes is None:
        clauses.append("no limit is known")
    else:
        clauses.append(f"the limit of {format_bytes(finding.limit_bytes)} is {_limit_phrase(finding)}")
    return "; ".join(reversed(clauses) if finding.dies_first else clauses)


def _limit_phrase(finding: Finding) -> str:
    """Return the end of "the limit of 8 GiB is …": "not reached", or "reached" with a step and, if known, a time."""
    if finding.limit_step is None:
        return "not reached"
    if not finding.has_date:
        return f"reached if it goes on; when, cannot be told from rates so far apart as these {finding.unit}s have"
    step_phrase = f"{finding.unit} {two_digits(finding.limit_step)}"
    if finding.limit_time is None:
        return f"reached at {step_phrase}"
    return f"reached {clock_words(finding.limit_time)}, at {step_phrase}"


def headline(finding: Finding) -> str:
    """Return the verdict's sentence with owner and rate, without its full stop: "CACHE grows by 2 MiB a round…"."""
    rate = f"{format_bytes(finding.bytes_per_step)} {_unit_with_article(finding)}"
    return VERDICTS[finding.verdict].headline.format(
        owner=finding.owner,
        grows=subject_and_verb(finding),
        is_=verb_form(finding, "is", "are"),
        takes=verb_form(finding, "takes", "take"),
        rate=rate,
        what=finding.what,
    )


def wrap_text(first: str, text: str, indent: str) -> list[str]:
    """Wrap a text into lines of at most `WIDTH` columns: the first begins with `first`, the others with `indent`.

    Links and short code in backticks stay in one line, as a part of them is of no use.
    """
    # No line is broken at a hard space.
    text_with_whole_code = _CODE.sub(lambda code: code[0].replace(" ", _HARD_SPACE), text)
    lines = textwrap.wrap(
        text_with_whole_code,
        WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words="://" not in text,  # a link may be longer than a line
    )
    return [line.replace(_HARD_SPACE, " ") for line in lines]
