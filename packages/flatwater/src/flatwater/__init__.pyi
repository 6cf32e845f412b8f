from flatwater.algorithms import adam as adam
from flatwater.api import TrainedRun as TrainedRun
from flatwater.api import compare as compare
from flatwater.api import evaluate as evaluate
from flatwater.api import export as export
from flatwater.api import load as load
from flatwater.api import plan as plan
from flatwater.api import resume as resume
from flatwater.api import train as train
from flatwater.checkpoints.parts import restore_checkpoint as restore_checkpoint
from flatwater.checkpoints.parts import save_checkpoint as save_checkpoint
from flatwater.envs.conformance import check_env_conformance as check_env_conformance
from flatwater.envs.wrapped.resumable import Resumable as Resumable
from flatwater.nets import stack as stack
from flatwater.recipe import Recipe as Recipe
from flatwater.replay import ring as ring
from flatwater.replay.config import ReplayConfig as ReplayConfig
from flatwater.runs.run import Run as Run

__version__: str
