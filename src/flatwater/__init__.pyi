from flatwater.api import TrainedRun as TrainedRun
from flatwater.api import evaluate as evaluate
from flatwater.api import load as load
from flatwater.api import plan as plan
from flatwater.api import resume as resume
from flatwater.api import train as train
from flatwater.envs.conformance import check_env_conformance as check_env_conformance
from flatwater.memory.watch.context import watch as watch
from flatwater.memory.watch.freed import expect_freed as expect_freed
from flatwater.runs.recipe import Recipe as Recipe
from flatwater.runs.run import Run as Run
from flatwater.state.tree import state as state

__version__: str
