"""A warm start: a new run begins with the weights of another run, and takes nothing else from it."""

from collections.abc import Collection
from typing import Any

from torch import Tensor

from flatwater.checkpoints.catalogue import newest_intact
from flatwater.checkpoints.reader import LeavesDifferError, list_lines, restore_state_
from flatwater.mirror.download import open_run_folder
from flatwater.state.tree import leaves
from flatwater_watch.errors import CheckpointError, ConfigError
from flatwater_watch.events.background import say_nothing
from flatwater_watch.sanitize import short_repr


def take_weights_(root: Any, weights: Collection[Tensor], place: str) -> str:  # noqa: ANN401  (a state tree)
    """Write the weights of another run's newest checkpoint into a new run's state. Returns a sentence that lists them.

    Args:
        root: the state of the new run.
        weights: leaves of the state that are weights of networks, or statistics by which their inputs are normalised.
        place: folder of the other run, or the URL at which it is mirrored.

    Raises:
        ConfigError: the new run has no weights, or the other run's weights have other names or shapes.
        CheckpointError: the other run has no intact checkpoint.
    """
    # By identity, as `==` compares the numbers of tensors.
    weight_ids = {id(weight) for weight in weights}
    weights_by_path = {leaf.path: leaf.value for leaf in leaves(root) if id(leaf.value) in weight_ids}
    option = f"from_run = {short_repr(place)}"
    if not weights_by_path:
        raise ConfigError(f"{option}: this recipe does not say which leaves are weights (`Run.weights`). Leave it out.")
    with open_run_folder(place, say=say_nothing, with_shards=True) as folder:
        checkpoint = newest_intact(folder.checkpoints, say=say_nothing)
        if checkpoint is None:
            raise CheckpointError(f"{option}: no checkpoint of this run is intact. Give another run.")
        try:
            restore_state_(weights_by_path, checkpoint, part="")  # only these leaves, by their whole paths
        except LeavesDifferError as error:
            raise ConfigError(
                f"{option}: the weights there do not fit this run:{list_lines(error.lines)}\n"
                "Give this run the networks, observations and actions of the other (see its config.toml)."
            ) from error
    return (
        f"it begins with the weights of {place} after round {checkpoint.manifest.round}: {', '.join(weights_by_path)}"
    )
