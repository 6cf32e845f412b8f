"""What holds for all tests: one torch thread, because the workers share the cores, and no clock in property tests.

No thread that outlives its test, either: a leak finder in the same process would see what it gathers.
"""

import os

import torch
from hypothesis import settings

torch.set_num_threads(1)
os.environ["WANDB_ERROR_REPORTING"] = "false"  # else wandb starts a thread that sends its own telemetry

# A property is not slower for being run beside another process.
settings.register_profile("flatwater", deadline=None, max_examples=50)
settings.load_profile("flatwater")
