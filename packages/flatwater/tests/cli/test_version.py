"""`flatwater version`: what the numbers of a run depend on, on this machine."""

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from flatwater import __version__
from flatwater.cli.main import main
from flatwater.runs.fingerprint import version_facts
from flatwater_watch.meters.process import cpu_model

WITHOUT_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("no torch here", name="torch")

sys.meta_path.insert(0, NoTorch())
from flatwater.cli.main import main
sys.exit(main(["--version"]))
"""


@pytest.mark.parametrize("words", [["version"], ["--version"]])
def test_the_version_and_what_numbers_depend_on(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    said = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert list(said) == ["flatwater", "torch", "python", "arithmetic", "cpu", "gpu", "system"]
    assert {name: said[name] for name in version_facts()} == version_facts()
    assert said["cpu"].startswith(cpu_model())
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == said


def test_without_torch_the_rest_is_told() -> None:
    said = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[0].split() == ["flatwater", __version__]
    assert "(torch is missing)" in said


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("processor\t: 0\nmodel name\t: A  chip\n\nprocessor\t: 1\nmodel name\t: A  chip\n", "A chip"),
        ("processor : 0\nBogoMIPS : 50\nHardware : Board\n", "Board"),
        ("", platform.machine()),
    ],
)
def test_the_name_of_the_processor(text: str, model: str, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert cpu_model(tmp_path / "cpuinfo") == model
