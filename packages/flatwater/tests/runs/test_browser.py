"""Every page in a real browser, on phone and desk, light and dark: nothing scrolls sideways, every chart is drawn."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_runs import TINY, TINY_GROW, TINY_PPO, TINY_TEACH

from flatwater.cli.main import main

pytestmark = pytest.mark.slow

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LONG = "synthetic:6x260:law=interaction:context_instruments=1:signal=0.12:signal_days=20"
"""A panel whose name is wider than a phone."""
RUNS = {
    "erl": ("erl", *TINY, "--rounds", "3"),
    "erl-other": ("erl", *TINY[2:], "--panel", LONG, "--rounds", "3"),
    "one-round": ("erl", *TINY, "--rounds", "1"),
    "ppo": ("ppo", *TINY_PPO, "--rounds", "3"),
    "grow": ("grow", *TINY_GROW, "--rounds", "3"),
    "teach": ("teach", *TINY_TEACH, "--rounds", "3"),
}
LEAK = """
import time
kept = []
for step in range(60):
    kept.append(bytearray(400_000))
    time.sleep(0.05)
"""
SEEN = """() => ({
    width: document.documentElement.scrollWidth,
    charts: document.querySelectorAll("[data-chart]").length,
    empty: [...document.querySelectorAll("[data-chart]")].filter((plot) => !plot.querySelector(
        ".main-svg .trace, .main-svg .bars path, .main-svg .scatterlayer path, .main-svg .heatmaplayer image")).length,
})"""
"""What a page is asked for."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each kind of page, made by its command."""
    folder = tmp_path_factory.mktemp("a-folder-with-a-name-that-is-far-too-long-for-the-screen-of-any-phone")
    for name, (recipe, *options) in RUNS.items():
        assert main(["train", recipe, *options, "--quiet", "--run", str(folder / name)]) == 0
        assert main(["report", str(folder / name)]) == 0
    found = {name: folder / name / "report.html" for name in RUNS}
    found["compare"], found["runs"], found["watch"] = (folder / f"{name}.html" for name in ("compare", "runs", "watch"))
    assert main(["compare", str(folder / "erl"), str(folder / "erl-other"), "--page", str(found["compare"])]) == 0
    assert main(["runs", str(folder), "--page", str(found["runs"])]) == 0
    (folder / "leak.py").write_text(LEAK)
    assert main(["watch", "--html", str(found["watch"]), "--", str(folder / "leak.py")]) == 0
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium of the system, driven by playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_each_page_fits_says_nothing_and_draws_every_chart(
    pages: dict[str, Path], browser: Any, width: int, theme: str, tmp_path: Path
) -> None:
    """Pictures of all of them are left in the test's folder, to be looked at."""
    wrong = {}
    for name, file in pages.items():
        context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=theme)
        page, said = context.new_page(), list[str]()
        page.on("console", lambda message, said=said: said.append(message.text))
        page.on("pageerror", lambda fault, said=said: said.append(str(fault)))
        page.goto(file.as_uri())
        page.wait_for_timeout(300)
        seen = page.evaluate(SEEN)
        page.screenshot(path=tmp_path / f"{name}-{width}-{theme}.png", full_page=True)
        context.close()
        if said or seen["width"] > width or seen["empty"]:
            wrong[name] = (said, seen)
    assert not wrong
