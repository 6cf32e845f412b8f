"""A trained policy as one file, without its run: the same content in three forms, each compared with the original.

- `.pt2`: a program that torch alone can run (torch.export).
- `.onnx`: a program that ONNX Runtime and its like can run.
- `.safetensors`: weights by name, with a header from which `flatwater.load` rebuilds the policy.

Every form holds a JSON description of its inputs and outputs.
"""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from flatwater import __version__
from flatwater.memory.planner import Plan, refuse
from flatwater.named_imports import GIVEN
from flatwater.recipe import find_recipe
from flatwater.runs.planning import META, phase_bytes, planned_use
from flatwater.runs.trust import named_code, remember_trust, request_permit
from flatwater_watch.errors import ConfigError, DataError, FlatwaterError, RunError, TrustError
from flatwater_watch.files.content import convert_to, parse_json
from flatwater_watch.files.output import POLICY_OUTPUTS, check_output, replace_output
from flatwater_watch.meters.torch_ops import peak_bytes
from flatwater_watch.sanitize import short_repr

_log = logging.getLogger(__name__)

FORMAT = "flatwater-policy-1"
ABOUT_FILE = "about.json"
"""Name of the description of inputs and outputs inside of a .pt2 file."""
METADATA_KEY = "flatwater"
"""Key of the same description in the metadata of the other two forms."""
MAXIMUM_ROWS = 4096
"""Most rows that can be asked for in one call of a program."""
WEIGHTS_SUFFIX = ".safetensors"
MAXIMUM_DIFFERENCE = 1e-5
"""Largest difference between the written and the trained policy, relative to numbers above 1."""
TRACED_ROWS, COMPARED_ROWS = 3, 2
"""Rows of the examples: a program that knew only the first number would fail on the second. The numbers are small, as
a row of a trader is a window of the whole market, 19 MB of 669 columns and 504 days."""
LOAD_PHASE, EXPORT_PHASE = "load", "export"
"""Names of the phases of an export: loading the policy from its run, and writing it."""
COPIES_IN_MEMORY = 5
"""Copies of the weights in the whole of an export: named, packed, handed over, read again, and rebuilt to be run."""
LIBRARY_BYTES: Mapping[str, int] = {".pt2": 90 << 20, ".onnx": 400 << 20, WEIGHTS_SUFFIX: 4 << 20}
"""Bytes that the packages of a form load: 73 and 3 MB were measured of .pt2 and weights; .onnx is a guess."""


@dataclass(frozen=True, kw_only=True)
class PolicyExport:
    """A policy without its run: every form of a file is made from it."""

    recipe: str
    """Name of the recipe by which it was trained, and is rebuilt."""
    module: nn.Module
    """Module from tensors to one tensor or a tuple, on the CPU."""
    example: Callable[[int], tuple[Tensor, ...]]
    """Returns inputs of that number of rows."""
    axes: tuple[int, ...]
    """Axis of the rows in each input."""
    inputs: Mapping[str, str]
    """Type, shape and meaning of each input by name, in their order."""
    outputs: Mapping[str, str]
    meaning: Mapping[str, Any]
    """Further facts about the numbers, for readers of the file."""
    header: Mapping[str, Any]
    """Plain values from which, with the tensors, the recipe rebuilds the policy."""
    tensors: Mapping[str, Tensor]
    loading_bytes: int = 0
    """Bytes that loading the policy from its run has taken at its highest, if that is more than the policy holds."""
    measure_forward: bool = False
    """Whether a row of its inputs is so large that its memory is tried out first, on the meta device."""

    @property
    def about(self) -> dict[str, Any]:
        """Description of the file for its readers."""
        writer = {"format": FORMAT, "flatwater": __version__, "recipe": self.recipe}
        return writer | {"inputs": dict(self.inputs), "outputs": dict(self.outputs), **self.meaning}


class ExportablePolicy(Protocol):
    """A policy as `flatwater.load` gives it."""

    def to_export(self) -> PolicyExport:
        """Return the policy without its run."""


RunProgram = Callable[..., tuple[Tensor, ...]]
"""A program: from inputs to a tuple of outputs."""


def plan_export(policy: PolicyExport, suffix: str, budget: str | None) -> Plan:
    """Return the plan of writing a policy in one of `FORMS`, and of running the written program in addition.

    Args:
        policy: the policy.
        suffix: the form.
        budget: memory that may be taken; left out, 90 % of the tightest limit.

    Raises:
        ConfigError: the budget is not an amount of memory.
    """
    weights = sum(tensor.nbytes for tensor in policy.tensors.values())
    example = policy.example(1)
    example_bytes = (TRACED_ROWS + COMPARED_ROWS) * sum(each.nbytes for each in example)
    compared = _meta_forward(policy, example) if policy.measure_forward else lambda: None
    phases = phase_bytes(
        lambda: {LOAD_PHASE: 0, EXPORT_PHASE: peak_bytes(compared)},
        {LOAD_PHASE: policy.loading_bytes}
        | {EXPORT_PHASE: COPIES_IN_MEMORY * weights + example_bytes + LIBRARY_BYTES[suffix]},
    )
    return planned_use(EXPORT_PHASE, {"policy.weights": weights}, phases, budget=budget)


def _meta_forward(policy: PolicyExport, example: tuple[Tensor, ...]) -> Callable[[], object]:
    """Return a call of the module on `COMPARED_ROWS` rows of the meta device, to be measured; it computes nothing."""
    # The result is called in a fork, in which torch's threads are gone: a large tensor that is copied there waits for
    # them forever. So the module is copied here, before the fork; on the meta device nothing is allocated.
    module = deepcopy(policy.module).to(META)
    shapes = [[*tensor.shape] for tensor in example]
    for shape, axis in zip(shapes, policy.axes, strict=True):
        shape[axis] = COMPARED_ROWS
    rows = [torch.empty(shape, dtype=tensor.dtype, device=META) for shape, tensor in zip(shapes, example, strict=True)]

    def run() -> None:
        with torch.no_grad():
            module(*rows)

    return run


def export(policy: ExportablePolicy, file: Path, budget: str | None = None) -> float:
    """Write a policy as one file, whole or not at all, once the program in it has been run.

    Args:
        policy: a policy of `flatwater.load`.
        file: place of the file; its suffix names the form, one of `FORMS`.
        budget: memory that it may take; left out, 90 % of the tightest limit.

    Returns:
        The largest difference between both on random inputs, relative to numbers above 1.

    Raises:
        ConfigError: there is no such form, the form cannot hold this policy, or a package for it is missing.
        RunError: the difference is too large, or the file cannot be written.
        MemoryLimitError: the export would need more memory than it may take.
    """
    if file.suffix not in FORMS:
        raise ConfigError(f"{file}: expected a name that ends in {' or '.join(FORMS)}.")
    check_output("to =", file, POLICY_OUTPUTS[file.suffix])
    policy_export = policy.to_export()
    # Refused here, before the exporter's libraries are loaded: they are a part of what is planned.
    refuse(plan_export(policy_export, file.suffix, budget))
    with torch.no_grad(), _silence_exporter():
        content, rerun = FORMS[file.suffix](policy_export)
        inputs = policy_export.example(COMPARED_ROWS)  # other inputs than those that the form was traced with
        difference = _difference(_to_tuple(policy_export.module(*inputs)), rerun(*inputs))
    if not difference <= MAXIMUM_DIFFERENCE:  # `not <=`, so that NaN is refused as well
        raise RunError(
            f"{file}: the exported policy differs from the trained policy by {difference:.1g}, more than "
            f"{MAXIMUM_DIFFERENCE:g}, so it was not written. Export to .safetensors, which has the exact weights."
        )
    replace_output(file, content, POLICY_OUTPUTS[file.suffix])
    settings = _header_settings(policy_export.recipe, policy_export.header)
    if file.suffix == WEIGHTS_SUFFIX and (codes := named_code(settings, file)):
        remember_trust(settings, file, codes, _log.warning, extra_values=policy_export.header)
    return difference


def _header_settings(recipe: str, header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a header holds, in the form of a run's configuration."""
    settings = header.get("settings")
    return {**(settings if isinstance(settings, Mapping) else {}), "trainer": recipe}


def _difference(expected: tuple[Tensor, ...], actual: tuple[Tensor, ...]) -> float:
    """Return the largest difference of both, relative to `expected` where that is above 1."""
    # In float64: the difference must not be rounded by the type in which it is measured.
    parts = zip(expected, actual, strict=True)
    return max(float(((a.double() - b.double()).abs() / a.double().abs().clamp(min=1)).max()) for a, b in parts)


def _to_tuple(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (result,) if isinstance(result, Tensor) else tuple(result)


def _trace_program(policy: PolicyExport) -> torch.export.ExportedProgram:
    """Return the traced program of the module, for any number of rows."""
    rows = torch.export.Dim("rows", min=1, max=MAXIMUM_ROWS)
    shapes = tuple({axis: rows} for axis in policy.axes)
    return torch.export.export(policy.module.eval(), policy.example(TRACED_ROWS), dynamic_shapes=shapes)


def _write_program(policy: PolicyExport) -> tuple[bytes, RunProgram]:
    """Return the policy as the bytes of a .pt2 file, and a call of the program that is loaded from these."""
    content = io.BytesIO()
    torch.export.save(_trace_program(policy), content, extra_files={ABOUT_FILE: json.dumps(policy.about, indent=1)})
    program = torch.export.load(io.BytesIO(content.getvalue())).module()
    return content.getvalue(), lambda *arguments: _to_tuple(program(*arguments))


def _write_onnx(policy: PolicyExport) -> tuple[bytes, RunProgram]:
    """Return the policy as the bytes of an .onnx file, and a call that runs these in ONNX Runtime, to be compared.

    Raises:
        ConfigError: the package of ONNX is missing, or the policy has an operation that torch cannot export.
    """
    try:
        import onnxruntime  # noqa: PLC0415  (an extra of the package)
        import onnxscript  # noqa: F401, PLC0415  (torch wants it)
    except ImportError as missing:
        raise ConfigError(
            f"an .onnx file needs the package {missing.name}. Install it with: pip install 'flatwater[onnx]'"
        ) from missing
    input_names, output_names = [*policy.inputs], [*policy.outputs]
    try:
        onnx_program = torch.onnx.export(
            _trace_program(policy), (), dynamo=True, verbose=False, input_names=input_names, output_names=output_names
        )
    except torch.onnx.errors.OnnxExporterError as fault:
        raise ConfigError(
            "the policy has an operation that torch cannot export to ONNX. Export to .pt2 or .safetensors."
        ) from fault
    assert onnx_program is not None  # noqa: S101  (for the type checker: only the older exporter returns nothing)
    proto = onnx_program.model_proto
    entry = proto.metadata_props.add()
    entry.key, entry.value = METADATA_KEY, json.dumps(policy.about)
    content: bytes = proto.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def run_session(*given: Tensor) -> tuple[Tensor, ...]:
        arrays = {name: each.numpy() for name, each in zip(input_names, given, strict=True)}
        return tuple(torch.from_numpy(each) for each in session.run(output_names, arrays))

    return content, run_session


def _write_weights(policy: PolicyExport) -> tuple[bytes, RunProgram]:
    """Return the policy as a .safetensors file's bytes, and a call of the policy that is rebuilt from these bytes."""
    from safetensors.torch import load, save  # noqa: PLC0415  (one home)

    header = json.dumps(policy.about | {"header": dict(policy.header)})
    # A copy: safetensors refuses tensors that share storage.
    tensors = {name: tensor.contiguous().clone() for name, tensor in policy.tensors.items()}
    content: bytes = save(tensors, metadata={METADATA_KEY: header})
    module = rebuild_policy("the exported policy", header, load(content), is_our_file=True).to_export().module
    return content, lambda *given: _to_tuple(module(*given))


FORMS: Mapping[str, Callable[[PolicyExport], tuple[bytes, RunProgram]]] = {
    ".pt2": _write_program,
    ".onnx": _write_onnx,
    WEIGHTS_SUFFIX: _write_weights,
}
"""For each suffix, a function that returns the file's content and a program that runs it."""


def read_policy(file: Path) -> Any:  # noqa: ANN401  (what a recipe's policy is)
    """Return the policy of a .safetensors file that `flatwater export` wrote.

    Raises:
        ConfigError: the file has another form.
        DataError: the file cannot be read, is damaged, or holds no policy.
    """
    if file.suffix in FORMS and file.suffix != WEIGHTS_SUFFIX:
        runs = "torch.export.load" if file.suffix == ".pt2" else "ONNX Runtime"
        raise ConfigError(
            f"{file}: expected a .safetensors file, got a program for {runs}. Export to a "
            ".safetensors file for flatwater.load."
        )
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415  (one home)

    try:
        with safe_open(file, framework="pt") as weights_file:
            about = (weights_file.metadata() or {}).get(METADATA_KEY)
            tensors = {name: weights_file.get_tensor(name) for name in weights_file.keys()}  # noqa: SIM118  (it is not a mapping)
    except OSError as fault:
        raise DataError(f"{file}: cannot be read: {fault.strerror or fault}. Check the path.") from fault
    except SafetensorError as fault:
        raise DataError(f"{file}: not a whole .safetensors file: {fault}. Export it again.") from fault
    if about is None:
        raise DataError(
            f"{file}: was not written by flatwater export: its metadata lacks {METADATA_KEY!r}. Export it again."
        )
    return rebuild_policy(str(file), about, tensors, is_our_file=False)


@dataclass(frozen=True)
class _KnownHeader:
    """Fields that every header must have."""

    format: str
    recipe: str
    header: dict[str, Any]


def rebuild_policy(source: str, about: str, tensors: Mapping[str, Tensor], *, is_our_file: bool) -> Any:  # noqa: ANN401  (what a recipe's policy is)
    """Return the policy that a header and its tensors describe.

    Args:
        source: words for their source, for messages.
        about: the header, as JSON.
        tensors: the weights by name.
        is_our_file: whether this process has made them; a header from a file may name somebody else's code.

    Raises:
        DataError: header and tensors do not fit each other or this version; the message begins with `source`.
        TrustError: the header names code that may be somebody else's.
    """
    try:
        # The text may come from anybody: it is parsed and held to
        # types before a name in it is looked up, let alone imported.
        content = parse_json(about.encode())
        if not isinstance(content, dict):
            raise ValueError(f"{short_repr(content)}: expected keys and values")  # noqa: TRY301, TRY004  (told as any other misfit)
        header = convert_to({name: content.get(name) for name in ("format", "recipe", "header")}, _KnownHeader)
        if header.format != FORMAT:
            raise ValueError(f"format = {short_repr(header.format)}: expected {FORMAT!r}")  # noqa: TRY301  (caught below, where the file is named)
        settings = _header_settings(header.recipe, header.header)
        recipe = find_recipe(
            header.recipe, GIVEN if is_our_file else request_permit(settings, Path(source), extra_values=header.header)
        )
        if recipe.rebuild is None:
            raise ValueError(f"recipe = {short_repr(header.recipe)}: this recipe cannot load a policy")  # noqa: TRY301  (caught below, where the file is named)
        return recipe.rebuild(header.header, tensors)
    except TrustError:
        raise
    except (FlatwaterError, ValueError) as fault:
        raise DataError(f"{source}: does not describe a policy: {fault}. Export it again.") from fault


@contextmanager
def _silence_exporter() -> Iterator[None]:
    """Silence messages of torch's exporters to their developers; loggers and filters are the whole process's."""
    logs = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels_before = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in zip(logs, levels_before, strict=True):
            log.setLevel(level)
