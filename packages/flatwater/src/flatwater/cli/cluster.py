"""`flatwater cluster check`: which machines of a Ray cluster would compute the same numbers as this machine."""

from dataclasses import dataclass
from typing import Annotated

import tyro


@dataclass(frozen=True, kw_only=True)
class ClusterCheck:
    """Say which machines of a Ray cluster could compute for a run that is started here, and how many workers fit.

    A machine whose versions or arithmetic are others would compute other numbers: its workers refuse to.
    """

    address: Annotated[str, tyro.conf.Positional] = "auto"
    """Address of the cluster; auto stands for the cluster that this machine belongs to."""

    def __call__(self) -> int:
        """Compare the versions and arithmetic of each machine with those of this machine, and print a line for each.

        Raises:
            RunError: a machine would be refused, as it has other versions.
        """
        from flatwater.runs.fingerprint import version_facts
        from flatwater.runs.team import require_ray
        from flatwater_watch.errors import RunError
        from flatwater_watch.terminal import say
        from flatwater_watch.units import format_bytes

        require_ray()
        from flatwater.cluster import ray_workers

        refused_nodes = 0
        ray_workers.join_cluster(self.address)
        own_facts = version_facts()
        nodes = ray_workers.list_nodes()
        facts_of_nodes = ray_workers.ask_nodes(nodes, "flatwater.runs.fingerprint:version_facts")  # each node calls it
        for node, their_facts in zip(nodes, facts_of_nodes, strict=True):
            # Only facts that this machine has are compared: the node's other facts say nothing about the numbers.
            differences = [
                f"{name} {their_facts[name]} there, {own_facts[name]} here"
                for name in own_facts
                if their_facts[name] != own_facts[name]
            ]
            refused_nodes += bool(differences)
            say(
                f"{node.name}  {node.cores:g} cores, {format_bytes(node.memory)} for workers, object store "
                f"{format_bytes(node.store)}: {'; '.join(differences) or 'computes the same numbers'}"
            )
        machines = f"{len(nodes)} machine{'s' if len(nodes) > 1 else ''}"
        if refused_nodes:
            raise RunError(
                f"{machines}, of which {refused_nodes} would be refused. Install the same versions "
                "there as on this machine."
            )
        say(f"{machines}, all compute the same numbers as this machine")
        return 0
