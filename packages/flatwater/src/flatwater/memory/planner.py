"""The plan: the memory of a run, by owner, and whether it fits; made before anything is allocated.

The caller builds the state on torch's meta device, and so knows its bytes exactly; here they are added up, compared
with the machine's limits and reported. Transients are estimates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flatwater.memory.nodes import NodePlan, refuse_nodes
from flatwater_watch.errors import MemoryLimitError
from flatwater_watch.units import format_bytes

BUDGET_SHARE = 0.9
"""Share of the tightest limit that a run without a budget of its own may take."""


@dataclass(frozen=True)
class Plan:
    """The memory that a run will take, in bytes, and its limits."""

    owners: Mapping[str, int]
    """Bytes of each leaf of the state, by path."""
    transients: Mapping[str, int]
    """Estimated bytes that a phase makes and frees again, at its highest."""
    base_bytes: int
    """Resident before the state is built: interpreter, libraries, code. 0 if the state lies on another device."""
    limits: Mapping[str, int]
    """Each limit that the process would meet, in bytes."""
    budget: int | None = None
    """Bytes that the user allows; None for `BUDGET_SHARE` of the tightest limit."""
    suggestions: Sequence[str] = field(default=())
    """Changes for a run that does not fit, with numbers."""
    workers: Sequence[int] = field(default=())
    """Estimated private bytes of each process that computes for the run, at its highest."""
    worker_owners: Sequence[Mapping[str, int]] = field(default=())
    """Bytes of each leaf of their states, by path; exact."""
    worker_transients: int = 0
    """Private bytes that the workers' highest phase allocates and frees again."""
    apart: bool = False
    """Whether those processes are on machines of a cluster, which sets memory aside for them."""
    nodes: Sequence[NodePlan] = field(default=())
    """Machines of a cluster with the workers that start there."""
    largest_message: int = 0
    """Bytes of the largest message between them and the run."""
    mapped: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each leaf that is a part of a file, whose pages all processes share; no owner has them."""
    what: str = "run"
    """Name of the planned process: a run, or a command that uses a run."""
    notes: Sequence[str] = field(default=())
    """Sentences about decisions for the run, besides its memory."""

    @property
    def total_bytes(self) -> int:
        """Bytes of the state, without its mapped leaves."""
        return sum(self.owners.values())

    @property
    def mapped_bytes(self) -> int:
        """Bytes of mapped leaves, which all processes share."""
        return sum(self.mapped.values())

    @property
    def transient_bytes(self) -> int:
        """Bytes of the highest phase: phases do not overlap."""
        return max(self.transients.values(), default=0)

    @property
    def needed_bytes(self) -> int:
        """Resident memory at the highest moment of the run, its workers on this machine included."""
        # Workers on a cluster take memory of their own machines.
        workers = 0 if self.apart else sum(self.workers)
        return self.base_bytes + self.total_bytes + self.mapped_bytes + self.transient_bytes + workers

    @property
    def limit_bytes(self) -> int:
        """The tightest limit."""
        return min(self.limits.values())

    @property
    def budget_bytes(self) -> int:
        """Bytes that the run may take."""
        return int(BUDGET_SHARE * self.limit_bytes) if self.budget is None else self.budget

    @property
    def worker_budgets(self) -> Sequence[int]:
        """Private bytes that each worker may take: its planned bytes, and what the run leaves of the budget."""
        unused_bytes = 0 if self.apart else max(0, self.budget_bytes - self.needed_bytes)
        return [needed_bytes + unused_bytes for needed_bytes in self.workers]

    @property
    def fits(self) -> bool:
        """Whether the run stays within its budget and the machine's limit, and its workers within their machines'."""
        run_fits = self.needed_bytes <= min(self.budget_bytes, self.limit_bytes)
        return run_fits and all(node.fits for node in self.nodes)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as in plan.json."""
        return {
            "owners": dict(self.owners),
            "total_bytes": self.total_bytes,
            "transient_bytes": self.transient_bytes,
            "transients": dict(self.transients),
            "base_bytes": self.base_bytes,
            "workers": list(self.workers),
            "worker_owners": [sum(owners.values()) for owners in self.worker_owners],
            "apart": self.apart,
            "nodes": [node.to_json() for node in self.nodes],
            "largest_message": self.largest_message,
            "mapped": dict(self.mapped),
            "needed_bytes": self.needed_bytes,
            "limit_bytes": self.limit_bytes,
            "limits": dict(self.limits),
            "budget_bytes": self.budget_bytes,
            "fits": self.fits,
            "suggestions": list(self.suggestions),
            "notes": list(self.notes),
        }


REMEDIES = {
    "run": "Make the run smaller, or give more memory with --budget; --start-over-budget starts the run all the same.",
    "export": "Give more memory with --budget (budget=).",
}
USUAL_REMEDY = "Give prices of fewer days, or more memory with --budget (budget=)."
"""Remedies for a plan that does not fit: of a run, of an export, of any other command."""


def require_fit(plan: Plan) -> None:
    """Refuse a run or a command that does not fit.

    Raises:
        MemoryLimitError: the message names the largest owners, or the machines without free memory, and what to change.
    """
    # Machines first: their message says which of them lacks what.
    refuse_nodes(plan.nodes)
    if plan.fits:
        return
    raise MemoryLimitError(f"{plan_text(plan)}\n{REMEDIES.get(plan.what, USUAL_REMEDY)}")


def plan_text(plan: Plan) -> str:
    """Return the plan in a few lines: the bytes that the run takes and may take, its largest owners, and remedies."""
    # Grouped by two names of a path, such as learner.actor: single leaves are too many, and one name is too coarse.
    sizes = group_bytes(plan.owners, depth=2)
    largest_groups = sorted(sizes, key=lambda group: -sizes[group])[:3]
    owners = ", ".join(f"{group} {format_bytes(sizes[group])}" for group in largest_groups)
    text = f"The {plan.what} would take {format_bytes(plan.needed_bytes)}, and {budget_text(plan)}."
    text += f" The largest owners: {owners}."
    return "\n".join([text, *(f"  {line}" for line in plan.suggestions)])


def budget_text(plan: Plan) -> str:
    """Return the clause about the bytes that the run may take: of the user's budget or of the tightest limit."""
    # The tightest limit's name, such as that of the container.
    name = min(plan.limits, key=lambda limit: plan.limits[limit])
    limit = f"the limit of this process is {format_bytes(plan.limit_bytes)} ({name})"
    if plan.budget is None:
        return f"{format_bytes(plan.budget_bytes)} are allowed: {limit}, of which {BUDGET_SHARE:.0%}"
    return f"{format_bytes(plan.budget)} are allowed (--budget); {limit}"


def group_bytes(owners: Mapping[str, int], *, depth: int) -> dict[str, int]:
    """Return the sum of the bytes of all paths that share their first `depth` names, by these names."""
    sums: dict[str, int] = {}
    for path, size in owners.items():
        group = ".".join(path.split(".")[:depth])
        sums[group] = sums.get(group, 0) + size
    return sums


def plan_summary(plan: Plan) -> str:
    """Return one line about the plan, of 80 columns at most."""
    state, highest, allowed_bytes = map(format_bytes, (plan.total_bytes, plan.needed_bytes, plan.budget_bytes))
    return f"memory: state {state}, at its highest {highest}, of {allowed_bytes} allowed"
