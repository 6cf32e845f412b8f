"""How `flatwater watch` and other memory tools are judged on the cases of the finder's tests, and their table.

Each tool is used as its documentation shows for a leak, and judged by what it puts first:

memray, fil  stacks at the peak, since both count what is alive at the end of a program as freed or not at all. The line
             of the program with most bytes counts: the innermost frame that lies in it. A person who reads their pages
             has to find it, so this is generous, and it is the largest whether it grows or not.
tracemalloc  the line that grew most between the middle of the program and its end; one frame, as it is shown by line.
objgraph     the type of which the most came between the middle and the end, and the names on the chain of references
             from a module to its newest object.
scalene      the first line of its report of leaks, which is the likeliest; where the report is empty, the line with the
             highest peak.
watch        the first finding. What it found is right where there is one.

*Found*: a line of the program, a type that its source names, or the owner; the others put something first always.
*Owner*: a word for the owner stands in a name that is shown. *Line*: exactly the line that makes most of the growth,
or another that the case marks as right.
*Verdict*: the kind of growth; scalene alone of the others has one, a leak, and is right where the case is one.
*Date*: since when it grows, or when memory ends; the speed that scalene shows is none.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from expected_cases import growing, program_of, right_lines
from watched_cases import Right

Place = tuple[str, int]
"""File and line."""
LETTERS = {"found": "F", "owner": "O", "line": "L", "verdict": "V", "date": "D"}


@dataclass(frozen=True)
class Answer:
    """The parts of an answer that are right, and the place that was put first."""

    found: bool
    owner: bool
    line: bool | None
    """None where no line of the program makes the growth."""
    verdict: bool
    date: bool
    top: str


def judge_answer(name: str, top: str | None, names: Iterable[str] = (), *, leak: bool = False) -> Answer:
    """Judge the first line of another tool.

    Args:
        name: of the case.
        top: `file:line`, or a type with its module.
        names: on the way to what it shows.
        leak: whether it calls that a leak.
    """
    case, program = growing()[name], program_of(name)
    first = top or ""
    module, _, kind = first.rpartition(".")
    owner = any(word in one for word in case.owners for one in names)
    of_program = first.startswith(f"{program}:") or (module not in {"", "builtins"} and kind in program.read_text())
    return Answer(
        found=of_program or owner,
        owner=owner,
        line=first in {f"{program}:{line}" for line in right_lines(name)} if case.line else None,
        verdict=leak and "leak" in case.verdicts,
        date=False,
        top=first.removeprefix(f"{program}:"),
    )


def stacks_point_at(name: str, stacks: Iterable[tuple[int, Sequence[Place]]]) -> str | None:
    """The line of a program with most bytes.

    Args:
        name: of the case.
        stacks: bytes, and the frames, the innermost first.
    """
    program, lines = str(program_of(name)), Counter[str]()
    for size, stack in stacks:
        inside = [f"{file}:{line}" for file, line in stack if file == program]
        if inside:
            lines[inside[0]] += size
    return lines.most_common(1)[0][0] if lines else None


def fil_stacks(text: str) -> list[tuple[int, list[Place]]]:
    """Its stacks: a line for each, the innermost frame last, `file:line (function);… bytes`."""
    stacks = []
    for each in text.splitlines():
        frames, _, size = each.rpartition(" ")
        places = [frame.rpartition(" (")[0].rpartition(":") for frame in reversed(frames.split(";"))]
        stacks.append((int(size), [(file, int(line)) for file, _, line in places if line.isdigit()]))
    return stacks


def scalene_points_at(profile: dict[str, Any]) -> tuple[str | None, bool]:
    """The likeliest leak, or else the line with the highest peak; and whether it is reported as a leak."""
    files = profile.get("files", {})
    leaks = [(each["likelihood"], f"{file}:{line}") for file, of in files.items() for line, each in of["leaks"].items()]
    if leaks:
        return max(leaks, key=lambda leak: leak[0])[1], True
    peaks = [(each["n_peak_mb"], f"{file}:{each['lineno']}") for file, of in files.items() for each in of["lines"]]
    return (max(peaks)[1] if peaks else None), False


def watch_answer(findings: list[dict[str, Any]], right: Right) -> Answer:
    """Judge the first finding of flatwater."""
    dated = any(each["limit_step"] is not None or each["plateau_step"] is not None for each in findings)
    top = f"{findings[0]['verdict']}: {findings[0]['owner']}" if findings else ""
    made = findings[0]["made_at"] if findings else None
    if made is not None:
        top += f", {Path(made['file']).name}:{made['line']}"
    return Answer(right.found, right.owner, right.line, right.verdict, dated, top)


def cases_table(rows: list[dict[str, Any]], tools: Sequence[str]) -> list[str]:
    """Markdown: a row for each program; a letter for each part that is right, CPU over that of the program, MB more."""
    by_case: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        by_case.setdefault(row["name"], {})[row["tool"]] = row
    whole = {name: of for name, of in by_case.items() if "cpu" in of["alone"]}
    lines = ["| program | CPU s | " + " | ".join(tools) + " |", "|---" * (len(tools) + 2) + "|"]
    for name, of in whole.items():
        cells = (_cell(of[tool], of["alone"]) if tool in of else "" for tool in tools)
        lines.append(f"| {name} | {of['alone']['cpu']:.1f} | " + " | ".join(cells) + " |")
    for part in LETTERS:
        cells = (_count(part, [of[tool] for of in whole.values() if tool in of], whole) for tool in tools)
        lines.append(f"| **{part}** | | " + " | ".join(cells) + " |")
    for title, form, number in (("CPU, median", "×{:.1f}", _ratio), ("MB more, median", "{:.0f}", _more)):
        lines.append(f"| **{title}** | | " + " | ".join(_median(form, whole, tool, number) for tool in tools) + " |")
    return lines


def _ratio(row: dict[str, Any], alone: dict[str, Any]) -> float:
    return float(row["cpu"] / alone["cpu"])


def _more(row: dict[str, Any], alone: dict[str, Any]) -> float:
    return float((row["peak"] - alone["peak"]) / 1e6)


def _median(form: str, whole: dict[str, dict[str, Any]], tool: str, number: Callable[[Any, Any], float]) -> str:
    """Format the median of a number, over the programs that ended under a tool."""
    numbers = [number(row[tool], row["alone"]) for row in whole.values() if "cpu" in row.get(tool, {})]
    return form.format(median(numbers)) if numbers else ""


def _count(part: str, rows: list[dict[str, Any]], whole: dict[str, Any]) -> str:
    """`18 of 21`; a tool that failed found nothing."""
    if part == "line":
        rows = [row for row in rows if row["name"] in whole and growing()[row["name"]].line]
    return f"{sum(bool(row.get(part)) for row in rows)} of {len(rows)}"


def _cell(row: dict[str, Any], alone: dict[str, Any]) -> str:
    """`FOL·D ×1.2 10`, or `failed`."""
    if "failed" in row:
        return "failed"
    marks = ("–" if row[part] is None else letter if row[part] else "·" for part, letter in LETTERS.items())
    return f"{''.join(marks)} ×{_ratio(row, alone):.1f} {_more(row, alone):.0f}"
