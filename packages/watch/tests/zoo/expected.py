"""What `flatwater watch` must say of each program of the zoo, within twelve rounds.

The programs are examples too: each tells what it looks like and how to fix it. A comment `# <- here` marks the line
that makes most of what grows; the program is the table's place for it, so that the number cannot be wrong.
"""

from dataclasses import dataclass
from pathlib import Path

ZOO = Path(__file__).parent
ROUNDS = 12
MARK = "# <- here"


@dataclass(frozen=True)
class Expected:
    """The finding that a program must lead to, first of all that are told."""

    verdict: str
    owner: str
    """What the owner's path contains."""
    near: int = 0
    """Lines by which `made_at` may lie beside the mark."""
    line: bool = True
    """Whether a Python line makes the growth."""
    needs: str | None = None
    """A library that the program imports and that may not be installed."""
    does: str = ""
    """What the advice contains."""


GROWING = {
    "kept_losses": Expected("leak", "main() in kept_losses.py: history", does="item()"),
    "env_registry": Expected("leak", "MarketEnv.open_envs"),
    "cyclic_envs": Expected("leak", "cyclic garbage", does="collect"),
    "episode_history": Expected("leak", "logbook.rows", does="del logbook.rows[:-100]"),
    "hall_of_fame": Expected("leak", "evolution.hall_of_fame"),
    "open_figures": Expected("leak", "pyplot's figures", near=1, does="plt.close"),  # or where the figure is made
    "window_replay": Expected("filling", "replay.windows"),
    "callback_closures": Expected("leak", "main() in callback_closures.py: callbacks"),
    "fragmented_heap": Expected("retention", "the C allocator", line=False),
    "slow_consumer": Expected("backlog", "trajectories", does="Queue(maxsize=100)"),
    "visited_links": Expected("leak", "visited", does=".discard(entry)"),
    "cached_method": Expected("cache", "of_day", does="maxsize"),
    "piled_hooks": Expected("leak", "_forward_hooks", does="remove()"),
    "kept_views": Expected("leak", "first_frames", does="clone()"),
    "first_touch": Expected("filling", "replay.frames", line=False),
    "ssl_sessions": Expected("leak", "client.sessions", does="sessions.pop(key)"),
    "memory_databases": Expected("leak", "memory_databases.OPEN", does="connection.close()"),
    "kept_errors": Expected("leak", "cyclic garbage", near=1, does="collect"),
    "frozen_cycles": Expected("leak", "cyclic garbage", does="gc.freeze"),
    "native_growth": Expected("native", "memory outside of Python", line=False, does="memray"),
    "growing_helper": Expected("slowdown", "", line=False),
    "forked_workers": Expected("native", "worker processes", line=False),
    "worker_cache": Expected("leak", "cache", does=".pop(key)"),
    "streamed_rows": Expected("leak", "streamed_rows.ROWS"),
    "query_values": Expected("leak", "query_values.VALUES"),
    "log_tail": Expected("leak", "parts"),
    "loading_thread": Expected("native", "memory outside of Python", near=1),  # or where the block is made
    "sb3_image_replay": Expected("filling", "replay_buffer", line=False, needs="stable_baselines3"),
}
"""Program -> what must be found."""

FLAT = {
    "sb3_ppo": "stable_baselines3",
    "sb3_ddpg": "stable_baselines3",
    "lightning_fit": "lightning",
    "cleanrl_ppo": None,
    "loader_with_workers": None,
    "torch_loop": None,
    "numpy_loop": None,
    "pure_python": None,
    "full_deque": None,
    "bounded_cache": None,
    "vector_env": None,
    "warm_cache": None,
    "compiled_kernels": None,
}
"""Program in which nothing is to be found -> a library that may not be installed."""


def program_of(name: str) -> Path:
    """The file of a program."""
    return ZOO / ("growing" if name in GROWING else "flat") / f"{name}.py"


def marked_line(name: str) -> int:
    """The number of the line that makes most of what grows."""
    lines = program_of(name).read_text().splitlines()
    (number,) = [n for n, line in enumerate(lines, start=1) if line.endswith(MARK)]
    return number
