"""Rewrite the asserts of all tests, on all cores, and keep the bytecode where pytest looks for it.

Each worker of pytest would rewrite all of them otherwise, at the same time as the others: 20 CPU seconds a worker.
"""

from multiprocessing import Pool
from pathlib import Path

from _pytest.assertion import rewrite as rewriting  # pytest has no public function for it

ROOT = Path(__file__).parents[1]
PATTERNS = ("test_*.py", "conftest.py")


def rewrite_file(file: Path) -> None:
    """Write the bytecode of a file of tests with its asserts rewritten."""
    source_hash, code = rewriting._rewrite_test(file, None)  # type: ignore[arg-type]  # noqa: SLF001  (no options)
    folder = rewriting.get_cache_dir(file)
    folder.mkdir(exist_ok=True)
    pyc = folder / f"{file.stem}{rewriting.PYC_TAIL}"
    rewriting._write_pyc(None, code, source_hash, pyc)  # type: ignore[arg-type]  # noqa: SLF001  (None: nobody reads its traces)


if __name__ == "__main__":
    folders = [ROOT / "tests", *ROOT.glob("packages/*/tests")]
    with Pool() as pool:
        pool.map(rewrite_file, [file for folder in folders for pattern in PATTERNS for file in folder.rglob(pattern)])
