"""Settings of the tracker of Weights & Biases."""

from typing import Literal

from flatwater_watch.errors import require
from flatwater_watch.options.declare import config


@config
class WandbConfig:
    """The place in Weights & Biases, if `trackers` has `wandb`."""

    project: str = "flatwater"
    """Project that the run is shown in; made if it does not exist."""
    entity: str | None = None
    """User or team that the project belongs to. Left out: that of the API key."""
    mode: Literal["online", "offline"] = "online"
    """`offline` sends nothing: the numbers are kept in the run folder until `wandb sync` is called for them."""

    def __post_init__(self) -> None:
        require(self.project != "", "wandb.project", self.project, "a name")
