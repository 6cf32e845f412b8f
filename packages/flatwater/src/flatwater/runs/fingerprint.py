"""Facts about a run and its machine, compared at a resume: settings, data, source code, versions and arithmetic."""

import platform
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from hashlib import sha256
from typing import Any

import torch

from flatwater import __version__
from flatwater.checkpoints.manifest import JSON
from flatwater.config.code import find_named_code
from flatwater.config.mappings import to_mapping
from flatwater.runs.run import Run
from flatwater.sources import text_hashes


def run_facts(run: Run) -> dict[str, Any]:
    """Return the settings and the data of a run, as plain values, that must be the same when it is resumed.

    Left out are settings that a resume may change (`changeable_settings`), and the paths of data.
    """
    exempt_names = run.location_settings | run.config.changeable_settings
    settings = {name: value for name, value in to_mapping(run.config).items() if name not in exempt_names}
    return {"config": settings, "data": dict(run.data())}


def saved_run_facts(
    saved_facts: Mapping[str, JSON],
    config: Any,  # noqa: ANN401  (a RunConfig of any recipe)
    current_facts: Mapping[str, Any],
) -> dict[str, JSON]:
    """Return the facts of `run_facts` in a checkpoint, as this version of Flatwater would have written them.

    Args:
        saved_facts: facts of the checkpoint.
        config: settings of the run that resumes.
        current_facts: facts of this run.
    """
    settings = saved_facts.get("config")
    if isinstance(settings, Mapping):
        # `former_tables`: tables that earlier versions did not write, with the values that held then.
        settings = {**config.former_tables, **settings}
    defaults = to_mapping(type(config)())
    completed_settings = _with_added_defaults(settings, defaults, current_facts["config"])
    return {"config": completed_settings, "data": _without_host_text(saved_facts.get("data"))}


def _with_added_defaults(
    saved_settings: JSON, defaults: Mapping[str, Any], current_settings: Mapping[str, Any]
) -> JSON:
    """Return a checkpoint's settings with the defaults of settings that a later version of Flatwater added.

    Args:
        saved_settings: settings, or a table of settings, in the checkpoint.
        defaults: default values of the settings, or of the table.
        current_settings: settings, or the table, of the run that resumes; names that are not in it are not added.
    """
    if not isinstance(saved_settings, Mapping):
        return saved_settings
    settings = dict(saved_settings)
    for name, default in defaults.items():
        current_table = current_settings.get(name)
        if name not in saved_settings and name in current_settings:
            settings[name] = default
        # A table on both sides: settings may have been added within it.
        elif name in saved_settings and isinstance(default, Mapping) and isinstance(current_table, Mapping):
            settings[name] = _with_added_defaults(saved_settings[name], default, current_table)
    return settings


def _without_host_text(data: JSON) -> JSON:
    """Return a checkpoint's facts of the data without `host`, the source text that version 0.1 of Flatwater saved."""
    return {name: value for name, value in data.items() if name != "host"} if isinstance(data, Mapping) else data


def version_facts() -> dict[str, str]:
    """Return versions and arithmetic of this process, on which a run's numbers depend; a resume reports differences."""
    return {
        "flatwater": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        ARITHMETIC: arithmetic_hash(),
    }


def source_hashes(config: Any) -> dict[str, dict[str, str]]:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return hashes of the source of users' code: from a setting's value, such as `mine:Env`, to hashes by module.

    The modules that such code imports from its own folder are included (`flatwater.sources.text_hashes`). Trackers and
    commands for events are left out, as they change no number.
    """
    named_codes = find_named_code(type(config), to_mapping(config))
    # Without a module: a command. No evaluation uses what is `training_only`: a tracker, a callback or a command.
    return {
        code.value: dict(text_hashes(code.module))
        for code in named_codes
        if code.module and not code.declared.training_only
    }


def changed_sources(saved_sources: object, config: Any) -> list[str]:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return a line for each module of the user's whose source has changed since a checkpoint was saved.

    Args:
        saved_sources: `sources` of the checkpoint; an older checkpoint may have none, and then no line is returned.
        config: settings of the run that resumes.
    """
    lines = dict[str, str]()
    for name, hashes in source_hashes(config).items():
        # From a file that anybody may have edited, so a value that is not a mapping is ignored.
        saved_hashes = saved_sources.get(name) if isinstance(saved_sources, Mapping) else None
        if not isinstance(saved_hashes, Mapping):
            continue
        # Modules of both sides, so that a module that was added or removed is listed too.
        for module in sorted({*saved_hashes, *hashes}):
            saved_hash = saved_hashes.get(module, "absent")
            current_hash = hashes.get(module, "absent")
            if saved_hash != current_hash:
                lines[module] = f"{module} ({saved_hash} when it was saved, {current_hash} now)"
    return [*lines.values()]


def saved_arithmetics(saved_facts: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the results of `arithmetic_hash` on all machines that computed a run, from its checkpoints' facts."""
    arithmetics: set[str] = set()
    for facts in saved_facts:
        # Checkpoints of other versions may lack some facts.
        versions, machines = facts.get("versions"), facts.get("machines")
        if isinstance(versions, Mapping) and versions.get(ARITHMETIC):
            arithmetics.add(str(versions[ARITHMETIC]))
        if isinstance(machines, list):
            arithmetics.update(str(name) for name in machines)
    return arithmetics


@cache
def arithmetic_hash() -> str:
    """Return this machine's instruction set, and a hash of the bits of one fixed computation: its arithmetic.

    Another processor, or another choice of kernels in a library, sums floats in another order, which versions of
    packages do not show.
    """
    # Products, exp, tanh, norms and means: their sums are taken in another order by other instruction sets.
    # From `linspace`, not from a generator, so that no generator of the run is moved.
    numbers = torch.linspace(-2, 2, 8 * 48 * 40).view(8, 48, 40)
    product = torch.bmm(numbers, numbers.transpose(1, 2))
    elementwise = torch.cat([f(product).flatten() for f in (torch.sigmoid, torch.tanh, torch.exp, torch.sqrt)])
    normalised_product = torch.nn.functional.layer_norm(product, product.shape[-1:])
    sums = torch.cat(
        [
            elementwise,
            normalised_product.flatten(),
            torch.linalg.vector_norm(product, dim=2).flatten(),
            product.mean(1)[0],
        ]
    )
    return f"{torch.backends.cpu.get_cpu_capability()} {sha256(sums.numpy().tobytes()).hexdigest()[:8]}"


ARITHMETIC = "arithmetic"


def describe_version_changes(
    saved_versions: object,
    *,
    save_phrase: str = "when it was saved",
    current_name: str = "now",
    exempt_names: Collection[str] = (),
) -> list[str]:
    """Return a line for each of the `version_facts` that has changed: `torch 2.9.0 when it was saved, 2.9.1 now`.

    Args:
        saved_versions: `versions` of a checkpoint; a file of another version may lack some, which are left out, and a
            forged file has anything.
        save_phrase: words for the time, or the place, of the saved versions.
        current_name: words for this process.
        exempt_names: names of facts that may differ.
    """
    if not isinstance(saved_versions, Mapping):
        return [f"versions {saved_versions!r} {save_phrase}"]
    current = version_facts()
    return [
        f"{name} {saved_versions[name]} {save_phrase}, {current[name]} {current_name}"
        for name in current
        # None: the checkpoint lacks this fact.
        if name not in exempt_names and saved_versions.get(name) not in (None, current[name])
    ]
