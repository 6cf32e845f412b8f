"""The seeds of a group of runs, in `seeds.json` of the group's folder, and the folders of its runs."""

from pathlib import Path

from flatwater.rundir.layout import RunFolder
from flatwater_watch.errors import RunError
from flatwater_watch.files.json_values import convert_to_type, parse_json
from flatwater_watch.files.regular_files import read_regular

MAXIMUM_BYTES = 1 << 16
"""Most bytes that are read of the file."""
MAXIMUM_RUNS = 2000
"""Most runs of a group, whose seeds fit into `MAXIMUM_BYTES`."""


def read_seeds(folder: RunFolder) -> list[int]:
    """Return the seeds of a group, in the order of its runs; empty if the folder is not a group.

    Raises:
        RunError: the file is damaged.
    """
    try:
        return convert_to_type(parse_json(read_regular(folder.seeds, MAXIMUM_BYTES, follow_links=False)), list[int])
    except (FileNotFoundError, NotADirectoryError):  # callers may pass the path of a file
        return []
    except (OSError, ValueError) as error:
        raise RunError(f"{folder.with_current_name.seeds}: is damaged: {error}. Restore the file.") from error


def seed_folder(group: Path, seed: int) -> RunFolder:
    """Return the folder of the run with a seed."""
    return RunFolder(group / f"seed-{seed}")


def begun_runs(group: Path) -> list[Path]:
    """Return the folders of a group's runs that were started; empty if the folder is not a group."""
    runs = [seed_folder(group, seed) for seed in read_seeds(RunFolder(group))]
    return [run.path for run in runs if run.config.is_file()]
