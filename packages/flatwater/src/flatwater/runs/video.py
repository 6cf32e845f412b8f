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
from flatwater.envs.wrapped.native import RenderedWorld
from flatwater.memory.planner import Plan
from flatwater.runs.run import Run
from flatwater.runs.trained_policy import TrainedPolicy
from flatwater.runs.world_run import WorldRun
from flatwater_watch.errors import ConfigError
from flatwater_watch.files.output import VIDEO_OUTPUTS, check_output, replace_output
from flatwater_watch.files.safe_read import open_regular
from flatwater_watch.progress import count_steps

RENDERED = "render_mode='rgb_array'"
"""Argument with which an environment is made, so that it can be seen."""
MAXIMUM_FRAME = 8 << 20
"""Most bytes of a frame, 2.8 million pixels: the memory of a video is planned before the first frame is drawn."""
FRAMES = 6
"""Copies of a frame at once: drawn, handed over, in fewer colours, and encoded."""
LIBRARY_BYTES = 64 << 20
"""Bytes that libraries load to draw and to encode."""
PIECE = 1 << 20
"""Bytes of an MP4 that are copied at a time."""
COLOURS = 256
"""Colours of a frame of a GIF: each frame has its own."""
SCREENS = {"DISPLAY", "WAYLAND_DISPLAY"}
"""Variables that name a screen. Where there is none, SDL, by which many environments draw, prints an error about it."""


def check_video(file: Path) -> None:
    """Refuse a file that cannot be written, before a run is read.

    Raises:
        ConfigError: the file has another ending, is of another kind, or needs a package that is missing.
    """
    if file.suffix not in VIDEO_OUTPUTS:
        raise ConfigError(f"--video {file}: expected a name that ends in {' or '.join(VIDEO_OUTPUTS)}.")
    check_output("--video", file, VIDEO_OUTPUTS[file.suffix])
    if file.suffix == ".mp4":
        _load_ffmpeg()


def plan_with_video(plan: Plan) -> Plan:
    """Return the plan of an evaluation that writes a video as well."""
    return replace(plan, transients={**plan.transients, "video": LIBRARY_BYTES + FRAMES * MAXIMUM_FRAME})


@dataclass(frozen=True)
class Video:
    """A video to be recorded: a world of one environment that can be seen, and the policy that plays in it."""

    world: RenderedWorld
    policy: TrainedPolicy
    """It reads the world's rows."""
    file: Path
    returns: list[float] = field(default_factory=list)
    """Mean return of the agents in each episode that is over."""

    def record(self, seeds: Sequence[int]) -> None:
        """Play an episode from each seed, and write all frames as one file.

        Raises:
            ConfigError: the environment draws no frames, or too large frames.
            RunError: the file cannot be written.
        """
        encode = _ENCODERS[self.file.suffix]
        pieces = encode(_checked_frames(self._play(seeds)), self.world.frames_per_second, self.file.parent)
        try:
            replace_output(self.file, pieces, VIDEO_OUTPUTS[self.file.suffix])
        finally:
            self.world.close()

    def _play(self, seeds: Sequence[int]) -> Iterator[object]:
        """Yield the world's frames at the beginning and after each step of each episode."""
        world: Any = self.world  # its methods take `legal` where it has masks, and not where it has none
        spaces = self.world.spaces
        shape = spaces.envs, spaces.agents
        obs, legal = np.zeros((*shape, *spaces.obs), spaces.obs_type), np.zeros((*shape, spaces.legal), np.bool_)
        reward, (terminated, truncated) = np.zeros(shape, np.float32), np.zeros((2, *shape), np.bool_)
        masks = (legal,) if spaces.masked else ()
        for seed in seeds:
            self.policy.begin()
            world.begin_(np.ones(1, np.bool_), np.array([seed]), obs, *masks)
            total = np.zeros(spaces.agents)
            yield self.world.render()
            for _ in count_steps("steps of the video", range(spaces.steps)):
                actions = self.policy.act(obs[0], legal[0] if masks else None)
                world.step_(actions[None], obs, reward, terminated, truncated, *masks)
                total += reward[0]
                yield self.world.render()
                if (terminated | truncated).all():
                    break
            self.returns.append(float(total.mean()))


def open_video(run: Run, policy: object, file: Path) -> Video:
    """Return a video of a restored run; nothing is drawn yet.

    Args:
        run: the run.
        policy: policy of the run; None if it has none.
        file: the file to write.

    Raises:
        ConfigError: there is nothing to be seen: the recipe plays in no environment, or the environment has no
            pictures.
    """
    if not isinstance(run, WorldRun) or not isinstance(policy, TrainedPolicy):
        raise ConfigError(
            f"--video {file}: a run of `{run.config.trainer}` has no environment that can be seen. Leave it out"
        )
    if sys.platform == "linux" and not SCREENS & os.environ.keys():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    try:
        rendered_run = replace(
            run, config=replace(run.config, env_args=(*run.config.env_args, RENDERED), env_workers=0)
        )
        world = rendered_run.build_world(1)
    except ConfigError as fault:
        raise ConfigError(
            f"--video {file}: {run.world_name} cannot be made with {RENDERED}, as Gymnasium's video recorder does: "
            f"{fault}"
        ) from fault
    if not isinstance(world, RenderedWorld):
        world.close()
        raise ConfigError(f"--video {file}: {run.world_name} has no pictures: expected an environment with render()")
    judged = run.trainer.evaluator.world
    if (
        isinstance(world, ReplayableWorld)
        and isinstance(judged, ReplayableWorld)
        and (kept := judged.beginnings.states())
    ):
        # What wrappers keep over episodes, such as the scales of observations, is a part of what was trained.
        world.beginnings.load_(np.ones(1, np.bool_), kept[:1])
    return Video(world, policy.on_rows(), file)


def _checked_frames(frames: Iterator[object]) -> Iterator[Array]:
    """Yield the frames, which must be pictures of one size.

    Raises:
        ConfigError: a frame is not a picture, or of another size.
    """
    size: tuple[int, ...] = ()
    for frame in frames:
        array = np.ascontiguousarray(frame)
        size = size or array.shape
        is_picture = array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] == 3  # noqa: PLR2004  (H, W, RGB)
        if not is_picture or array.shape != size or array.nbytes > MAXIMUM_FRAME:
            raise ConfigError(
                f"--video: render() gave {array.dtype} {[*array.shape]}: expected uint8 [height, width, 3] of at most "
                f"{MAXIMUM_FRAME:,} bytes, each time of one size"
            )
        yield array


class _Encoder(Protocol):
    """Encodes frames into pieces of a file."""

    def __call__(self, frames: Iterator[Array], pace: float, folder: Path, /) -> Iterator[bytes]:
        """Yield the file's bytes; frames of this many a second are drawn as they are asked for."""


def _encode_gif(frames: Iterator[Array], pace: float, _folder: Path) -> Iterator[bytes]:
    """Yield a GIF that repeats, frame by frame: Pillow's own way to save one keeps all frames until the end."""
    from PIL import GifImagePlugin, Image  # noqa: PLC0415  (matplotlib brings it; drawing alone needs it)

    # In hundredths of a second; browsers show whatever is faster than 2 of them more slowly.
    duration = 10 * max(2, round(100 / pace))
    for number, frame in enumerate(frames):
        if not number:
            height, width, _ = frame.shape
            screen = width.to_bytes(2, "little") + height.to_bytes(2, "little") + b"\x70\x00\x00"
            yield b"GIF89a" + screen + b"\x21\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"
        image = Image.fromarray(frame).quantize(COLOURS, Image.Quantize.FASTOCTREE)
        yield from GifImagePlugin.getdata(image, duration=duration, include_color_table=True)
    yield b";"


def _encode_mp4(frames: Iterator[Array], pace: float, folder: Path) -> Iterator[bytes]:
    """Yield an MP4 in pieces, once ffmpeg has written it whole to a temporary file next to its place."""
    ffmpeg = _load_ffmpeg()
    writer = None
    with TemporaryDirectory(prefix=".flatwater-", dir=folder) as place:
        whole = Path(place) / "video.mp4"
        for frame in frames:
            if writer is None:
                # H.264 halves the colours, so sides are even; ffmpeg stretches by a pixel where one is not.
                size = frame.shape[1], frame.shape[0]
                writer = ffmpeg.write_frames(str(whole), size, fps=pace, macro_block_size=2, ffmpeg_log_level="error")
                writer.send(None)
            writer.send(frame)
        if writer is not None:
            writer.close()
        with open_regular(whole, follow=False) as file:
            while piece := file.read(PIECE):
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
