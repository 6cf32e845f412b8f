"""How the answers of `flatwater watch` and of other memory tools are judged, and the table of them.

Each tool is used as its documentation shows, is asked while the program runs, and is judged by what it puts first:
*found*, a line of the program, a class that the program's source names, or the owner; *owner*, the variable that holds
what grows, anywhere on the chain that is shown; *line*, exactly the line that makes most of it; *verdict*, the kind of
growth, which the four have no word for. Of `flatwater watch` the first finding counts, and what it found is right only
if the owner is. Where nothing that Python made grows, or nothing at all but time, the four still put something first:
it counts as *found* where it lies in the program, which is generous.
"""

import runpy
from pathlib import Path
from statistics import median
from typing import Any

from claims import Claim

ZOO = runpy.run_path(str(Path(__file__).parents[2] / "packages" / "watch" / "tests" / "zoo" / "expected.py"))
RIVALS = ("memray", "tracemalloc", "objgraph", "pympler")
ANSWERS = ("found", "owner", "line", "verdict")
"""Answers that are asked of each tool."""


def answer(name: str, said: dict[str, Any]) -> dict[str, Any]:
    """Judge another tool's first line.

    Args:
        name: of the program.
        said: what `rivals.py` wrote.
    """
    program, top = str(ZOO["program_of"](name)), str(said["top"])
    expected = ZOO["GROWING"][name]
    owner = expected.owner.rpartition(".")[2].rpartition(" ")[2] in said["names"]
    line = top == f"{program}:{ZOO['marked_line'](name)}" if expected.line else None
    module, _, kind = top.rpartition(".")
    of_program = top.startswith(f"{program}:") or (module != "builtins" and kind in Path(program).read_text())
    return {"found": of_program or owner, "owner": owner, "line": line, "verdict": False, "top": top}


def own_answer(name: str, findings: list[dict[str, Any]]) -> dict[str, Any]:
    """Judge flatwater's first finding."""
    expected = ZOO["GROWING"][name]
    if not findings:
        nothing = {"found": False, "owner": False, "verdict": False, "top": "None"}
        return nothing | {"line": False if expected.line else None}
    first = findings[0]
    made = first["made_at"]
    near = made is not None and abs(made["line"] - ZOO["marked_line"](name)) <= expected.near if expected.line else None
    right = expected.owner in first["owner"]
    verdict = first["verdict"] == expected.verdict
    return {"found": right, "owner": right, "line": near, "verdict": verdict, "top": first["owner"]}


def rivals_table(found: dict[str, Any]) -> list[str]:
    """Markdown: a row for each program, a letter for each answer that is right, and CPU over that of the program."""
    tools = ("flatwater", *RIVALS)
    lines = ["| program | " + " | ".join(tools) + " |", "|---" * (len(tools) + 1) + "|"]
    for name, row in found.items():
        lines.append(f"| {name} | " + " | ".join(_letters(row[tool]) for tool in tools) + " |")
    for part in ANSWERS:
        asked_of = [row for row in found.values() if row["flatwater"][part] is not None]
        right = [f"{sum(row[tool][part] for row in asked_of)} of {len(asked_of)}" for tool in tools]
        lines.append(f"| **{part}** | " + " | ".join(right) + " |")
    costs = [median(row[tool]["cpu_ratio"] for row in found.values()) for tool in tools]
    return [*lines, "| **CPU, median** | " + " | ".join(f"×{cost:.2f}" for cost in costs) + " |"]


def rivals_claim(found: dict[str, Any]) -> Claim:
    """Lines that are right, beside the best of the others."""
    asked = [row for row in found.values() if row["flatwater"]["line"] is not None]
    right = {tool: sum(row[tool]["line"] for row in asked) for tool in ("flatwater", *RIVALS)}
    best = max(RIVALS, key=lambda tool: right[tool])
    name = "small programs that leak: the line that makes it is put first"
    rival = f"{right[best]} of {len(asked)} ({best})"
    return Claim("watch", "rivals", name, f"{right['flatwater']} of {len(asked)}", "all", rival=rival)


def _letters(row: dict[str, Any]) -> str:
    """`FO·V ×1.20`: found, owner, no line, verdict; a dash where no line makes the growth."""
    marks = ("–" if row[part] is None else part[0].upper() if row[part] else "·" for part in ANSWERS)
    return f"{''.join(marks)} ×{row['cpu_ratio']:.2f}"
