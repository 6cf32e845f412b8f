"""Weights under their names as an ordinary module: `state_dict`, `to` and optimisers know each by its name."""

from collections.abc import Mapping

from torch import Tensor, nn


class NamedWeights(nn.Module):
    """Parameters and buffers in nested modules: `action.0.weight` is the weight of the module `0` in `action`."""

    def __init__(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> None:
        """Hold tensors as they are, without a copy.

        Args:
            parameters: tensors that get gradients, by name.
            buffers: other tensors of the network by name, such as statistics of observations.
        """
        super().__init__()
        for name, tensor in (*parameters.items(), *buffers.items()):
            home: nn.Module = self
            *path, last = name.split(".")
            for part in path:
                if part not in dict(home.named_children()):
                    home.add_module(part, nn.Module())
                home = home.get_submodule(part)
            if name in parameters:
                home.register_parameter(last, nn.Parameter(tensor))
            else:
                home.register_buffer(last, tensor)

    def weights_by_name(self) -> dict[str, Tensor]:
        """Return all by name, as the networks here take them."""
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}
