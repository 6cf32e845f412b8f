"""Episodes of a trained policy as a video, written frame by frame: a GIF, or an MP4 where ffmpeg is installed.

The environment is made once more with `render_mode="rgb_array"`, and plays the first of the episodes that the policy is
judged by. A frame is drawn, encoded and forgotten, so a video of any length takes the memory of a few frames.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np

from flatwater.envs.kept_state import ReplayableWorld
from flatwater.envs.world import Array
from flatwater.envs.wrapped.native_spaces import RenderedWorld
from flatwater.memory.planner import Plan
from flatwater.runs.kinds_policy import KindsOnRows, KindsPolicy
from flatwater.runs.run import Run
from flatwater.runs.trained_policy import TrainedPolicy
from flatwater.runs.world_run import WorldRun
from flatwater_watch.errors import ConfigError
from flatwater_watch.files.output import VIDEO_OUTPUTS, check_output, replace_output
from flatwater_watch.files.regular_files import open_regular
from flatwater_watch.progress import count_steps

RENDER_ARGUMENT = "render_mode='rgb_array'"
"""Argument with which an environment is made, so that it can be seen."""
MAXIMUM_FRAME_BYTES = 8 << 20
"""Most bytes of a frame, 2.8 million pixels: the memory of a video is planned before the first frame is drawn."""
FRAME_COPIES = 6
"""Most copies of a frame in memory: drawn, passed on, with fewer colours, and encoded."""
LIBRARY_BYTES = 64 << 20
"""Bytes that libraries load to draw and to encode."""
PIECE_BYTES = 1 << 20
"""Bytes of an MP4 that are read and written at a time."""
COLOURS = 256
"""Number of colours in a frame of a GIF; each frame has a palette of its own."""
SCREEN_VARIABLES = {"DISPLAY", "WAYLAND_DISPLAY"}
"""Variables that name a screen. Where there is none, SDL, by which many environments draw, prints an error about it."""


def check_video(file: Path) -> None:
    """Refuse a video file that could not be written, before the run is read.

    Raises:
        ConfigError: the file has another ending, is of another kind, or needs a package that is missing.
    """
    if file.suffix not in VIDEO_OUTPUTS:
        raise ConfigError(f"--video {file}: expected a name that ends in {' or '.join(VIDEO_OUTPUTS)}.")
    check_output("--video", file, VIDEO_OUTPUTS[file.suffix])
    if file.suffix == ".mp4":
        _load_ffmpeg()


def plan_with_video(plan: Plan) -> Plan:
    """Return the plan of an evaluation with the memory of a video added."""
    return replace(plan, transients={**plan.transients, "video": LIBRARY_BYTES + FRAME_COPIES * MAXIMUM_FRAME_BYTES})


@dataclass(frozen=True)
class Video:
    """Records a video of a policy that plays in a world of one environment."""

    world: RenderedWorld
    policy: TrainedPolicy | KindsOnRows
    """A policy on the world's arrays; see `TrainedPolicy.on_rows`."""
    file: Path
    returns: list[float] = field(default_factory=list)
    """For each finished episode, the mean of its agents' returns."""

    def record(self, seeds: Sequence[int]) -> None:
        """Play an episode from each seed, and write all frames into one file.

        Raises:
            ConfigError: the environment draws no frames, or too large frames.
            RunError: the file cannot be written.
        """
        encode = _ENCODERS[self.file.suffix]
        frames = _require_pictures(self._play_episodes(seeds))
        pieces = encode(frames, self.world.frames_per_second, self.file.parent)
        # Episodes are played while the pieces are written.
        try:
            replace_output(self.file, pieces, VIDEO_OUTPUTS[self.file.suffix])
        finally:
            self.world.close()

    def _play_episodes(self, seeds: Sequence[int]) -> Iterator[object]:
        """Play an episode from each seed; yield a frame at its beginning and after each step.

        Adds to `returns` the mean of the agents' returns at each episode's end.
        """
        world: Any = self.world  # Any, as its methods take `legal` only if the world has masks
        spaces = self.world.spaces
        shape = spaces.envs, spaces.agents
        # The world overwrites these arrays in each step; it has one environment, at index 0.
        obs = np.zeros((*shape, *spaces.obs), spaces.obs_type)
        legal = np.zeros((*shape, spaces.legal), np.bool_)
        reward = np.zeros(shape, np.float32)
        terminated, truncated = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        masks = (legal,) if spaces.masked else ()
        only_env = np.ones(1, np.bool_)
        for seed in seeds:
            self.policy.begin()
            world.begin_(only_env, np.array([seed]), obs, *masks)
            total = np.zeros(spaces.agents)
            yield self.world.render()
            for _ in count_steps("steps of the video", range(spaces.steps)):
                actions = self.policy.act(obs[0], legal[0] if masks else None)
                world.step_(actions[None], obs, reward, terminated, truncated, *masks)
                total += reward[0]
                yield self.world.render()
                if (terminated | truncated).all():  # for every agent
                    break
            self.returns.append(float(total.mean()))


def open_video(run: Run, policy: object, file: Path) -> Video:
    """Return a video of a restored run, before its first frame, with a world of one environment that draws.

    Args:
        run: the run.
        policy: policy of the run; None if it has none.
        file: the file to write.

    Raises:
        ConfigError: the recipe plays in no environment, or the environment draws no frames.
    """
    if not isinstance(run, WorldRun) or not isinstance(policy, TrainedPolicy | KindsPolicy):
        raise ConfigError(
            f"--video {file}: a run of `{run.config.trainer}` has no environment that can be seen. Leave it out"
        )
    # Without a screen, SDL, by which many environments draw, must be told to draw in memory; elsewhere than on Linux
    # these variables say nothing.
    if sys.platform == "linux" and not SCREEN_VARIABLES & os.environ.keys():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    try:
        env_args = (*run.config.env_args, RENDER_ARGUMENT)
        rendered_run = replace(run, config=replace(run.config, env_args=env_args, env_workers=0))
        world = rendered_run.build_world(1)  # one environment
    except ConfigError as fault:
        raise ConfigError(
            f"--video {file}: {run.world_name} cannot be made with {RENDER_ARGUMENT}, as Gymnasium's video recorder "
            f"does: {fault}"
        ) from fault
    if not isinstance(world, RenderedWorld):
        world.close()
        raise ConfigError(f"--video {file}: {run.world_name} has no pictures: expected an environment with render()")
    evaluation_world = run.trainer.evaluator.world
    if (
        isinstance(world, ReplayableWorld)
        and isinstance(evaluation_world, ReplayableWorld)
        and (kept_states := evaluation_world.episode_starts.states())
    ):
        # Wrappers keep state over episodes, such as the scales of observations: the video begins with that of training.
        only_env = np.ones(1, np.bool_)
        world.episode_starts.load_(only_env, kept_states[:1])
    return Video(world, policy.on_rows(), file)


def _require_pictures(frames: Iterator[object]) -> Iterator[Array]:
    """Yield the frames as uint8 [H, W, 3], all of the size of the first.

    Raises:
        ConfigError: a frame is not such a picture, is too large, or has another size.
    """
    size: tuple[int, ...] = ()
    for frame in frames:
        array = np.ascontiguousarray(frame)
        size = size or array.shape  # of the first frame
        is_picture = array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] == 3  # noqa: PLR2004  (H, W, RGB)
        if not is_picture or array.shape != size or array.nbytes > MAXIMUM_FRAME_BYTES:
            raise ConfigError(
                f"--video: render() gave {array.dtype} {[*array.shape]}: expected uint8 [height, width, 3] of at most "
                f"{MAXIMUM_FRAME_BYTES:,} bytes, each time of one size"
            )
        yield array


class _Encoder(Protocol):
    """A function that encodes frames as a video file."""

    def __call__(self, frames: Iterator[Array], frames_per_second: float, folder: Path, /) -> Iterator[bytes]:
        """Yield the file's bytes in pieces; `frames` draws each frame when it is asked for it."""


def _encode_gif(frames: Iterator[Array], frames_per_second: float, _folder: Path) -> Iterator[bytes]:
    """Yield an endless GIF, frame by frame; Pillow's own writer would hold all frames until the end."""
    from PIL import GifImagePlugin, Image  # noqa: PLC0415  (matplotlib brings it; drawing alone needs it)

    # In milliseconds, but a GIF counts hundredths of a second; browsers slow down a frame of less than two hundredths.
    duration = 10 * max(2, round(100 / frames_per_second))
    for number, frame in enumerate(frames):
        if not number:  # the header has the size of the first frame
            height, width, _ = frame.shape
            # The header of a GIF: signature, size without a global colour table, and endless repetition.
            screen = width.to_bytes(2, "little") + height.to_bytes(2, "little") + b"\x70\x00\x00"
            yield b"GIF89a" + screen + b"\x21\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"
        image = Image.fromarray(frame).quantize(COLOURS, Image.Quantize.FASTOCTREE)
        yield from GifImagePlugin.getdata(image, duration=duration, include_color_table=True)
    yield b";"  # the end of a GIF


def _encode_mp4(frames: Iterator[Array], frames_per_second: float, folder: Path) -> Iterator[bytes]:
    """Yield an MP4 in pieces, after ffmpeg has written it to a temporary file in `folder`."""
    ffmpeg = _load_ffmpeg()
    writer = None
    with TemporaryDirectory(prefix=".flatwater-", dir=folder) as place:
        video_file = Path(place) / "video.mp4"
        for frame in frames:
            if writer is None:
                # H.264 needs even sides, as it halves the colours: ffmpeg stretches an odd side by a pixel.
                size = frame.shape[1], frame.shape[0]
                writer = ffmpeg.write_frames(
                    str(video_file), size, fps=frames_per_second, macro_block_size=2, ffmpeg_log_level="error"
                )
                writer.send(None)  # starts the generator, which takes frames from here on
            writer.send(frame)
        if writer is not None:
            writer.close()
        with open_regular(video_file, follow_links=False) as file:
            while piece := file.read(PIECE_BYTES):
                yield piece


_ENCODERS: Mapping[str, _Encoder] = {".gif": _encode_gif, ".mp4": _encode_mp4}


def _load_ffmpeg() -> Any:  # noqa: ANN401  (a module without types)
    """Return the package that runs ffmpeg.

    Raises:
        ConfigError: the package is missing.
    """
    try:
        import imageio_ffmpeg  # noqa: PLC0415  (an extra of the package)
    except ImportError as missing:
        raise ConfigError(
            "--video: an .mp4 file needs the package imageio-ffmpeg. Install it with: pip install 'flatwater[video]', "
            "or name a .gif file"
        ) from missing
    return imageio_ffmpeg
