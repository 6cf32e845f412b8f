"""Panels of a terminal dashboard that are replaced with each refresh, and watch the application.

Thread: https://github.com/Textualize/textual/issues/6666
Looks like: memory climbs with the panels that were ever shown, although the screen holds one.
Fix: let the application tell its panel, or keep one panel and update it.
"""

import asyncio
import sys

from textual.app import App
from textual.widgets import Static


class Panel(Static):
    def __init__(self, number: int) -> None:
        super().__init__(f"refresh {number}")
        self.rows = [f"{number}: host {n} answers" for n in range(20_000)]  # <- here

    def on_mount(self) -> None:
        self.watch(self.app, "title", self.retitle)

    def retitle(self, title: str) -> None:
        self.border_title = f"{title}: {len(self.rows)} hosts"


async def show(rounds: int) -> None:
    dashboard: App[None] = App()
    async with dashboard.run_test() as pilot:
        for number in range(rounds):
            await dashboard.screen.remove_children(Panel)
            await dashboard.mount(Panel(number))
            await pilot.pause(0.13)


def main(rounds: int) -> None:
    asyncio.run(show(rounds))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
