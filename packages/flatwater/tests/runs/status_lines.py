"""A console that keeps what its status lines say."""

import io

from rich.console import Console, RenderableType
from rich.status import Status


class StatusLines(Console):
    """A console that keeps each text of its status lines."""

    def __init__(self) -> None:
        super().__init__(file=io.StringIO(), width=200)
        self.kept: list[str] = []

    def status(self, status: RenderableType, **_: object) -> Status:  # type: ignore[override]
        return KeptStatus(status, console=self)


class KeptStatus(Status):
    """A status line that its console keeps each text of."""

    def update(self, status: RenderableType | None = None, **_: object) -> None:  # type: ignore[override]
        self.console.kept.append(str(status))  # type: ignore[attr-defined]
