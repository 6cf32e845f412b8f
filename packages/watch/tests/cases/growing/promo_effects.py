"""How strongly each promotion lifts the sales of the articles, by variational inference in pyro.

Thread: https://github.com/pyro-ppl/pyro/issues/3094, https://github.com/pyro-ppl/pyro/issues/3209, https://github.com/pyro-ppl/pyro/issues/175
Looks like: the mean and the spread of each promotion stay, although a number is all that is asked for.
Cause: parameters are in one store of the process, and each promotion brings new names.
Fix: `pyro.clear_param_store()` after each promotion, or `with pyro.get_param_store().scope()`, or the same names.
"""

import sys

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.optim import Adam
from torch.distributions import constraints

torch.set_num_threads(1)
ARTICLES = 36_000


def observe(promotion):
    generator = torch.Generator().manual_seed(promotion)
    lift = 0.2 + 0.1 * torch.randn(ARTICLES, generator=generator)
    return lift + 0.3 * torch.randn(3, ARTICLES, generator=generator)


def model(_promotion, sales):
    with pyro.plate("articles", ARTICLES):
        lift = pyro.sample("lift", dist.Normal(0.0, 1.0))
        with pyro.plate("weeks", 3):
            pyro.sample("sales", dist.Normal(lift, 0.3), obs=sales)


def guide(promotion, _sales):
    mean = pyro.param(f"promotion {promotion} mean", torch.zeros(ARTICLES))  # <- here
    start = torch.full((ARTICLES,), 0.3)  # <- or here
    spread = pyro.param(f"promotion {promotion} spread", start, constraint=constraints.positive)  # <- or here
    with pyro.plate("articles", ARTICLES):
        pyro.sample("lift", dist.Normal(mean, spread))


def estimate(promotion, steps=12):
    sales = observe(promotion)
    inference = SVI(model, guide, Adam({"lr": 0.08}), loss=Trace_ELBO())
    for _ in range(steps):
        inference.step(promotion, sales)  # <- or here
    return pyro.param(f"promotion {promotion} mean").mean().item()  # <- or here


def main(promotions: int) -> None:
    pyro.set_rng_seed(6)
    lifts = 0.0
    for promotion in range(promotions):
        lifts += estimate(promotion)  # <- or here
    print(f"{promotions} promotions, mean lift {lifts / promotions:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 229)
