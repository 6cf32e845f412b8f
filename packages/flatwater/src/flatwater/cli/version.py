"""`flatwater version`: the version, and the facts about the machine that numbers depend on."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Version:
    """Print the version, and the facts on which numbers of a run depend besides its settings.

    `arithmetic` is what this processor makes of one fixed computation: its instructions, and a hash of the bits. Where
    two machines have the same flatwater, torch, python and arithmetic, a run on their CPUs has the same numbers, as far
    as that computation can tell.
    """

    json: bool = False
    """Print JSON instead of lines."""

    def __call__(self) -> int:
        """Print the facts about this machine as lines or as JSON."""
        import json
        import sys

        facts = installation_facts()
        if self.json:
            sys.stdout.write(json.dumps(facts, indent=1) + "\n")
            return 0
        width = max(map(len, facts))
        sys.stdout.write("".join(f"{name:<{width}}  {value}\n" for name, value in facts.items()))
        return 0


def installation_facts() -> dict[str, str]:
    """Return versions, processor, GPUs and system by name; where torch is missing, the facts that do not need it."""
    import platform

    from flatwater import __version__
    from flatwater_watch.meters.process import allowed_cores, cpu_model

    try:
        from flatwater.runs.fingerprint import version_facts
        from flatwater.runs.machine import cuda_devices
    except ModuleNotFoundError as error:
        missing_text = f"not installed ({error.name} is missing)"
        facts = {"flatwater": __version__, "torch": missing_text, "python": platform.python_version()}
        devices = "none"
    else:
        facts = version_facts()
        devices = ", ".join(cuda_devices()) or "none"
    count = len(allowed_cores())
    machine = {"cpu": f"{cpu_model()}, {count} core{'s' if count != 1 else ''}", "gpu": devices}
    return facts | machine | {"system": platform.platform()}
