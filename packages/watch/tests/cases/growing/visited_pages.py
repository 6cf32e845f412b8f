"""A browser that is used for one page after another keeps each of them, to be able to go back.

Thread: https://github.com/jmcarp/robobrowser/issues/74
Looks like: a poller grows by the size of a page each time, although it reads the page and drops it.
Fix: call `browser.clear_history()` now and then, or give it a history that keeps nothing.
"""

import sys
import tempfile
import time
from pathlib import Path

import mechanize


def main(rounds: int) -> None:
    page = Path(tempfile.mkdtemp()) / "page.html"
    page.write_text("<html><title>Rates</title><body>" + "<p>1.0837 and so on</p>" * 40_000 + "</body></html>")
    browser = mechanize.Browser()
    browser.set_handle_robots(False)
    for _ in range(rounds):
        browser.open(page.as_uri()).read()  # <- here
        time.sleep(0.12)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
