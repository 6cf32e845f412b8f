"""Pages of a wiki whose writers may bring plugins of their own, which are loaded for each visit.

Thread: https://github.com/mitsuhiko/pluginbase/issues/6
Looks like: the wiki grows with each visit of a page that has plugins.
Cause: a source of plugins keeps its modules in `sys.modules` until `cleanup()`.
Fix: `source.cleanup()` when the page is drawn, or one source for a page.
"""

import sys
import tempfile
import time
from pathlib import Path

from pluginbase import PluginBase

plugins = PluginBase(package="wiki_plugins")


def write_plugins(folder):
    for number in range(6):
        lines = [f"TEXTS = [str(n) * 20 for n in range({number}, 600)]"]
        lines += ["def draw(text):", "    return text + TEXTS[7]"]
        (folder / f"plugin_{number}.py").write_text("\n".join(lines))


def draw_page(page, folder):
    source = plugins.make_plugin_source(searchpath=[str(folder)], identifier=page, persist=True)
    text = page
    for name in source.list_plugins():
        text = source.load_plugin(name).draw(text)  # <- here
    return len(text)


def main(visits: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_plugins(Path(folder))
        letters = 0
        for number in range(visits):
            letters = draw_page(f"visit-{number}", Path(folder))
            time.sleep(0.04)
    print("letters of the last page:", letters)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 250)
