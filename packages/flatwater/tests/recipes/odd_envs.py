# ruff: noqa: ARG002  (an environment has the arguments of Gymnasium's)
"""Environments as people bring them: odd spaces, signatures, exits, faults. `EXPECTED` says what is told of each.

An empty text stands for one that is odd and can be learned in.
"""

import os
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces as sp

from flatwater.envs.world import Spaces

EXPECTED: dict[str, str] = {}
Given = tuple[Any, dict[str, Any]]
Step = tuple[Any, Any, Any, Any, Any]


def expect(text: str) -> Any:
    """What is to be told of a class."""

    def note(cls: type) -> type:
        EXPECTED[cls.__name__] = text
        return cls

    return note


@expect("")
class Fine(gymnasium.Env[Any, Any]):
    """Episodes of five steps."""

    observation_space: sp.Space[Any] = sp.Box(-10, 10, (4,), np.float32)
    action_space: sp.Space[Any] = sp.Discrete(2)
    age = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Given:
        super().reset(seed=seed, options=options)
        self.age = 0
        return self.make_observation(), {}

    def step(self, _action: Any) -> Step:
        self.age += 1
        return self.make_observation(), self.paid(), self.age >= 5, False, {}

    def make_observation(self) -> Any:
        return np.full(4, self.age, np.float32)

    def paid(self) -> Any:
        return 1.0


# signatures


@expect("Sized(size: int) cannot be called: missing a required argument: 'size'")
class Sized(Fine):
    def __init__(self, size: int) -> None:
        self.size = size


@expect("KeywordSized(*, size: int) cannot be called: missing a required")
class KeywordSized(Fine):
    def __init__(self, *, size: int) -> None:
        self.size = size


@expect("reset() raised TypeError")
class Unseeded(Fine):
    def reset(self) -> Given:  # type: ignore[override]
        return super().reset()


@expect("reset() raised TypeError")
class OldSeeded(Fine):
    def reset(self, rng: int) -> Given:  # type: ignore[override]
        return super().reset(seed=rng)


@expect("step() raised TypeError")
class Actionless(Fine):
    def step(self) -> Step:  # type: ignore[override]
        return super().step(0)


@expect("step() raised TypeError")
class TwoActions(Fine):
    def step(self, action: Any, other: Any) -> Step:  # type: ignore[override]
        return super().step(action or other)


@expect("reset() raised TypeError")
class ResetIsNoMethod(Fine):
    reset = None  # type: ignore[assignment]


@expect("step() raised TypeError")
class StepIsANumber(Fine):
    step = 3  # type: ignore[assignment]


@expect("StepIsMissing")
class StepIsMissing(gymnasium.Env[Any, Any]):
    observation_space = Fine.observation_space
    action_space = Fine.action_space
    reset = Fine.reset  # type: ignore[assignment]
    make_observation = Fine.make_observation


@expect("not enough values to unpack (expected 5, got 4)")
class FourValues(Fine):
    def step(self, action: Any) -> Any:
        return super().step(action)[:4]


@expect("too many values to unpack")
class SixValues(Fine):
    def step(self, action: Any) -> Any:
        return *super().step(action), None


@expect("does not give (observation, reward, terminated, truncated, info)")
class StepGivesNothing(Fine):
    def step(self, action: Any) -> Any:
        super().step(action)


@expect("does not give (observation, info)")
class ResetGivesNothing(Fine):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)


@expect("does not give (observation, info), with an observation of its observation_space: it gives array([")
class ResetOfOldGym(Fine):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]


@expect("the info is None (NoneType)")
class InfoOfResetIsNone(Fine):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0], None


@expect("the info is None (NoneType)")
class InfoOfStepIsNone(Fine):
    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], None


@expect("the info is [] (list)")
class InfoIsAList(Fine):
    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], []


class _Made(Fine):
    """Fails as it is made."""

    fault: Any = ValueError("a bad sail")

    def __init__(self) -> None:
        raise self.fault


class _Resetting(Fine):
    fault: Any = ValueError("a bad sail")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Given:
        raise self.fault


class _Stepping(Fine):
    fault: Any = ValueError("a bad sail")

    def step(self, action: Any) -> Step:
        if self.age >= 3:
            raise self.fault
        return super().step(action)


FAULTS = {
    "Value": (ValueError("a bad sail"), "ValueError: a bad sail"),
    "Assertion": (AssertionError(), "AssertionError ("),
    "Key": (KeyError("mast"), "KeyError: 'mast'"),
    "Index": (IndexError("no mast"), "IndexError: no mast"),
    "Zero": (ZeroDivisionError("division by zero"), "ZeroDivisionError"),
    "Unready": (NotImplementedError("later"), "NotImplementedError: later"),
    "Pipe": (BrokenPipeError(32, "the simulator is dead"), "BrokenPipeError"),
    "Reset": (ConnectionResetError(104, "the simulator is dead"), "ConnectionResetError"),
    "Ended": (EOFError("the simulator is dead"), "EOFError"),
    "Disk": (OSError(28, "No space left on device"), "OSError: [Errno 28]"),
    "Missing": (ModuleNotFoundError("No module named 'sails'"), "ModuleNotFoundError: No module named 'sails'"),
    "Deep": (RecursionError("too deep"), "RecursionError"),
    "Stop": (StopIteration(), "StopIteration"),
    "Interrupt": (KeyboardInterrupt(), "KeyboardInterrupt"),
    "Exit": (SystemExit(), "SystemExit"),
    "ExitZero": (SystemExit(0), "SystemExit: 0"),
    "ExitThree": (SystemExit(3), "SystemExit: 3"),
    "ExitText": (SystemExit("good bye"), "SystemExit: good bye"),
    "Own": (type("SailError", (BaseException,), {})("torn"), "SailError: torn"),
    "Lines": (RuntimeError("first\nsecond"), "RuntimeError: first ("),
}
for _name, (_fault, _said) in FAULTS.items():
    for _base, _call in ((_Made, "raised"), (_Resetting, "reset() raised"), (_Stepping, "step() raised")):
        _cls = type(f"{_name}{_base.__name__}", (_base,), {"fault": _fault, "__module__": __name__})
        globals()[_cls.__name__] = expect(f"{_call} {_said}")(_cls)


@expect("step() raised SystemExit")
class Pygame(Fine):
    def step(self, action: Any) -> Step:
        if self.age == 2:
            sys.exit()
        return super().step(action)


@expect("a bad sail")
class AsksALibrary(Fine):
    """The last line that is its own is told."""

    def step(self, action: Any) -> Step:
        if self.age == 2:
            np.concatenate([np.zeros((2, 2)), np.zeros(3)])  # a bad sail
        return super().step(action)


EXPECTED["AsksALibrary"] = "step() raised ValueError: all the input array"


@expect("Can't call numpy() on Tensor that requires grad")
class SeesALeaf(Fine):
    """A tensor of torch that requires a gradient."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Given:
        return torch.as_tensor(super().reset(seed=seed, options=options)[0]).requires_grad_(), {}


# spaces


@expect("SpacesMissing is incomplete")
class SpacesMissing(gymnasium.Env[Any, Any]):
    reset = Fine.reset  # type: ignore[assignment]
    step = Fine.step


@expect("action_space is of <class 'NoneType'>")
class ActionsAreNone(Fine):
    action_space = None  # type: ignore[assignment]


@expect("observation_space is of <class 'tuple'>")
class ObservationsAreATuple(Fine):
    observation_space = (4,)  # type: ignore[assignment]


@expect("its spaces raised ValueError: not yet")
class SpacesFail(Fine):
    @property
    def action_space(self) -> Any:
        raise ValueError("not yet")


@expect("the same spaces")
class OtherActionsInEachEpisode(Fine):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Given:
        self.action_space = sp.Discrete(2 + int(bool(self.age)))
        return super().reset(seed=seed)


@expect("the same spaces")
class OtherObservationsInEachCopy(Fine):
    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.observation_space = sp.Box(0, self.made, (4,), np.float32)


@expect("")
class SpacesAreMadeAnew(Fine):
    @property
    def action_space(self) -> Any:
        return sp.Discrete(2)


ACTIONS: dict[str, tuple[Any, str]] = {
    "ActionsOfNothing": (sp.Box(0, 1, (0,), np.float32), "no number"),
    "ActionsUnbounded": (sp.Box(-np.inf, np.inf, (1,), np.float32), "TransformAction"),
    "ActionsHalfBounded": (sp.Box(0, np.inf, (1,), np.float32), "TransformAction"),
    "ActionsOfTwoAxes": (sp.Box(0, 1, (2, 2), np.float32), "TransformAction"),
    "ActionsOfADict": (sp.Dict(a=sp.Discrete(2)), "TransformAction"),
    "ActionsOfATuple": (sp.Tuple([sp.Discrete(2), sp.Discrete(3, start=1)]), ""),
    "ActionsOfAMixedTuple": (sp.Tuple([sp.Discrete(2), sp.Box(0, 1)]), "TransformAction"),
    "ActionsOfText": (sp.Text(3), "TransformAction"),
    "ActionsOfAGraph": (sp.Graph(sp.Discrete(2), None), "TransformAction"),
    "ActionsOfASequence": (sp.Sequence(sp.Discrete(2)), "TransformAction"),
    "ActionsFromThree": (sp.Discrete(3, start=3), ""),
    "ActionsFromBelow": (sp.Discrete(3, start=-1), ""),
    "ActionsOfABillion": (sp.Discrete(1 << 30), "has 1,073,741,824 actions: expected at most 1,048,576"),
    "ActionsOfABillionPairs": (sp.MultiDiscrete([1 << 30, 2]), "has 1,073,741,826 actions: expected at most"),
    "ActionsOne": (sp.Discrete(1), ""),
    "ActionsOfBits": (sp.MultiBinary(3), ""),
    "ActionsOfLists": (sp.MultiDiscrete([2, 3]), ""),
    "ActionsOfDoubles": (sp.Box(-1, 1, (2,), np.float64), ""),
    "ActionsOfWholeNumbers": (sp.Box(0, 5, (2,), np.int64), ""),
}
for _name, (_space, _said) in ACTIONS.items():
    globals()[_name] = expect(_said)(type(_name, (Fine,), {"action_space": _space, "__module__": __name__}))


@expect("")
class ActionsInATable(Fine):
    """Tetris of Gymnasium has `actions` that are no enum."""

    actions = {"left": 0, "right": 1}  # noqa: RUF012  (of a class that nobody changes)


class _Sampled(Fine):
    """Shows any member of its space."""

    def make_observation(self) -> Any:
        self.observation_space.seed(self.age)
        return self.observation_space.sample()


class OwnSpace(sp.Space[Any]):
    """Gymnasium cannot flatten it."""

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        return 0

    def contains(self, x: Any) -> bool:
        return x == 0


OBSERVATIONS: dict[str, tuple[Any, str]] = {
    "SeesNothing": (sp.Box(0, 1, (0,), np.float32), "no number"),
    "SeesAnEmptyDict": (sp.Dict({}), "no number"),
    "SeesAnEmptyTuple": (sp.Tuple([]), "no number"),
    "SeesText": (sp.Text(5), "TransformObservation"),
    "SeesTextInADict": (sp.Dict(a=sp.Text(5), b=sp.Discrete(2)), "FilterObservation(filter_keys=['b'])"),
    "SeesAGraph": (sp.Graph(sp.Discrete(2), None), "TransformObservation"),
    "SeesASequence": (sp.Sequence(sp.Discrete(2)), "TransformObservation"),
    "SeesOneOf": (sp.OneOf([sp.Discrete(2), sp.Discrete(3)]), "TransformObservation"),
    "SeesDiscrete": (sp.Discrete(5), ""),
    "SeesABillion": (sp.Discrete(1 << 30), "are 1,073,741,824 numbers, a place for each value of a choice"),
    "SeesASpaceOfOnesOwn": (OwnSpace(), "got a OwnSpace, which has no fixed number of numbers"),
    "SeesDiscreteFromThree": (sp.Discrete(5, start=3), ""),
    "SeesBits": (sp.MultiBinary(6), ""),
    "SeesBitsOfTwoAxes": (sp.MultiBinary([2, 3]), ""),
    "SeesLists": (sp.MultiDiscrete([2, 3]), ""),
    "SeesUnbounded": (sp.Box(-np.inf, np.inf, (3,), np.float32), ""),
    "SeesHalves": (sp.Box(-1, 1, (3,), np.float16), ""),
    "SeesDoubles": (sp.Box(-1, 1, (3,), np.float64), ""),
    "SeesBytes": (sp.Box(0, 255, (7,), np.uint8), ""),
    "SeesOneNumber": (sp.Box(-1, 1, (), np.float32), ""),
    "SeesADictInADict": (sp.Dict(a=sp.Dict(b=sp.Box(-1, 1, (2,), np.float32)), c=sp.Discrete(3)), ""),
    "SeesATuple": (sp.Tuple([sp.Discrete(2), sp.Box(-1, 1, (2,), np.float32)]), ""),
}
for _name, (_space, _said) in OBSERVATIONS.items():
    globals()[_name] = expect(_said)(type(_name, (_Sampled,), {"observation_space": _space, "__module__": __name__}))


# what is seen is not what was said


class _Then(Fine):
    """From the third step on it shows something else."""

    other: Any = None

    def make_observation(self) -> Any:
        return type(self).other if self.age >= 3 else super().make_observation()


LATER: dict[str, tuple[Any, str]] = {
    "ScalarMidway": (0.5, "the observation has the shape ()"),
    "OneNumberMidway": (np.zeros(1, np.float32), "the observation has the shape (1,)"),
    "LongerMidway": (np.zeros(5, np.float32), "the observation has the shape (5,)"),
    "ColumnMidway": (np.zeros((4, 1), np.float32), "the observation has the shape (4, 1)"),
    "SquareMidway": (np.zeros((2, 2), np.float32), "the observation has the shape (2, 2)"),
    "EmptyMidway": (np.zeros(0, np.float32), "the observation has the shape (0,)"),
    "NoneMidway": (None, "the observation has the shape ()"),
    "DictMidway": ({"a": 1}, "the observation has the shape ()"),
    "TextMidway": (np.array(["a", "b", "c", "d"]), "the observation is of "),
    "TextOfNumbersMidway": (np.array(["1", "2", "3", "4"]), "the observation is of "),
    "ComplexMidway": (np.zeros(4, np.complex64), "the observation is of "),
    "ObjectsMidway": (np.array([1, 2, None, 4], object), "the observation is of "),
    "RaggedMidway": ([1, 2, [3], 4], "inhomogeneous shape"),
    "NanMidway": (np.array([0, np.nan, 0, 0], np.float32), "observation[1] is nan"),
    "InfinityMidway": (np.array([0, 0, 0, np.inf], np.float32), "observation[3] is inf"),
    "TooLargeMidway": (np.array([0, 1e300, 0, 0]), "observation[1] is inf"),
    "DoublesMidway": (np.full(4, 0.25), ""),
    "WholeNumbersMidway": (np.arange(4), ""),
    "BoolsMidway": (np.ones(4, np.bool_), ""),
    "ListMidway": ([1, 2, 3, 4], ""),
}
for _name, (_other, _said) in LATER.items():
    globals()[_name] = expect(_said)(type(_name, (_Then,), {"other": staticmethod(lambda: 0), "__module__": __name__}))
    globals()[_name].other = _other


@expect("'speed'")
class KeyMissing(Fine):
    observation_space = sp.Dict(place=sp.Box(-9, 9, (2,), np.float32), speed=sp.Box(-9, 9, (1,), np.float32))

    def make_observation(self) -> Any:
        return {"place": np.zeros(2, np.float32)}


@expect("observation['speed'][0] is nan")
class NanOfAKey(KeyMissing):
    def make_observation(self) -> Any:
        return {"place": np.zeros(2, np.float32), "speed": np.full(1, np.nan if self.age == 4 else 0, np.float32)}


@expect("the observation has the shape (1,)")
class KeysSwapped(KeyMissing):
    def make_observation(self) -> Any:
        return {"place": np.zeros(1, np.float32), "speed": np.zeros(2, np.float32)}


@expect("is not in Discrete(5)")
class BeyondDiscrete(Fine):
    observation_space = sp.Discrete(5)

    def make_observation(self) -> Any:
        return self.age + 1


@expect("is not in Discrete(5)")
class BelowDiscrete(Fine):
    observation_space = sp.Discrete(5)

    def make_observation(self) -> Any:
        return -1


@expect("NanAtFirst.reset() does not give (observation, info)")
class NanAtFirst(Fine):
    def make_observation(self) -> Any:
        return np.full(4, np.nan, np.float32)


PAID: dict[str, tuple[Any, str]] = {
    "PaysNan": (float("nan"), "the reward is nan"),
    "PaysInfinity": (float("inf"), "the reward is inf"),
    "PaysMuch": (1e300, "the reward is 1e+300"),
    "PaysAllThereIs": (10**400, "the reward is 1000000"),
    "PaysNothing": (None, "the reward is None (NoneType)"),
    "PaysText": ("1.5", "the reward is '1.5' (str)"),
    "PaysComplex": (1j, "the reward is 1j (complex)"),
    "PaysTwice": (np.zeros(2), "expected a number. gymnasium.wrappers.TransformReward makes one of several"),
    "PaysAList": ([1.0, 2.0], "the reward is "),
    "PaysOneInAnArray": (np.ones(1), ""),
    "PaysABool": (True, ""),
    "PaysHalves": (np.float16(0.5), ""),
    "PaysAWholeNumber": (7, ""),
}
for _name, (_paid, _said) in PAID.items():
    globals()[_name] = expect(_said)(type(_name, (Fine,), {"paid": lambda _, paid=_paid: paid, "__module__": __name__}))

ENDS: dict[str, tuple[Any, str]] = {
    "EndsByText": ("False", "terminated is 'False' (str)"),
    "EndsByNone": (None, "terminated is None (NoneType)"),
    "EndsByTwo": (2, "terminated is 2 (int)"),
    "EndsByNan": (float("nan"), "terminated is nan (float)"),
    "EndsByAList": ([True, False], "terminated is [True, False] (list)"),
    "EndsByOne": (1, ""),
    "EndsByAnArray": (np.array([True]), ""),
}


class _Ends(Fine):
    by: Any = None

    def step(self, action: Any) -> Step:
        seen, paid, over, cut, info = super().step(action)
        return seen, paid, type(self).by if over else False, cut, info


for _name, (_by, _said) in ENDS.items():
    globals()[_name] = expect(_said)(type(_name, (_Ends,), {"by": _by, "__module__": __name__}))


@expect("")
class Warns(Fine):
    """Warnings of its own are its own."""

    def step(self, action: Any) -> Step:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("a bad sail", stacklevel=2)
        return super().step(action)


@expect("")
class ClosesTwice(Fine):
    def close(self) -> None:
        os.close(os.dup(0))


# worlds and teachers of one's own


@expect("")
class OddWorld:
    """Two agents of one number."""

    def __init__(self, envs: int) -> None:
        self.spaces = Spaces(envs, 1, "vector", (2,), ("one", "other"), 4)
        self.age = np.zeros(envs, np.int64)

    def begin_(self, which: Any, seeds: Any, obs: Any) -> None:
        self.age[which], obs[which] = 0, 0.0

    def step_(self, actions: Any, obs: Any, reward: Any, terminated: Any, truncated: Any) -> None:
        self.age += 1
        obs[...], reward[...], terminated[...], truncated[...] = 0.5, 1.0, False, (self.age >= 4)[:, None]

    def close(self) -> None:
        pass


@expect("step_() raised SystemExit: 0")
class WorldExits(OddWorld):
    def step_(self, *_: Any) -> None:  # type: ignore[override]
        sys.exit(0)


@expect("begin_() raised TypeError")
class WorldUnseeded(OddWorld):
    def begin_(self, which: Any, obs: Any) -> None:  # type: ignore[override]
        pass


@expect("step_ wrote the reward nan for agent 0 of environment 1")
class WorldPaysNan(OddWorld):
    def step_(self, actions: Any, obs: Any, reward: Any, terminated: Any, truncated: Any) -> None:
        super().step_(actions, obs, reward, terminated, truncated)
        reward[1] = np.nan


@expect("begin_ wrote the observation inf for agent 0 of environment 0, in number 1 (odd_envs.py")
class WorldShowsInfinity(OddWorld):
    def begin_(self, which: Any, seeds: Any, obs: Any) -> None:
        super().begin_(which, seeds, obs)
        obs[0, 0, 1] = np.inf


@expect("`spaces`: ")
class WorldOfNoSpaces(OddWorld):
    def __init__(self, envs: int) -> None:
        self.spaces = None  # type: ignore[assignment]


@expect("raised ZeroDivisionError")
class WorldFails(OddWorld):
    def __init__(self, envs: int) -> None:
        self.spaces = Spaces(envs // 0, 1, "vector", (2,), ("one", "other"), 4)


class Still:
    """A teacher that always does the same."""

    def __init__(self, world: Any) -> None:
        self.world = world

    def begin_(self, which: Any) -> None:
        pass

    def step_batch(self, obs: Any, actions_out: Any) -> None:
        actions_out[...] = 0


class StillExits(Still):
    def step_batch(self, obs: Any, actions_out: Any) -> None:
        sys.exit()


class StillAsksTheWorld(Still):
    def begin_(self, which: Any) -> None:
        self.world.position()


class StillTakesMore(Still):
    def step_batch(self, obs: Any, actions_out: Any, more: Any) -> None:  # type: ignore[override]
        pass
