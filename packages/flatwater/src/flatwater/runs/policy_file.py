"""Reads a policy that was exported to a .safetensors file: `read_policy` rebuilds it from its header and tensors."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from flatwater.named_imports import GIVEN_PERMIT
from flatwater.recipe import find_recipe
from flatwater.runs.trust import request_permit
from flatwater_watch.errors import ConfigError, DataError, FlatwaterError, TrustError
from flatwater_watch.files.json_values import convert_to_type, parse_json
from flatwater_watch.files.output import POLICY_OUTPUTS
from flatwater_watch.sanitize import short_repr

FORMAT = "flatwater-policy-1"
METADATA_KEY = "flatwater"
"""Key of the description of inputs and outputs in the metadata of a .safetensors or .onnx file."""
WEIGHTS_SUFFIX = ".safetensors"


def read_policy(file: Path) -> Any:  # noqa: ANN401  (what a recipe's policy is)
    """Return the policy of a .safetensors file that `flatwater export` wrote.

    Raises:
        ConfigError: the file has another form.
        DataError: the file cannot be read, is damaged, or holds no policy.
    """
    if file.suffix in POLICY_OUTPUTS and file.suffix != WEIGHTS_SUFFIX:
        loader = "torch.export.load" if file.suffix == ".pt2" else "ONNX Runtime"
        raise ConfigError(
            f"{file}: expected a .safetensors file, got a program for {loader}. Export to a "
            ".safetensors file for flatwater.load."
        )
    if file.suffix != WEIGHTS_SUFFIX:
        raise ConfigError(f"{file}: expected the folder of a run, or a {WEIGHTS_SUFFIX} file of flatwater export")
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415  (loaded only where it is used)

    try:
        with safe_open(file, framework="pt") as weights_file:
            description = (weights_file.metadata() or {}).get(METADATA_KEY)
            tensors = {name: weights_file.get_tensor(name) for name in weights_file.keys()}  # noqa: SIM118  (it is not a mapping)
    except OSError as fault:
        raise DataError(f"{file}: cannot be read: {fault.strerror or fault}. Check the path.") from fault
    except SafetensorError as fault:
        raise DataError(f"{file}: not a whole .safetensors file: {fault}. Export it again.") from fault
    if description is None:
        raise DataError(
            f"{file}: was not written by flatwater export: its metadata lacks {METADATA_KEY!r}. Export it again."
        )
    return rebuild_policy(str(file), description, tensors, is_our_file=False)


@dataclass(frozen=True)
class _KnownHeader:
    """The fields that every description in a file must have; other fields are for its readers."""

    format: str
    recipe: str
    header: dict[str, Any]


def rebuild_policy(source: str, description: str, tensors: Mapping[str, Tensor], *, is_our_file: bool) -> Any:  # noqa: ANN401  (what a recipe's policy is)
    """Return the policy that a file's description and tensors define.

    Args:
        source: the file, or words for the origin of both, for messages.
        description: the description, as JSON.
        tensors: the weights by name.
        is_our_file: whether this process made both; a description from elsewhere may name somebody else's code.

    Raises:
        DataError: description and tensors do not fit each other or this version; the message begins with `source`.
        TrustError: the description names code that may be somebody else's.
    """
    try:
        # The text may come from anybody: its types are checked before a name in it is looked up or imported.
        content = parse_json(description.encode())
        if not isinstance(content, dict):
            raise ValueError(f"{short_repr(content)}: expected keys and values")  # noqa: TRY301, TRY004  (told as any other misfit)
        header = convert_to_type({name: content.get(name) for name in ("format", "recipe", "header")}, _KnownHeader)
        if header.format != FORMAT:
            raise ValueError(f"format = {short_repr(header.format)}: expected {FORMAT!r}")  # noqa: TRY301  (caught below, where the file is named)
        settings = header_settings(header.recipe, header.header)
        permit = GIVEN_PERMIT if is_our_file else request_permit(settings, Path(source), extra_values=header.header)
        recipe = find_recipe(header.recipe, permit)
        if recipe.rebuild is None:
            raise ValueError(f"recipe = {short_repr(header.recipe)}: this recipe cannot load a policy")  # noqa: TRY301  (caught below, where the file is named)
        return recipe.rebuild(header.header, tensors)
    except TrustError:
        raise
    except (FlatwaterError, ValueError) as fault:
        raise DataError(f"{source}: does not describe a policy: {fault}. Export it again.") from fault


def header_settings(recipe: str, header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in a header as a run's configuration has them, with the recipe's name as `trainer`."""
    settings = header.get("settings")
    return {**(settings if isinstance(settings, Mapping) else {}), "trainer": recipe}
