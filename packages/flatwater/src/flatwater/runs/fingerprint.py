"""Facts that must be the same where a checkpoint is continued, and others on which its numbers depend."""

import platform
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from hashlib import sha256
from typing import Any

import torch

from flatwater import __version__
from flatwater.config.code import find_named_code
from flatwater.config.toml import to_mapping
from flatwater.runs.run import Run
from flatwater.sources import text_hashes


def run_facts(run: Run) -> dict[str, Any]:
    """Return settings and data of a run; data are compared by their content, wherever they lie."""
    exempt_names = run.location_settings | run.config.open_ended
    settings = {name: value for name, value in to_mapping(run.config).items() if name not in exempt_names}
    return {"config": settings, "data": dict(run.data())}


def version_facts() -> dict[str, str]:
    """Return the facts on which a run's numbers depend besides its configuration; recorded, and told if they differ."""
    return {
        "flatwater": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        ARITHMETIC: arithmetic_hash(),
    }


def source_hashes(config: Any) -> dict[str, dict[str, str]]:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return hashes of the text of users' code that settings name: the value of the setting -> module -> digits.

    A module that such code imports from its own folder counts as well (`flatwater.sources.text_hashes`). Trackers and
    commands for events are left out: they change no number.
    """
    codes = find_named_code(type(config), to_mapping(config))
    return {code.value: dict(text_hashes(code.module)) for code in codes if code.module and not code.declared.trains}


def changed_sources(saved: object, config: Any) -> list[str]:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return modules whose text has changed since a checkpoint was saved, a line each.

    Args:
        saved: `sources` of the checkpoint; an older checkpoint has none, and nothing is said of it.
        config: the settings with which it goes on.
    """
    lines = dict[str, str]()
    for name, hashes in source_hashes(config).items():
        # From a file that anybody may have edited: a value that is not a mapping says nothing.
        saved_hashes = saved.get(name) if isinstance(saved, Mapping) else None
        if not isinstance(saved_hashes, Mapping):
            continue
        # Both sides, so that a module that was added or removed is named too.
        for module in sorted({*saved_hashes, *hashes}):
            saved_hash = saved_hashes.get(module, "absent")
            current_hash = hashes.get(module, "absent")
            if saved_hash != current_hash:
                lines[module] = f"{module} ({saved_hash} when it was saved, {current_hash} now)"
    return [*lines.values()]


def saved_arithmetics(saved: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the arithmetics that a run was computed with.

    Args:
        saved: facts of checkpoints; those of other versions may say less.
    """
    arithmetics: set[str] = set()
    for facts in saved:
        versions, machines = facts.get("versions"), facts.get("machines")
        arithmetics |= (
            {str(versions[ARITHMETIC])} if isinstance(versions, Mapping) and versions.get(ARITHMETIC) else set()
        )
        arithmetics |= {str(name) for name in machines} if isinstance(machines, list) else set()
    return arithmetics


@cache
def arithmetic_hash() -> str:
    """Return this machine's instruction set, and a hash of the bits of one fixed computation.

    Another processor, or another choice of a library's kernels, sums in another order. Nothing else tells two machines
    of the same versions apart.
    """
    # Batches, exp and tanh, norms and means:
    # kernels that differ by instruction set sum each of them in another order.
    # A `linspace` and no draw: the input must not depend on a generator, nor move the run's own.
    numbers = torch.linspace(-2, 2, 8 * 48 * 40).view(8, 48, 40)
    product = torch.bmm(numbers, numbers.transpose(1, 2))
    elementwise = torch.cat([f(product).flatten() for f in (torch.sigmoid, torch.tanh, torch.exp, torch.sqrt)])
    normed = torch.nn.functional.layer_norm(product, product.shape[-1:])
    sums = torch.cat(
        [elementwise, normed.flatten(), torch.linalg.vector_norm(product, dim=2).flatten(), product.mean(1)[0]]
    )
    return f"{torch.backends.cpu.get_cpu_capability()} {sha256(sums.numpy().tobytes()).hexdigest()[:8]}"


ARITHMETIC = "arithmetic"


def changed_facts(
    saved: object, *, then: str = "when it was saved", current_name: str = "now", exempt_names: Collection[str] = ()
) -> list[str]:
    """Return a line for each changed fact on which numbers depend: `torch 2.9.0 when it was saved, 2.9.1 now`.

    Args:
        saved: `versions` of a checkpoint; an older version may say less, and a forged file anything.
        then: words for when, or where, the saved versions are from.
        current_name: words for this process.
        exempt_names: names that may differ.
    """
    if not isinstance(saved, Mapping):
        return [f"versions {saved!r} when it was saved"]
    present = version_facts()
    return [
        f"{name} {saved[name]} {then}, {present[name]} {current_name}"
        for name in present
        if name not in exempt_names and saved.get(name) not in (None, present[name])
    ]
