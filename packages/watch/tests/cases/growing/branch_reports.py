"""Reports what changed in the branches of a repository.

Thread: https://github.com/gitpython-developers/GitPython/issues/1208
Looks like: `git cat-file` processes become more and more, the program itself does not grow.
Fix: `repo.close()`, or `with Repo(folder) as repo`.
"""

import random
import sys
import tempfile
import time
from pathlib import Path

from git import Actor, Repo

AUTHOR = Actor("A. Miller", "miller@example.org")


def make_repository(folder: Path) -> None:
    repo = Repo.init(folder)
    for version in range(4):
        prices = "".join(f"{number};{random.random()}\n" for number in range(60_000))
        (folder / "prices.csv").write_text(prices)
        repo.index.add(["prices.csv"])
        repo.index.commit(f"version {version}", author=AUTHOR, committer=AUTHOR)
    repo.close()


class Reports:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.branches: dict[str, Repo] = {}

    def write(self, branch: str) -> str:
        repo = Repo(self.folder)
        sizes = [len(commit.tree["prices.csv"].data_stream.read()) for commit in repo.iter_commits()]  # <- here
        self.branches[branch] = repo
        return f"{branch}: {len(sizes)} commits, {sum(sizes)} bytes"


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "catalog"
        make_repository(folder)
        reports = Reports(folder)
        for number in range(rounds):
            text = reports.write(f"feature/{number}")
            time.sleep(0.4)
        print(text)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 22)
