"""Cases of tests/cases under `flatwater watch`, under memray, and by themselves: the line, the date, CPU and memory.

    python benchmarks/cases_beside_memray.py [NAME …] --memray FOLDER

FOLDER is where `pip install --target FOLDER memray` put it. memray names no verdict and no owner: of what it recorded
the line of the program counts that has most bytes of the peak, whatever else a person might read in its pages.
FLATWATER_CASE_LIBRARIES as in `bench_cases.py`, whose seen half is run where no name is given.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests" / "cases"))
from expected_cases import growing, halves, marked_line, program_of
from watched_cases import WATCH, Said, environment, judge, missing

RECORD = """
import runpy, sys
import memray
program, file = sys.argv[1:3]
sys.argv = [program]
with memray.Tracker(file, native_traces=True):
    runpy.run_path(program, run_name="__main__")
"""
READ = """
import os, sys
from collections import Counter
import memray
program, file = sys.argv[1:3]
lines = Counter()
with memray.FileReader(file) as reader:
    for each in reader.get_high_watermark_allocation_records(merge_threads=True):
        frames = [frame for frame in each.stack_trace() if frame[1] == program]
        if frames:
            lines[frames[0][2]] += each.size
print(lines.most_common(1)[0][0] if lines else 0)
"""


@dataclass(frozen=True)
class Ran:
    """What a command took, its children with it, and what it wrote."""

    cpu: float
    peak: int
    """Bytes of its largest process."""
    text: str


def run(command: list[str], folder: Path, more: str = "") -> Ran:
    """Run a command to its end."""
    space = environment()
    space["PYTHONPATH"] = os.pathsep.join(part for part in (space["PYTHONPATH"], more) if part)
    with tempfile.TemporaryFile("w+") as out:
        began = subprocess.Popen(command, cwd=folder, env=space, stdout=out, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(began.pid, 0)
        began.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    if began.returncode:
        raise RuntimeError(f"{command} ended with {began.returncode}:\n{text}")
    return Ran(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, text)


def compared(name: str, folder: Path, memray: str) -> str:
    """One line of the table."""
    program, python = str(program_of(name)), sys.executable
    told, file = folder / "told.json", folder / f"{name}.bin"
    bare = run([python, program], folder)
    ours = run([python, "-c", WATCH, "watch", "--json", str(told), "--", python, program], folder)
    found = json.loads(told.read_text())
    right = judge(name, Said(found, ours.text))
    dated = any(each["limit_step"] is not None or each["plateau_step"] is not None for each in found["findings"])
    recorded = run([python, "-c", RECORD, program, str(file)], folder, memray)
    read = run([python, "-c", READ, program, str(file)], folder, memray)
    theirs = int(read.text.split()[-1]) == marked_line(name) if growing()[name].line else None
    size = file.stat().st_size
    file.unlink()
    cells = [
        name,
        "".join(mark if ok else "·" for mark, ok in zip("FVO", (right.found, right.verdict, right.owner), strict=True))
        + ("-" if right.line is None else "L" if right.line else "·")
        + ("D" if dated else "·"),
        "-" if theirs is None else "L" if theirs else "·",
        f"{bare.cpu:.1f}",
        f"{ours.cpu:.1f}",
        f"{recorded.cpu:.1f} + {read.cpu:.1f}",
        f"{(ours.peak - bare.peak) / 1e6:.0f}",
        f"{(recorded.peak - bare.peak) / 1e6:.0f}, {read.peak / 1e6:.0f}",
        f"{size / 1e6:.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Prints the table, a line for each program as it ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--memray", required=True, help="folder of the installed memray")
    given = parser.parse_args()
    seen = [name for name in halves()[0] if name in growing()]
    print(
        "| program | watch: found, verdict, owner, line, date | memray: line | CPU s alone | watch | memray, reading "
        "| MB more, watch | memray, reading | capture MB |\n|---|---|---|---|---|---|---|---|---|"
    )
    for name in given.names or seen:
        if missing(name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                print(compared(name, Path(folder), given.memray), flush=True)
            except RuntimeError as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
