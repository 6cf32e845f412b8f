"""Processes that evolve traders together: each computes a share of the members.

A share is divided into tiles, groups of members whose networks are computed in one call.

The state tree in the run's process is the run. A worker has copies: its members' rows, the whole replay, the market.
They are sent when they have changed, so a worker may die at any moment and another continues in its place.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from flatwater.algorithms.adam import Span
from flatwater.cluster.work_division import worker_shares
from flatwater.cluster.worker_client import Worker
from flatwater.memory.planner import Plan
from flatwater.runs.fingerprint import version_facts
from flatwater.runs.team import Arrays, Assignment, WorkerPool, WorkerService, to_arrays, to_tensors
from flatwater.state.tree import leaves
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.exchange import UPDATES_PER_GATHERING, member_rows, priority_tensors, transition_columns
from flatwater_trading.recipe.market import build_run_market
from flatwater_trading.recipe.run_panel import read_run_panel
from flatwater_trading.training.learn import make_learning
from flatwater_trading.training.row_replay import RowReplay, Transitions
from flatwater_trading.training.setup import ErlSetup, build_setup
from flatwater_trading.training.state import ErlState, build_erl
from flatwater_trading.training.tile import TileTraining, TileValidation, train_tile, validate_tile
from flatwater_watch.errors import RunError

SERVICE_PATH = "flatwater_trading.recipe.workers:TraderService"


class TraderService(WorkerService):
    """The worker's side, in its own process: the state of its share of the members, updated by the run's messages.

    The run calls each public method by its name, through `Worker.ask` and `Worker.post`.
    """

    def __init__(self, assignment: Assignment) -> None:
        """Read the panel, and allocate the state of the assignment's share of the members.

        Raises:
            RunError: the panel or the arithmetic is another than the run's.
        """
        super().__init__(assignment)
        panel = read_run_panel(assignment.config)
        device = torch.device("cpu")
        if panel.fingerprint != assignment.fingerprint:
            raise RunError(f"the panel {assignment.config.panel} is another one than when the run began")
        config = assignment.config
        market, private_reason = build_run_market(config, panel, device)
        self._setup = build_setup(config, market, config.split(len(panel.dates)), device, share=assignment.share)
        self._run = build_erl(self._setup, market)
        self._learning = make_learning(self._setup, self._run)
        # A market that could not be mapped is a copy of this process, so its tensors count as the worker's memory.
        self.set_measured_state_(self._run, () if private_reason else assignment.mapped)

    def load(self, rows: Arrays, added: Mapping[str, int], updates: int) -> None:
        """Write the members' weights and optimizer's moments, and the counts of their updates, as the run has them.

        Args:
            rows: values of the tensors of `member_rows`, by path.
            added: number of values that each sum of the learner's tally (loss, gradient norm) has added up so far.
            updates: number of updates since the run began.
        """
        learner = self._run.learner
        for name, leaf in member_rows(learner):
            leaf.copy_(torch.from_numpy(rows[name]))
        learner.tally.added.update(added)
        learner.tally.updates = updates

    def load_transitions(self, positions: np.ndarray, columns: Arrays, priorities: Arrays, appended_rows: int) -> None:
        """Write new transitions into the replay, and the priorities of all transitions.

        Args:
            positions: ring positions [E] of the new transitions.
            columns: values [E, ...] of the new transitions by the names of `transition_columns`.
            priorities: whole tensors of `priority_tensors` by name; empty if all transitions are equally likely.
            appended_rows: number of transitions that the run has ever appended.
        """
        replay = self._run.replay
        assert replay is not None  # noqa: S101  (sent only to runs with a replay)
        for name, column in transition_columns(replay):
            column[torch.from_numpy(positions)] = torch.from_numpy(columns[name])
        write_priorities_(replay, priorities)
        replay.appended = appended_rows

    def learn(self) -> np.ndarray | None:
        """Do the next update. Returns |TD error| of the drawn transitions if draws depend on errors, else None."""
        td_error = self._learning.update_()
        replay = self._run.replay
        is_prioritised = replay is not None and replay.priorities is not None
        return td_error.numpy() if is_prioritised and td_error is not None else None

    def update_priorities(self, td_error: np.ndarray) -> None:
        """Set the priorities by |TD error| of the transitions that all members drew in the last update."""
        self._learning.update_priorities_(torch.from_numpy(td_error))

    def rows(self) -> tuple[Arrays, Mapping[str, int]]:
        """Return the rows of the share's members, and how many values each sum of the tally has, both by name."""
        learner = self._run.learner
        return {name: leaf.numpy() for name, leaf in member_rows(learner)}, learner.tally.added

    def priorities(self) -> Arrays:
        """Return the priorities of all transitions, by the names of `priority_tensors`."""
        assert self._run.replay is not None  # noqa: S101  (called only for runs with a replay)
        return priority_arrays(self._run.replay)

    def train(self, span: Span, round_: int) -> Any:  # noqa: ANN401  (nested arrays, as messages carry them)
        """Let the members of `span` play the training slices of a round; return the fields of `TileTraining` as arrays.

        They are the fitness, the numbers of each slice, and the transitions for the replay: None without a replay.
        """
        training = train_tile(self._setup, self._run, span, round_)
        transitions = (
            None
            if training.transitions is None
            else to_arrays({leaf.path: leaf.value for leaf in leaves(training.transitions)})
        )
        return training.fitness.numpy(), to_arrays(training.slices), transitions

    def validate(self, span: Span, round_: int) -> Any:  # noqa: ANN401  (nested arrays, as messages carry them)
        """Let the members of `span`, and the champion, play the validation slices of a round.

        Returns the fields of `TileValidation` as arrays.
        """
        validation = validate_tile(self._setup, self._run, span, round_)
        return (
            validation.value.numpy(),
            to_arrays(validation.slices),
            validation.activity.numpy(),
            validation.attention.numpy(),
        )


class TraderWorkers(WorkerPool):
    """The run's side, a `training.executor.TileExecutor` whose processes start when they are first needed."""

    def __init__(self, config: ErlRunConfig, setup: ErlSetup, run: ErlState, fingerprint: str, plan: Plan) -> None:
        """Divide the tiles among workers; no process is started yet.

        Args:
            config: configuration of the run.
            setup: setup of the whole population.
            run: state of the run.
            fingerprint: fingerprint of the panel.
            plan: plan with the number of workers, their machines and their memory.
        """
        self._setup, self._run = setup, run
        self._tiles = setup.tiles
        tile_ranges = worker_shares(len(self._tiles), len(plan.workers))
        # For each worker, its members [low, high): from its first tile to its last.
        self.spans = [(self._tiles[low][0], self._tiles[high - 1][1]) for low, high in tile_ranges]
        # For each tile, the number of the worker that computes it.
        self._owner_of_tile = [number for number, (low, high) in enumerate(tile_ranges) for _ in range(low, high)]
        # Paths of tensors in a mapped file, whose bytes a worker does not count as its own.
        mapped = tuple(plan.mapped)
        super().__init__(
            config,
            plan,
            SERVICE_PATH,
            [Assignment(config, span, fingerprint, version_facts(), mapped) for span in self.spans],
        )
        self._rows_are_stale = True
        # For each worker, `replay.appended` when transitions were last sent to it.
        self._appended_count = [0] * len(tile_ranges)
        # An entry for each update since `gather_`: its |TD error|, or None if draws do not depend on errors.
        self._errors_since_gathering: list[np.ndarray | None] = []
        # Phase, tile and round of each request whose answer is not taken yet.
        self._requested_tiles: deque[tuple[str, int, int]] = deque()

    def learn_(self) -> None:
        """Update all shares at the same time; if draws depend on errors, wait for the errors of all shares."""
        self._start_and_load_()
        errors = self.ask_all("learn")
        # In the order of the shares, which is the order of the members.
        all_errors = None if errors[0] is None else np.concatenate(errors)
        self._errors_since_gathering.append(all_errors)
        if all_errors is not None:
            # Before the next update, whose draws depend on the errors of all members.
            self.ask_all("update_priorities", all_errors)
        if len(self._errors_since_gathering) >= UPDATES_PER_GATHERING:
            self.gather_()

    def train(self, tile: int) -> TileTraining:
        """Return the tile's training slices, played by its worker; the first call posts all later tiles too."""
        fitness, slices, columns = self._take_tile_answer("train", tile)
        transitions = None if columns is None else Transitions(**to_tensors(columns))
        return TileTraining(torch.from_numpy(fitness), to_tensors(slices), transitions)

    def validate(self, tile: int) -> TileValidation:
        """Return the tile's validation slices, played by its worker; the first call posts all later tiles too."""
        value, slices, activity, attention = self._take_tile_answer("validate", tile)
        return TileValidation(
            torch.from_numpy(value), to_tensors(slices), torch.from_numpy(activity), torch.from_numpy(attention)
        )

    def mark_members_changed_(self) -> None:
        """Note that workers must be sent their rows before they compute again."""
        self._rows_are_stale = True

    def gather_(self) -> None:
        """Copy what the workers have learned into the run, if they have made an update since the last call.

        Copied are the members' weights and moments, the sums of their updates, and the priorities of the replay.
        """
        if not self._errors_since_gathering:
            return
        answers = self.ask_all("rows")
        replay, learner = self._run.replay, self._run.learner
        # All workers set priorities by the same errors, so the priorities of the first are those of all.
        priorities = self.workers[0].ask("priorities") if replay is not None and replay.priorities is not None else {}
        for span, (rows, _) in zip(self.spans, answers, strict=True):
            for name, leaf in member_rows(learner):
                # Without the champion's row, which follows the share's rows: learning does not change it.
                leaf[slice(*span)] = torch.from_numpy(rows[name][: span[1] - span[0]])
        for name in learner.tally.added:
            learner.tally.added[name] = sum(added[name] for _, added in answers)
        learner.tally.updates += len(self._errors_since_gathering)
        if replay is not None:
            write_priorities_(replay, priorities)
        self._errors_since_gathering.clear()

    def close(self) -> None:
        """End the processes, and note that processes that are started later must be sent their rows."""
        super().close()
        self._rows_are_stale = True

    def _take_tile_answer(self, phase: str, tile: int) -> Any:  # noqa: ANN401  (nested arrays, as messages carry them)
        """Return a worker's answer for a tile in a phase (`train` or `validate`); call it for tile after tile.

        The first call of a phase posts requests for this tile and all later ones to the workers, so that they compute
        in parallel; each call then waits for one answer.
        """
        round_ = self._run.progress.round
        if not self._requested_tiles:
            self.gather_()
            self._start_and_load_()
            for number in range(tile, len(self._tiles)):
                self.workers[self._owner_of_tile[number]].post(phase, self._tiles[number], round_)
                self._requested_tiles.append((phase, number, round_))
        expected = self._requested_tiles.popleft()
        assert expected == (phase, tile, round_)  # noqa: S101  (the loop requests a phase's tiles in order)
        return self.workers[self._owner_of_tile[tile]].take_answer()

    def _start_and_load_(self) -> None:
        """Start workers that do not run, and send all workers their rows if these are stale."""
        self.ready_()
        if self._rows_are_stale:
            for worker in self.workers:
                self._send_state_(worker)
            self._rows_are_stale = False

    def restore_worker_(self, worker: Worker) -> None:
        """Send a worker that replaces a dead one its state, and let it repeat the updates since the last gathering."""
        # The new process has no transitions yet.
        self._appended_count[worker.number] = 0
        self._send_state_(worker)
        # The same updates with the same errors in the same order give rows that are equal to the last bit.
        for error in self._errors_since_gathering:
            worker.ask("learn")
            if error is not None:
                worker.ask("update_priorities", error)

    def _send_state_(self, worker: Worker) -> None:
        """Send a worker its members' rows, its counts of updates and, with a replay, the transitions that it lacks."""
        learner, replay, (low, high) = self._run.learner, self._run.replay, self.spans[worker.number]
        members = self._setup.config.population.size
        rows = {
            name: torch.cat([leaf[low:high], leaf[members:]]).numpy()  # [members:] is the champion's row, if any
            for name, leaf in member_rows(learner)
        }
        # Each member adds equally often to a sum, so a worker's part of the count is in proportion to its members.
        added_by_name = {name: count // members * (high - low) for name, count in learner.tally.added.items()}
        worker.ask("load", rows, added_by_name, learner.tally.updates)
        if replay is None:
            return
        # Transitions that this worker lacks and that are still in the ring.
        first = max(self._appended_count[worker.number], replay.appended - len(replay.row))
        positions = torch.arange(first, replay.appended) % len(replay.row)
        columns = {name: column[positions].numpy() for name, column in transition_columns(replay)}
        worker.ask("load_transitions", positions.numpy(), columns, priority_arrays(replay), replay.appended)
        self._appended_count[worker.number] = replay.appended


def priority_arrays(replay: RowReplay) -> Arrays:
    """Return the tensors of the transitions' priorities as arrays, by name; empty if all are equally likely."""
    return {name: tensor.numpy() for name, tensor in priority_tensors(replay)}


def write_priorities_(replay: RowReplay, priorities: Arrays) -> None:
    """Write received arrays of `priority_arrays` into the replay."""
    for name, tensor in priority_tensors(replay):
        tensor.copy_(torch.from_numpy(priorities[name]))
    if replay.priorities is not None:
        replay.priorities.changed = True
