"""What holds for all tests: one torch thread, because the workers share the cores, and no clock in property tests."""

import torch
from hypothesis import settings

torch.set_num_threads(1)

# A property is not slower for being run beside another process.
settings.register_profile("flatwater", deadline=None, max_examples=50)
settings.load_profile("flatwater")
