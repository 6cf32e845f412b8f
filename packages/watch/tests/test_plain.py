"""The plain programs of `bench_plain.py`: each runs, and its table knows the line and the name that are wanted."""

import runpy
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[3] / "benchmarks" / "watch" / "bench_plain.py"
EACH = "import sys; sys.path.append(sys.argv[1]); import holding; [holding.run(name, 0.02) for name in sys.argv[2:]]"


def test_each_program_runs_and_has_a_marked_line() -> None:
    bench = runpy.run_path(str(BENCH), run_name="bench_plain")
    holding, source = bench["holding"], bench["SOURCE"]
    names = [*holding.PAIRS, *holding.WAYS]
    assert len(set(names)) == len(names) > 60
    assert all(holding.MARK in source[bench["marked_line"](name) - 1] for name in names)
    assert {*holding.VERDICTS, *holding.OWNERS} <= {name.partition(":")[0] for name in names}
    ended = subprocess.run(
        [sys.executable, "-c", EACH, str(Path(holding.__file__).parent), *names],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
