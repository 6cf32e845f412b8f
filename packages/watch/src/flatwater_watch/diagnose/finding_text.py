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
    """Return the lines of `finding_lines` without the instruction, which `brief_text` above them has."""
    return _lines(finding, [(label, text) for label, text in _labelled_texts(finding) if label != "do"])


def _lines(finding: Finding, labelled_texts: Sequence[tuple[str, str]]) -> list[str]:
    """Return the lines on a finding: its first sentence, then the texts with their labels."""
    lines = wrap_text(f"{finding.verdict}: ", f"{_rate_sentence(finding)}.", "  ")
    for label, text in labelled_texts:
        lines += wrap_text(f"  {label}".ljust(LABEL_WIDTH), text, " " * LABEL_WIDTH)
    return lines


def brief_text(finding: Finding) -> str:
    """Return two sentences to act on: what grows and at which line, and the instruction of the advice."""
    return f"{growth_statement(finding)}. {split_advice(finding.advice)[0]}"


def growth_statement(finding: Finding) -> str:
    """Return what grows and at which line, without a full stop; the content alone for a slowdown."""
    if not VERDICTS[finding.verdict].is_of_bytes:
        return finding.what
    site = finding.made_at
    place = "" if site is None else f" at {file_name(site.file)}:{site.line}"
    return f"{_owner_words(finding)} {verb_form(finding, 'grows', 'grow')}{place}"


def split_advice(advice: str) -> tuple[str, str]:
    """Return the first sentence of the advice, the instruction, and the others, which are facts and may be empty.

    A full stop within backticks, as in `open(..., stream=True)`, ends no sentence.
    """
    # The second sentence starts behind a full stop and a blank with as many closed as opened backticks before them;
    # beyond the text if there is a single sentence.
    starts = (match.end() for match in re.finditer(r"\. ", advice))
    second_start = next((start for start in starts if advice.count("`", 0, start) % 2 == 0), len(advice) + 1)
    return advice[: second_start - 1], advice[second_start:]


def _owner_words(finding: Finding) -> str:
    """Return the owner; "agent.rows of learn()" for the path "learn() in train.py: agent.rows" of a local variable."""
    # Only the path of a local variable has a colon with a blank: `function() in file.py: name`.
    place, is_local, name = finding.owner.rpartition(": ")
    function, _, file = place.rpartition(" in ")
    if not (is_local and function):
        return _inside_words(finding) + finding.owner
    sentence_names_file = finding.made_at is not None and file_name(finding.made_at.file) == file  # by its line
    return f"{_inside_words(finding)}{name} of {function if sentence_names_file else place}"


def _inside_words(finding: Finding) -> str:
    """Return the words before an owner whose memory lies outside of Python, and which is an object of the program."""
    return "memory inside " if finding.verdict == "native" and finding.holders else ""


def _rate_sentence(finding: Finding) -> str:
    """Return the owner with its rate and share of the growth, without a full stop; the content alone for a slowdown."""
    if not VERDICTS[finding.verdict].is_of_bytes:
        return finding.what
    rate = f"{format_bytes(finding.bytes_per_step)} {_unit_with_article(finding)}, {finding.share:.0%} of the growth"
    return f"{subject_and_verb(finding)} by {rate}"


def subject_and_verb(finding: Finding) -> str:
    """Subject and verb: `train.HISTORY grows`, `atexit's callbacks grow`."""
    return f"{_inside_words(finding)}{finding.owner} {verb_form(finding, 'grows', 'grow')}"


def verb_form(finding: Finding, singular: str, plural: str) -> str:
    """Return the verb form for the owner: `plural` if the owner is a plural, such as `atexit's callbacks`."""
    return plural if _PLURAL_OWNERS.fullmatch(finding.owner) else singular


def _unit_with_article(finding: Finding) -> str:
    """Return the unit with its article: `a round`, `an episode`."""
    return f"{'an' if finding.unit[0] in 'aeiou' else 'a'} {finding.unit}"


def _labelled_texts(finding: Finding) -> list[tuple[str, str]]:
    """Return the known facts as pairs of a label, of at most 7 letters, and a text, in the order of the lines."""
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
    return [*texts, ("do", instruction), *([("why", facts)] if facts else [])]


def growth_end(finding: Finding) -> str:
    """Return words on when the growth ends: full, and the memory limit, the earlier first; empty for a slowdown."""
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
    """Return the end of a sentence on the limit: not reached, or reached at a step and, if it is known, at a time."""
    if finding.limit_step is None:
        return "not reached"
    if not finding.has_date:
        return f"reached if it goes on; when, cannot be told from rates so far apart as these {finding.unit}s have"
    time_phrase = f"{finding.unit} {two_digits(finding.limit_step)}"
    return (
        f"reached {clock_words(finding.limit_time)}, at {time_phrase}"
        if finding.limit_time is not None
        else f"reached at {time_phrase}"
    )


def headline(finding: Finding) -> str:
    """Return the owner and its rate in one sentence, without its full stop."""
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
    lines = textwrap.wrap(
        _CODE.sub(lambda code: code[0].replace(" ", _HARD_SPACE), text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words="://" not in text,  # a link may be longer than a line
    )
    return [line.replace(_HARD_SPACE, " ") for line in lines]
