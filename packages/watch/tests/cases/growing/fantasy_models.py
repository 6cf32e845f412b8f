"""A search that asks a Gaussian process what it would believe after points that were not measured yet.

Thread: https://github.com/cornellius-gp/gpytorch/issues/2631 (gpytorch 1.14; mended by its pull request 2734)
Looks like: memory climbs with each fantasy until the machine kills the search; the collector finds nothing.
Cause: a hook on the cached mean's `grad_fn` holds the strategy whose cache holds that mean: a ring through C++.
Fix: `gpytorch.settings.detach_test_caches(True)`, `torch.no_grad()`, or a newer gpytorch.
"""

import sys
import time

import torch
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.models import ExactGP

torch.set_default_dtype(torch.double)
torch.set_num_threads(1)


class Surface(ExactGP):
    def __init__(self, points, values):
        super().__init__(points, values, GaussianLikelihood())
        self.mean_module = ConstantMean()
        self.covar_module = RBFKernel()

    def forward(self, points):
        return MultivariateNormal(self.mean_module(points), self.covar_module(points))


def main(rounds: int) -> None:
    torch.manual_seed(3)
    surface = Surface(torch.rand(60, 6), torch.rand(60)).eval()
    grid = torch.rand(32, 6)
    surface(grid)
    best = -1.0
    for _ in range(rounds):
        points = torch.rand(4, 4, 6)
        with settings.detach_test_caches(False):
            fantasy = surface.get_fantasy_model(points, surface(points).sample())
            best = max(best, fantasy(grid).mean.max().item())  # <- here
        time.sleep(0.04)
    print(f"best {best:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
