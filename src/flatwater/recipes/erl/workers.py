"""A crew of processes for evolving traders: each computes the tiles of a share of the members.

The state tree in the run's own process is the run. A worker keeps copies: its members' rows, the whole replay, the
market. They are sent when they have changed, so a worker may die at any moment and another continues in its place.
"""

import platform
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch

from flatwater.algorithms.adam import Span
from flatwater.cluster.asking import Desk as Life
from flatwater.cluster.asking import Worker
from flatwater.cluster.processes import Process
from flatwater.cluster.share import shares
from flatwater.errors import ConfigError, RunError
from flatwater.memory.ledger import SCALAR_BYTES
from flatwater.memory.nodes import Machine
from flatwater.memory.planner import Plan, grouped
from flatwater.memory.probes import limit
from flatwater.memory.probes.mappings import Seldom, processes
from flatwater.recipes.erl.config import ErlRunConfig
from flatwater.recipes.erl.exchange import GATHERED, columns_of, rows_of, weights_in
from flatwater.recipes.erl.market import market_of, panel_of
from flatwater.replay.rows import RowReplay, Transitions
from flatwater.runs.fingerprint import ARITHMETIC, arithmetic, changes, versions
from flatwater.runs.machine import release_freed_memory
from flatwater.state.tree import leaves, nbytes
from flatwater.trainers.erl.learn import learning
from flatwater.trainers.erl.setup import Setup, build_setup
from flatwater.trainers.erl.state import Erl, build_erl
from flatwater.trainers.erl.tile import Judged, Trained, judge_tile, train_tile

Arrays = dict[str, np.ndarray]
DESK = "flatwater.recipes.erl.workers:Desk"


@dataclass(frozen=True)
class Assignment:
    """What a worker is made of."""

    config: ErlRunConfig
    share: Span
    """Its members."""
    fingerprint: str
    """Of the panel."""
    versions: Mapping[str, str]
    """What the numbers depend on besides."""
    mapped: Collection[str]
    """Leaves of the state that are a part of a file."""


METER_SHARE = 1 / 2000
"""Of a worker's time that may go into reading its memory."""


class Desk:
    """A worker's side: a run of its share, brought up to date by messages."""

    def __init__(self, given: Assignment) -> None:
        """Read the panel and allocate the share.

        Raises:
            RunError: the panel or the arithmetic is another than the run's.
        """
        torch.set_num_threads(given.config.threads)
        panel, here = panel_of(given.config), torch.device("cpu")
        if panel.fingerprint != given.fingerprint:
            raise RunError(f"the panel {given.config.panel} is another one than when the run began")
        apart = (ARITHMETIC,) if given.config.any_machine else ()
        if others := changes(given.versions, then="in the run", here=f"on {platform.node()}", apart=apart):
            raise RunError(
                f"a worker would compute other numbers than the run: {'; '.join(others)}. Use machines of one kind "
                "with the same versions; with --any-machine another arithmetic is taken, and last bits are others."
            )
        ground = market_of(given.config, panel, here)
        self._setup = build_setup(given.config, ground.market, ground.splits, here, share=given.share)
        self._run = build_erl(self._setup, ground.market)
        self._learning = learning(self._setup, self._run)
        self._mapped = () if ground.private else given.mapped
        self._memory = Seldom(self._read, METER_SHARE)

    def _read(self) -> dict[str, Any]:
        release_freed_memory()
        mine = processes()
        held = {path: size for path, size in nbytes(self._run).items() if path not in self._mapped}
        return {"private": mine.private, "proportional": mine.proportional, "held": held}

    def memory(self) -> dict[str, Any]:
        """Bytes of this process: its own, those with its part of what is shared, and each leaf of its state."""
        return self._memory.now_()

    def arithmetic(self) -> str:
        """Of the machine."""
        return arithmetic()

    def load(self, rows: Arrays, added: Mapping[str, int], updates: int) -> None:
        """The share's rows are these."""
        learner = self._run.learner
        for name, leaf in rows_of(learner):
            leaf.copy_(torch.from_numpy(rows[name]))
        learner.tally.added.update(added)
        learner.tally.updates = updates

    def experience(self, at: np.ndarray, columns: Arrays, weights: Arrays, appended: int) -> None:
        """The replay holds this at these places, and is drawn from like this."""
        replay = self._run.replay
        assert replay is not None  # noqa: S101  (the run has one)
        for name, column in columns_of(replay):
            column[torch.from_numpy(at)] = torch.from_numpy(columns[name])
        write_weights_(replay, weights)
        replay.appended = appended

    def learn(self) -> np.ndarray | None:
        """The next update; |TD error| of what its members drew, where that decides what is drawn."""
        found, replay = self._learning.update_(), self._run.replay
        weighed = replay is not None and replay.priorities is not None
        return found.numpy() if weighed and found is not None else None

    def weigh(self, td_error: np.ndarray) -> None:
        """|TD error| of what all members drew in that update."""
        self._learning.weigh_(torch.from_numpy(td_error))

    def rows(self) -> tuple[Arrays, Mapping[str, int]]:
        """The share's rows, and how often its sums were added to."""
        learner = self._run.learner
        return {name: leaf.numpy() for name, leaf in rows_of(learner)}, learner.tally.added

    def weights(self) -> Arrays:
        """How the replay is drawn from."""
        assert self._run.replay is not None  # noqa: S101  (the run has one)
        return weights_of(self._run.replay)

    def train(self, span: Span, round_: int) -> Any:  # noqa: ANN401
        """A tile plays the training slices."""
        found = train_tile(self._setup, self._run, span, round_)
        played = None if found.transitions is None else {leaf.path: leaf.value for leaf in leaves(found.transitions)}
        return found.fitness.numpy(), arrays_of(found.slices), None if played is None else arrays_of(played)

    def judge(self, span: Span, round_: int) -> Any:  # noqa: ANN401
        """A tile, and the champion, play the validation slices."""
        found = judge_tile(self._setup, self._run, span, round_)
        return found.value.numpy(), arrays_of(found.slices), found.activity.numpy(), found.attention.numpy()


class Workers:
    """The run's side: a crew (`trainers.erl.crew.Crew`) whose processes are started when they are first needed."""

    def __init__(self, config: ErlRunConfig, setup: Setup, run: Erl, fingerprint: str, plan: Plan) -> None:
        """Nothing is started yet.

        Args:
            config: of the run.
            setup: of the whole population.
            run: its state.
            fingerprint: of the panel.
            plan: how many workers, on which machines, what each holds and may have.
        """
        self._config, self._setup, self._run, self._fingerprint, self._plan = config, setup, run, fingerprint, plan
        self._tiles = setup.tiles
        self._budgets, dealt = plan.worker_budgets, shares(len(self._tiles), len(plan.workers))
        self._nodes = [node.machine.identity for node in plan.nodes for _ in range(node.workers)]
        self.spans = [(self._tiles[low][0], self._tiles[high - 1][1]) for low, high in dealt]
        self._owner = [n for n, (low, high) in enumerate(dealt) for _ in range(low, high)]
        self._workers: list[Worker] = []
        self._stale = True
        self._appended = [0] * len(dealt)
        self._learned: list[np.ndarray | None] = []
        self._asked: deque[tuple[str, int, int]] = deque()
        self._before = (0, 0)
        self.machines: set[str] = set()
        """Arithmetics of workers, where any is taken."""

    @property
    def wire(self) -> int:
        """Bytes that went to the processes and came from them so far."""
        return sum(worker.wire for worker in self._workers)

    @property
    def pids(self) -> list[int]:
        """Of the processes now, as far as they are on this machine."""
        return [pid for worker in self._workers if (pid := worker.pid) is not None]

    def exchange_(self) -> Mapping[str, Any]:
        """What `runs.run.Run.exchange` says."""
        if not self._workers:
            return {}
        workers = [self._memory_of(*each) for each in enumerate(self._ask_all("memory"))]
        arrays, lives = (sum(getattr(worker, name) for worker in self._workers) for name in ("arrays", "lives"))
        moved, lost = arrays - self._before[0], lives - self._before[1]
        begun, self._before = not self._before[1], (arrays, lives)
        return {
            "private": sum(each["private"] for each in workers),
            "wire": self.wire,
            "arrays": arrays,
            "moved": moved,
            "formula": self._plan.exchange["generation"],
            "workers": workers,
            **({} if begun else {"lost": lost}),
            **({"stores": on_ray().in_stores()} if self._config.cluster else {}),
        }

    def _memory_of(self, number: int, said: Mapping[str, Any]) -> dict[str, Any]:
        """The plan of a worker against what it says that it holds."""
        planned, held = self._plan.worker_owners[number], said["held"]
        off = {path: planned.get(path, 0) - held.get(path, 0) for path in planned | held}
        return {
            "machine": self._workers[number].machine,
            "private": said["private"],
            "proportional": said["proportional"],
            "planned": self._plan.workers[number] - self._plan.transient_bytes,
            "owned": grouped({path: size for path, size in held.items() if size > SCALAR_BYTES}, depth=1),
            "owned_bytes": sum(held.values()),
            "unplanned": {path: size for path, size in off.items() if size},
        }

    def learn_(self) -> None:
        """All shares at once; draws that depend on errors wait for those of all."""
        self._ready_()
        found = self._ask_all("learn")
        error = None if found[0] is None else np.concatenate(found)
        self._learned.append(error)
        if error is not None:
            self._ask_all("weigh", error)
        if len(self._learned) >= GATHERED:
            self.gather_()

    def train(self, tile: int) -> Trained:
        """By the tile's worker; all workers are asked for all tiles from this one on."""
        fitness, slices, played = self._tile("train", tile)
        transitions = None if played is None else Transitions(**tensors_of(played))
        return Trained(torch.from_numpy(fitness), tensors_of(slices), transitions)

    def judge(self, tile: int) -> Judged:
        """By the tile's worker."""
        value, slices, activity, attention = self._tile("judge", tile)
        return Judged(
            torch.from_numpy(value), tensors_of(slices), torch.from_numpy(activity), torch.from_numpy(attention)
        )

    def replaced_(self) -> None:
        """Workers are sent their rows before they compute again."""
        self._stale = True

    def gather_(self) -> None:
        """Members' rows, the sums of their updates, and how the replay is drawn from."""
        if not self._learned:
            return
        found = self._ask_all("rows")
        replay, learner = self._run.replay, self._run.learner
        weights = self._workers[0].ask("weights") if replay is not None and replay.priorities is not None else {}
        for span, (rows, _) in zip(self.spans, found, strict=True):
            for name, leaf in rows_of(learner):
                leaf[slice(*span)] = torch.from_numpy(rows[name][: span[1] - span[0]])
        for name in learner.tally.added:
            learner.tally.added[name] = sum(added[name] for _, added in found)
        learner.tally.updates += len(self._learned)
        if replay is not None:
            write_weights_(replay, weights)
        self._learned.clear()

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        self._stale = True

    def _tile(self, name: str, tile: int) -> Any:  # noqa: ANN401
        round_ = self._run.progress.round
        if not self._asked:
            self.gather_()
            self._ready_()
            for at in range(tile, len(self._tiles)):
                self._workers[self._owner[at]].post(name, self._tiles[at], round_)
                self._asked.append((name, at, round_))
        expected = self._asked.popleft()
        assert expected == (name, tile, round_)  # noqa: S101  (the loop asks for a phase's tiles in order)
        return self._workers[self._owner[tile]].take()

    def _ready_(self) -> None:
        """Every worker runs, and knows the run as it is."""
        if not self._workers:
            self._workers = [self._worker(number) for number in range(len(self.spans))]
            for worker in self._workers:
                worker.take()
                self._note_(worker)
        if any(worker.leaves for worker in self._workers):
            self.gather_()
            for worker in self._workers:
                if worker.leaves:
                    worker.renew_()
        if self._stale:
            for worker in self._workers:
                self._load_(worker)
            self._stale = False

    def _worker(self, number: int) -> Worker:
        config, budget = self._config, self._budgets[number]
        return Worker(
            number,
            DESK,
            Assignment(config, self.spans[number], self._fingerprint, versions(), tuple(self._plan.mapped)),
            prepare=self._prepare_,
            open_desk=(lambda: self._actor_(number)) if config.cluster else Process,
            budget=budget,
        )

    def _actor_(self, number: int) -> Life:
        """A life on the cluster: the first one where the plan has it, any other wherever there is room."""
        node, self._nodes[number] = self._nodes[number], ""
        actor: Life = on_ray().Actor(self._config.threads, self._budgets[number], node)
        return actor

    def _note_(self, worker: Worker) -> None:
        if self._config.any_machine:
            self.machines.add(worker.ask("arithmetic"))

    def _ask_all(self, name: str, *given: object) -> list[Any]:
        for worker in self._workers:
            worker.post(name, *given)
        return [worker.take() for worker in self._workers]

    def _prepare_(self, worker: Worker) -> None:
        """Another process takes a dead one's place: what that one had learned since is learned again."""
        self._appended[worker.number] = 0
        self._note_(worker)
        self._load_(worker)
        for error in self._learned:
            worker.ask("learn")
            if error is not None:
                worker.ask("weigh", error)

    def _load_(self, worker: Worker) -> None:
        learner, replay, (low, high) = self._run.learner, self._run.replay, self.spans[worker.number]
        members = self._setup.config.population.size
        rows = {
            name: torch.cat([leaf[low:high], leaf[members:]]).numpy()  # the champion's row, where there is one
            for name, leaf in rows_of(learner)
        }
        added = {name: count // members * (high - low) for name, count in learner.tally.added.items()}
        worker.ask("load", rows, added, learner.tally.updates)
        if replay is None:
            return
        first = max(self._appended[worker.number], replay.appended - len(replay.row))
        at = torch.arange(first, replay.appended) % len(replay.row)
        columns = {name: column[at].numpy() for name, column in columns_of(replay)}
        worker.ask("experience", at.numpy(), columns, weights_of(replay), replay.appended)
        self._appended[worker.number] = replay.appended


def on_ray() -> ModuleType:
    """What knows Ray.

    Raises:
        ConfigError: Ray is not installed.
    """
    try:
        from flatwater.cluster import on_ray  # noqa: PLC0415  (an extra)
    except ImportError as absent:
        raise ConfigError("cluster: needs Ray, which is not installed: pip install 'flatwater[ray]'") from absent
    return on_ray


def machines(config: ErlRunConfig) -> list[Machine]:
    """Those of the configuration's cluster."""
    assert config.cluster  # noqa: S101  (who asks has one)
    ray = on_ray()
    ray.connect(config.cluster)
    nodes = ray.nodes()
    found = ray.ask_nodes(nodes, f"{limit.__name__}:{limit.limits.__name__}")
    return [
        Machine(node.name, node.identity, int(node.cores), node.memory, node.store, min(limits.values()))
        for node, limits in zip(nodes, found, strict=True)
    ]


def weights_of(replay: RowReplay) -> Arrays:
    """How likely each transition is to be drawn; nothing where all are alike."""
    return {name: weight.numpy() for name, weight in weights_in(replay)}


def write_weights_(replay: RowReplay, weights: Arrays) -> None:
    """The same, received."""
    for name, weight in weights_in(replay):
        weight.copy_(torch.from_numpy(weights[name]))
    if replay.priorities is not None:
        replay.priorities.changed = True


def arrays_of(tensors: Mapping[str, Any]) -> dict[str, np.ndarray | None]:
    """As they are sent."""
    return {name: None if tensor is None else tensor.numpy() for name, tensor in tensors.items()}


def tensors_of(arrays: Mapping[str, np.ndarray | None]) -> dict[str, Any]:
    """As they are received."""
    return {name: None if array is None else torch.from_numpy(array) for name, array in arrays.items()}
