"""A warm start: a new run takes the weights of another one, and nothing else of it."""

from collections.abc import Collection
from typing import Any

from torch import Tensor

from flatwater.checkpoints.catalogue import newest_intact
from flatwater.checkpoints.reader import LeavesDifferError, list_lines, restore_state_
from flatwater.mirror.download import open_run_folder
from flatwater.state.tree import leaves
from flatwater_watch.errors import CheckpointError, ConfigError
from flatwater_watch.sanitize import short_repr


def take_weights_(root: Any, weights: Collection[Tensor], place: str) -> str:  # noqa: ANN401  (a state tree)
    """Write the weights of another run's newest checkpoint into a state; return a sentence that says which they are.

    Args:
        root: the state of a new run.
        weights: leaves of the state that are weights of networks, or statistics by which their inputs are normalised.
        place: folder of the other run, or the URL at which it is mirrored.

    Raises:
        ConfigError: the run has no weights, or those of the other run have other names or shapes.
        CheckpointError: the other run has no intact checkpoint.
    """
    ids = {id(weight) for weight in weights}
    own_values = {leaf.path: leaf.value for leaf in leaves(root) if id(leaf.value) in ids}
    setting = f"from_run = {short_repr(place)}"
    if not own_values:
        raise ConfigError(
            f"{setting}: this recipe does not say which leaves are weights (`Run.weights`). Leave it out."
        )
    with open_run_folder(place, lambda _: None, shards=True) as folder:
        checkpoint = newest_intact(folder.checkpoints, say=lambda _: None)
        if checkpoint is None:
            raise CheckpointError(f"{setting}: no checkpoint of this run is intact. Give another run.")
        try:
            restore_state_(own_values, checkpoint, below="")
        except LeavesDifferError as error:
            raise ConfigError(
                f"{setting}: the weights there do not fit this run:{list_lines(error.lines)}\n"
                "Give this run the networks, observations and actions of the other (see its config.toml)."
            ) from error
    return f"it begins with the weights of {place} after round {checkpoint.manifest.round}: {', '.join(own_values)}"
