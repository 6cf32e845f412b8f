"""Weights by name as an ordinary module, for `state_dict`, `to` and optimisers."""

from collections.abc import Mapping

from torch import Tensor, nn


class NamedWeights(nn.Module):
    """Parameters and buffers in nested modules: `action.0.weight` is the weight of the module `0` in `action`."""

    def __init__(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> None:
        """Register the tensors themselves, without a copy.

        Args:
            parameters: tensors that get gradients, by name.
            buffers: other tensors of the network by name, such as statistics of observations.
        """
        super().__init__()
        for name, tensor in (*parameters.items(), *buffers.items()):
            module: nn.Module = self
            *path, key = name.split(".")
            # Down the path, whose modules are made where they are missing.
            for child in path:
                if child not in dict(module.named_children()):
                    module.add_module(child, nn.Module())
                module = module.get_submodule(child)
            if name in parameters:
                module.register_parameter(key, nn.Parameter(tensor))
            else:
                module.register_buffer(key, tensor)

    def weights_by_name(self) -> dict[str, Tensor]:
        """Return all parameters and buffers by their full names."""
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}
