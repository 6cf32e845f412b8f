"""Exports a trained policy as one file, without its run, in one of three forms; the file is tested before it is kept.

- `.pt2`: a program that torch alone can run (torch.export).
- `.onnx`: a program that ONNX Runtime and its like can run.
- `.safetensors`: weights by name, with a header from which `flatwater.load` rebuilds the policy.

Every form holds a JSON description of its inputs and outputs. `plan_export` plans the memory of an export;
`policy_file.py` reads a .safetensors file again.
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
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from flatwater import __version__
from flatwater.memory.planner import Plan, require_fit
from flatwater.runs.phase_measurement import phase_bytes
from flatwater.runs.planning import META, plan_policy_use
from flatwater.runs.policy_file import FORMAT, METADATA_KEY, WEIGHTS_SUFFIX, header_settings, rebuild_policy
from flatwater.runs.trust import list_named_code, remember_trust
from flatwater_watch.errors import ConfigError, RunError
from flatwater_watch.files.output import POLICY_OUTPUTS, check_output, replace_output
from flatwater_watch.meters.torch_ops import peak_bytes

_log = logging.getLogger(__name__)

ABOUT_FILE = "about.json"
"""Name of the description of inputs and outputs inside of a .pt2 file."""
MAXIMUM_ROWS = 4096
"""Most rows of observations in one call of an exported program."""
MAXIMUM_DIFFERENCE = 1e-5
"""Largest difference between the written and the trained policy, relative to numbers above 1."""
TRACED_ROWS, COMPARED_ROWS = 3, 2
"""Rows of the inputs with which a program is traced, and tested. They differ, so that a program which has the number of
rows built in fails the test. They are small, as a row of a trader has 19 MB: 504 days of 669 columns."""
LOAD_PHASE, EXPORT_PHASE = "load", "export"
"""Names of the phases of an export: loading the policy from its run, and writing it."""
COPIES_IN_MEMORY = 5
"""Copies of the weights that an export holds: tensors by name, file content, its copy, read again, and rebuilt."""
LIBRARY_BYTES: Mapping[str, int] = {".pt2": 90 << 20, ".onnx": 400 << 20, WEIGHTS_SUFFIX: 4 << 20}
"""Bytes of the libraries that a form loads: 73 MB were measured for .pt2 and 3 MB for weights; .onnx is a guess."""


@dataclass(frozen=True, kw_only=True)
class PolicyExport:
    """A policy without its run: every form of a file is made from it."""

    recipe: str
    """Name of the recipe by which it was trained, and is rebuilt."""
    module: nn.Module
    """Module from tensors to one tensor or a tuple, on the CPU."""
    example: Callable[[int], tuple[Tensor, ...]]
    """Returns random inputs of a given number of rows."""
    axes: tuple[int, ...]
    """For each input, the axis of its rows."""
    inputs: Mapping[str, str]
    """Type, shape and meaning of each input by name, in the order of the module's arguments."""
    outputs: Mapping[str, str]
    meaning: Mapping[str, Any]
    """Further facts about the numbers, for readers of the file."""
    header: Mapping[str, Any]
    """Plain values from which, with the tensors, the recipe rebuilds the policy."""
    tensors: Mapping[str, Tensor]
    loading_bytes: int = 0
    """Peak bytes of loading the policy from its run, if that is more than the policy holds."""
    measure_forward: bool = False
    """Whether the plan includes the memory of a forward pass, measured on the meta device: some inputs are large."""

    @property
    def description(self) -> dict[str, Any]:
        """Description of the file for its readers."""
        writer = {"format": FORMAT, "flatwater": __version__, "recipe": self.recipe}
        return writer | {"inputs": dict(self.inputs), "outputs": dict(self.outputs), **self.meaning}


class ExportablePolicy(Protocol):
    """A policy as `flatwater.load` returns it."""

    def to_export(self) -> PolicyExport:
        """Return the policy without its run."""


@runtime_checkable
class ExportablePolicies(Protocol):
    """Several policies of one run, as `flatwater.load` returns them."""

    def to_exports(self) -> Mapping[str, PolicyExport]:
        """Return the policies without their run, by name."""


def export_files(policy: ExportablePolicy | ExportablePolicies, file: Path) -> dict[Path, PolicyExport]:
    """Return the policy for each file that an export to `file` writes: `file`, or for several policies `STEM-NAME`."""
    if isinstance(policy, ExportablePolicies):
        exports = policy.to_exports()
        return {file.with_stem(f"{file.stem}-{name}"): policy_export for name, policy_export in exports.items()}
    return {file: policy.to_export()}


RunProgram = Callable[..., tuple[Tensor, ...]]
"""A function that runs an exported program: from input tensors to a tuple of output tensors."""


def plan_export(policy: PolicyExport, suffix: str, budget: str | None) -> Plan:
    """Return the plan of writing a policy in one of `FORMS` and of testing the written program.

    Args:
        policy: the policy.
        suffix: suffix of the form, such as `.pt2`.
        budget: memory that the export may take, such as 2GiB; None for 90 % of the tightest limit.

    Raises:
        ConfigError: the budget is not an amount of memory.
    """
    weights = sum(tensor.nbytes for tensor in policy.tensors.values())
    example = policy.example(1)
    example_bytes = (TRACED_ROWS + COMPARED_ROWS) * sum(tensor.nbytes for tensor in example)
    # Where inputs are small, a forward pass takes little beside the copies of the weights.
    run_forward = _bind_meta_forward(policy, example) if policy.measure_forward else lambda: None
    other_bytes = COPIES_IN_MEMORY * weights + example_bytes + LIBRARY_BYTES[suffix]
    phases = phase_bytes(
        # Loading runs nothing on the meta device: its bytes are `loading_bytes`.
        transients=lambda: {LOAD_PHASE: 0, EXPORT_PHASE: peak_bytes(run_forward)},
        extra_bytes={LOAD_PHASE: policy.loading_bytes, EXPORT_PHASE: other_bytes},
    )
    return plan_policy_use(EXPORT_PHASE, {"policy.weights": weights}, phases, budget=budget)


def _bind_meta_forward(policy: PolicyExport, example: tuple[Tensor, ...]) -> Callable[[], object]:
    """Return a function that runs the module on `COMPARED_ROWS` rows of the meta device, where nothing is computed."""
    # The module is copied here and not in the returned function, which runs in a fork: torch's threads are gone there,
    # and the copy of a large tensor would wait for them forever.
    module = deepcopy(policy.module).to(META)
    shapes = [[*tensor.shape] for tensor in example]
    for shape, axis in zip(shapes, policy.axes, strict=True):
        shape[axis] = COMPARED_ROWS
    rows = [torch.empty(shape, dtype=tensor.dtype, device=META) for shape, tensor in zip(shapes, example, strict=True)]

    def run() -> None:
        with torch.no_grad():
            module(*rows)

    return run


def export(policy: ExportablePolicy | ExportablePolicies, file: Path, budget: str | None = None) -> float:
    """Write a policy as one file, or several policies as a file each (`export_files`).

    Returns the largest difference between the outputs of both, and raises further errors, as `write_exports`.

    Args:
        policy: a policy of `flatwater.load`.
        file: place of the file; its suffix names the form, one of `FORMS`.
        budget: memory that the export may take, such as 2GiB; None for 90 % of the tightest limit.

    Raises:
        ConfigError: there is no such form.
    """
    if file.suffix not in FORMS:
        raise ConfigError(f"{file}: expected a name that ends in {' or '.join(FORMS)}.")
    return write_exports(export_files(policy, file), budget)


def write_exports(exports: Mapping[Path, PolicyExport], budget: str | None) -> float:
    """Write policies by file, each whole or not at all, once the exported program was compared with the policy.

    Returns:
        The largest difference between the outputs of both on random inputs, relative to outputs above 1.

    Raises:
        ConfigError: the form cannot hold such a policy, or a package for it is missing.
        RunError: the difference is too large, or a file cannot be written.
        MemoryLimitError: the export of one would need more memory than it may take; then none is written.
    """
    # All before the first is written, and before the exporter's libraries are loaded: the plan includes their bytes.
    for file, policy_export in exports.items():
        check_output("to =", file, POLICY_OUTPUTS[file.suffix])
        require_fit(plan_export(policy_export, file.suffix, budget))
    return max(_write_export(policy_export, file) for file, policy_export in exports.items())


def _write_export(policy_export: PolicyExport, file: Path) -> float:
    """Write one policy. Returns the largest difference of its outputs, and raises errors, as `write_exports`."""
    with torch.no_grad(), _silence_exporter():
        content, run_program = FORMS[file.suffix](policy_export)
        inputs = policy_export.example(COMPARED_ROWS)  # other inputs than those of the tracing
        expected = _to_tuple(policy_export.module(*inputs))
        difference = _largest_difference(expected, run_program(*inputs))
    if not difference <= MAXIMUM_DIFFERENCE:  # `not <=`, so that NaN is refused as well
        raise RunError(
            f"{file}: the exported policy differs from the trained policy by {difference:.1g}, more than "
            f"{MAXIMUM_DIFFERENCE:g}, so it was not written. Export to .safetensors, which has the exact weights."
        )
    replace_output(file, content, POLICY_OUTPUTS[file.suffix])
    # Recorded as this user's, so that `flatwater.load` may import the code that the header names.
    settings = header_settings(policy_export.recipe, policy_export.header)
    if file.suffix == WEIGHTS_SUFFIX and (named_codes := list_named_code(settings, file)):
        remember_trust(settings, file, named_codes, _log.warning, extra_values=policy_export.header)
    return difference


def _largest_difference(expected: tuple[Tensor, ...], actual: tuple[Tensor, ...]) -> float:
    """Return the largest difference between two outputs, relative to `expected` where its magnitude is above 1."""
    differences = []
    for expected_part, actual_part in zip(expected, actual, strict=True):
        exact = expected_part.double()  # float64, so that the difference itself is not rounded
        difference = (exact - actual_part.double()).abs()
        relative_difference = difference / exact.abs().clamp(min=1)
        differences.append(float(relative_difference.max()))
    return max(differences)


def _to_tuple(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (result,) if isinstance(result, Tensor) else tuple(result)


def _trace_program(policy: PolicyExport) -> torch.export.ExportedProgram:
    """Return the module as a traced program, for 1 to `MAXIMUM_ROWS` rows."""
    rows = torch.export.Dim("rows", min=1, max=MAXIMUM_ROWS)
    # The same `Dim` for all inputs: they have as many rows as each other.
    shapes = tuple({axis: rows} for axis in policy.axes)
    return torch.export.export(policy.module.eval(), policy.example(TRACED_ROWS), dynamic_shapes=shapes)


def _serialise_program(policy: PolicyExport) -> tuple[bytes, RunProgram]:
    """Return the policy as the bytes of a .pt2 file, and a function that runs the program loaded from these bytes."""
    content = io.BytesIO()
    about = json.dumps(policy.description, indent=1)
    torch.export.save(_trace_program(policy), content, extra_files={ABOUT_FILE: about})
    program = torch.export.load(io.BytesIO(content.getvalue())).module()
    return content.getvalue(), lambda *arguments: _to_tuple(program(*arguments))


def _serialise_onnx(policy: PolicyExport) -> tuple[bytes, RunProgram]:
    """Return the policy as the bytes of an .onnx file, and a function that runs these bytes in ONNX Runtime.

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
            _trace_program(policy),
            (),  # example inputs, which a traced program has already
            dynamo=True,
            verbose=False,
            input_names=input_names,
            output_names=output_names,
        )
    except torch.onnx.errors.OnnxExporterError as fault:
        raise ConfigError(
            "the policy has an operation that torch cannot export to ONNX. Export to .pt2 or .safetensors."
        ) from fault
    assert onnx_program is not None  # noqa: S101  (for the type checker: only torch's older exporter returns None)
    proto = onnx_program.model_proto
    entry = proto.metadata_props.add()
    entry.key, entry.value = METADATA_KEY, json.dumps(policy.description)
    content: bytes = proto.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def run_session(*inputs: Tensor) -> tuple[Tensor, ...]:
        arrays = {name: tensor.numpy() for name, tensor in zip(input_names, inputs, strict=True)}
        return tuple(torch.from_numpy(array) for array in session.run(output_names, arrays))

    return content, run_session


def _serialise_weights(policy: PolicyExport) -> tuple[bytes, RunProgram]:
    """Return the policy as the bytes of a .safetensors file, and a function that runs the policy rebuilt from them."""
    from safetensors.torch import load, save  # noqa: PLC0415  (loaded only where it is used)

    header = json.dumps(policy.description | {"header": dict(policy.header)})
    # A copy: safetensors refuses tensors that share storage.
    tensors = {name: tensor.contiguous().clone() for name, tensor in policy.tensors.items()}
    content: bytes = save(tensors, metadata={METADATA_KEY: header})
    policy_from_file = rebuild_policy("the exported policy", header, load(content), is_our_file=True)
    module = policy_from_file.to_export().module
    return content, lambda *inputs: _to_tuple(module(*inputs))


FORMS: Mapping[str, Callable[[PolicyExport], tuple[bytes, RunProgram]]] = {
    ".pt2": _serialise_program,
    ".onnx": _serialise_onnx,
    WEIGHTS_SUFFIX: _serialise_weights,
}
"""For each suffix, a function that returns the file's content, and a program that runs it so that it can be tested."""


@contextmanager
def _silence_exporter() -> Iterator[None]:
    """Silence messages that torch's exporters print for their developers, in the whole process."""
    logs = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    previous_levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in zip(logs, previous_levels, strict=True):
            log.setLevel(level)
