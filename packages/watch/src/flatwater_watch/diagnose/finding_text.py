"""A finding in words: one line, one sentence, or a few lines for a person."""

import re
import textwrap

from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.verdicts import VERDICTS
from flatwater_watch.paths import file_name
from flatwater_watch.units import clock_words, format_bytes, short_bytes, two_digits

WIDTH = 99
"""Maximum columns of a line of `finding_lines`."""
BRIEF_WIDTH = 88
"""Maximum columns of `brief_line`."""
STATEMENT_WIDTHS = (BRIEF_WIDTH // 2, 36, 28, 20)
"""Columns of the owner and its verb in `brief_line`, less where else no whole clause of the advice fits."""
LABEL_WIDTH = 10
"""Columns of the label at the beginning of a line of `finding_lines`."""

_PLURAL_OWNERS = re.compile(
    r"mapped files|worker processes|finalizers of weakref\.finalize|\w+'s (?:[a-z][a-z -]*s|children)"
)
"""Owners in the plural. A path of a variable never matches: it has no blank, or a colon before its name."""


def finding_lines(finding: Finding) -> list[str]:
    """A few lines for a person, each of at most `WIDTH` columns."""
    lines = _wrap_text(f"{finding.verdict}: ", f"{_rate_sentence(finding)}.", "  ")
    for label, text in _labelled_texts(finding):
        lines += _wrap_text(f"  {label}".ljust(LABEL_WIDTH), text, " " * LABEL_WIDTH)
    return lines


def brief_line(finding: Finding) -> str:
    """The owner, the line and the advice, in one line of at most `BRIEF_WIDTH` columns."""
    place = "" if finding.made_at is None else f", {file_name(finding.made_at.file)}:{finding.made_at.line}"
    is_native = finding.verdict == "native" and finding.made_at is None
    native_advice = "look at C extensions and buffers outside of Python"  # the finding's own has several lines
    advice = _lower_first(native_advice if is_native else finding.advice)
    openings = [f"{_statement(finding, maximum)}{place}: " for maximum in STATEMENT_WIDTHS]
    lines = [f"{opening}{_fitting_instruction(advice, BRIEF_WIDTH - len(opening))}" for opening in openings]
    fitting_lines = (line for line in lines if len(line) <= BRIEF_WIDTH)
    return next(fitting_lines, textwrap.shorten(lines[0], BRIEF_WIDTH, placeholder=" …"))


def _statement(finding: Finding, maximum: int) -> str:
    """Subject and verb in about `maximum` columns; the content alone for a slowdown."""
    if not VERDICTS[finding.verdict].is_of_bytes:
        return textwrap.shorten(finding.what, maximum, placeholder="…")
    verb = f" {verb_form(finding, 'grows', 'grow')}"
    if finding.verdict == "native" and maximum < STATEMENT_WIDTHS[0]:
        return f"native memory{verb}"
    return f"{_shorten_owner(finding.owner, maximum - len(verb))}{verb}"


def _rate_sentence(finding: Finding) -> str:
    """The owner with its rate and share of the growth, without a full stop; the content alone for a slowdown."""
    if not VERDICTS[finding.verdict].is_of_bytes:
        return finding.what
    rate = f"{format_bytes(finding.bytes_per_step)} {_unit_with_article(finding)}, {finding.share:.0%} of the growth"
    return f"{subject_and_verb(finding)} by {rate}"


def subject_and_verb(finding: Finding) -> str:
    """Subject and verb: `train.HISTORY grows`, `atexit's callbacks grow`."""
    return f"{finding.owner} {verb_form(finding, 'grows', 'grow')}"


def verb_form(finding: Finding, singular: str, plural: str) -> str:
    """The verb form for the owner: `plural` if the owner is a plural, such as `atexit's callbacks`."""
    return plural if _PLURAL_OWNERS.fullmatch(finding.owner) else singular


def _unit_with_article(finding: Finding) -> str:
    """The unit with its article: `a round`, `an episode`."""
    return f"{'an' if finding.unit[0] in 'aeiou' else 'a'} {finding.unit}"


def _labelled_texts(finding: Finding) -> list[tuple[str, str]]:
    """Pairs of a label, of at most 7 letters, and a text, for the known facts, in the order of `finding_lines`."""
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
    texts.append(("do", finding.advice))
    return texts


def growth_end(finding: Finding) -> str:
    """The end of the growth in words: full, and the memory limit reached, the earlier first; empty for a slowdown."""
    if not VERDICTS[finding.verdict].is_of_bytes:
        return ""
    if finding.verdict == "mapped":
        return "the system needs the memory for something else: then it takes these pages back"
    clauses = []
    if finding.plateau_bytes is not None:
        when = "" if finding.plateau_step is None else f" at {finding.unit} {two_digits(finding.plateau_step)}"
        clauses.append(f"full with {format_bytes(finding.plateau_bytes)}{when}")
    if finding.limit_bytes is None:
        clauses.append("no limit is known")
    else:
        clauses.append(f"the limit of {format_bytes(finding.limit_bytes)} is {_limit_phrase(finding)}")
    return "; ".join(reversed(clauses) if finding.dies_first else clauses)


def _limit_phrase(finding: Finding) -> str:
    """The end of a sentence on the limit: not reached, or reached at a step and, if it is known, at a time."""
    if finding.limit_step is None:
        return "not reached"
    if not finding.has_date:
        return f"reached if it goes on; when, cannot be told from rates so far apart as these {finding.unit}s have"
    when = f"{finding.unit} {two_digits(finding.limit_step)}"
    return (
        f"reached {clock_words(finding.limit_time)}, at {when}"
        if finding.limit_time is not None
        else f"reached at {when}"
    )


def headline(finding: Finding) -> str:
    """The owner and its rate in one sentence, without its full stop."""
    rate = f"{format_bytes(finding.bytes_per_step)} {_unit_with_article(finding)}"
    return VERDICTS[finding.verdict].headline.format(
        owner=finding.owner,
        grows=subject_and_verb(finding),
        is_=verb_form(finding, "is", "are"),
        takes=verb_form(finding, "takes", "take"),
        rate=rate,
        what=finding.what,
    )


def _shorten_owner(owner: str, maximum: int) -> str:
    """A path in at most `maximum` letters: without the function before a variable, else only its last hops.

    With 16 letters, "main() in train.py: agent.memory.rows" becomes "…memory.rows".
    """
    if len(owner) <= maximum:
        return owner
    _, _, name = owner.rpartition(": ")
    if len(name) <= maximum:
        return name
    tail = name[1 - maximum :]
    first_hop = re.search(r"[.\[](?=[\w\['])", tail)
    if first_hop is None:
        return f"…{tail}"
    return f"…{tail[first_hop.end() if first_hop[0] == '.' else first_hop.start() :]}"


_CLAUSE_END = re.compile(
    r"\.(?= )|(?=[;:] )|(?=, (?:or|and|but|so|such|if) )|(?= (?:when this|for each that|where its result) is )"
)
"""Ends of sentences, with their full stop, and of clauses; other commas stand within a list."""
_INSTRUCTION_VERBS = frozenset({
    "add", "allocate", "begin", "bound", "break", "call", "cancel", "change", "close", "commit", "compile", "configure",
    "convert", "count", "drop", "end", "fetch", "generate", "give", "hold", "keep", "leave", "let", "look",
    "lower", "make", "mark", "open", "put", "raise", "register", "remove", "set", "store", "take", "use",
    "write",
})  # fmt: skip
"""First words of instructions; other sentences of advice, such as facts about a library, begin with other words."""


def _fitting_instruction(advice: str, width: int) -> str:
    """The part of the advice that fits into a width: all of it, or whole clauses from the first instruction on.

    If no whole clause fits, the result is longer than the width, and the caller cuts it.
    """
    if len(advice) <= width:
        return advice
    first_instruction = next(
        (rest for rest in _sentences_onward(advice) if _is_instruction(rest.partition(". ")[0])), advice
    )
    text = _lower_first(first_instruction)
    if len(text) <= width:
        return text
    fitting_texts = [text[: clause.end()] for clause in _CLAUSE_END.finditer(text) if clause.end() <= width]
    longest_first = reversed(fitting_texts)
    return next((part for part in longest_first if _has_balanced_quotes(part) and _is_instruction(part)), text)


def _sentences_onward(text: str) -> list[str]:
    """The text from its first sentence on, from its second sentence on, and so forth."""
    return [text[match.end() :] for match in re.finditer(r"^|\. ", text)]


def _lower_first(text: str) -> str:
    """The text with a small first letter, as it stands behind a colon."""
    return f"{text[:1].lower()}{text[1:]}"


def _has_balanced_quotes(part: str) -> bool:
    """Whether no backtick and no bracket is open at the end of a part of a text."""
    return part.count("`") % 2 == 0 and part.count("(") == part.count(")")


def _is_instruction(part: str) -> bool:
    """Whether a sentence, or a clause of it, begins with the verb of an instruction."""
    return any(
        clause.partition(" ")[0].lower().rstrip(",") in _INSTRUCTION_VERBS for clause in re.split(r"[.;:] ", part)
    )


def _wrap_text(first: str, text: str, indent: str) -> list[str]:
    """Lines of at most `WIDTH` columns: the first begins with `first`, the others with `indent`."""
    has_link = "://" in text  # a link in two parts cannot be followed
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=not has_link,
    )
