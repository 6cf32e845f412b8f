"""PPO with its environment inside one compiled program, after purejaxrl: how far a world in Python is from that.

    python benchmarks/flatwater/ppo_in_jax.py [--envs 8 64 256]     prints agent steps for each second of CPU time

Needs JAX and gymnax (`pip install jax gymnax`), which nothing else here does. CartPole-v1, blocks of 128 steps, 4
epochs of 4 minibatches, actor and critic of two tanh layers of 64, Adam, and gradients clipped at 0.5. The program is
compiled before it is timed. `mean return` shows that it learns: rewards by the number of episodes of the last blocks.
"""
# ruff: noqa: ANN401  (trees of arrays have no types in JAX)

import argparse
import os
import sys
import time
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
try:
    import gymnax
    import jax
    import jax.numpy as jnp
except ImportError:
    sys.exit("ppo_in_jax.py needs JAX and gymnax: pip install jax gymnax")

STEPS, EPOCHS, PARTS, WIDTH = 128, 4, 4, 64
GAMMA, LAM, CLIP, RATE, MAXIMUM_NORM, VALUE = 0.99, 0.95, 0.2, 1e-3, 0.5, 0.05
BLOCKS = 50
"""In one call of the program."""


def net(rng: Any, outputs: int) -> list[Any]:
    """Weights of a network that reads four numbers."""
    widths = (4, WIDTH, WIDTH, outputs)
    keys = jax.random.split(rng, 3)
    return [
        (jax.random.normal(key, (a, b)) * (a**-0.5) * (0.01 if b == outputs else 1), jnp.zeros(b))
        for key, a, b in zip(keys, widths, widths[1:], strict=False)
    ]


def run(weights: list[Any], x: Any) -> Any:
    """Tanh layers, and a linear one."""
    for w, b in weights[:-1]:
        x = jnp.tanh(x @ w + b)
    return x @ weights[-1][0] + weights[-1][1]


def loss(both: Any, batch: Any) -> Any:
    """PPO's, with the critic's beside it."""
    obs, action, before, advantage, returns = batch
    log_p = jax.nn.log_softmax(run(both[0], obs))
    ratio = jnp.exp(jnp.take_along_axis(log_p, action[:, None], 1)[:, 0] - before)
    clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
    value = run(both[1], obs)[:, 0]
    return -jnp.minimum(ratio * advantage, clipped * advantage).mean() + VALUE * ((value - returns) ** 2).mean() / 2


def adam(both: Any, moments: Any, grads: Any) -> tuple[Any, Any]:
    """One step, of a gradient that is cut to its largest norm."""
    first, second, count = moments
    norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(grads)))
    grads = jax.tree.map(lambda g: g * jnp.minimum(1, MAXIMUM_NORM / (norm + 1e-6)), grads)
    count += 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
    scale = jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    both = jax.tree.map(lambda w, m, v: w - RATE * scale * m / (jnp.sqrt(v) + 1e-8), both, first, second)
    return both, (first, second, count)


def program(envs: int) -> tuple[Any, Any]:
    """Return the function that trains for `BLOCKS` blocks, and the state that it begins with."""
    env, params = gymnax.make("CartPole-v1")

    def act(carry: Any, _: Any) -> tuple[Any, Any]:
        both, state, obs, rng = carry
        rng, draw, move = jax.random.split(rng, 3)
        log_p = jax.nn.log_softmax(run(both[0], obs))
        action = jax.random.categorical(draw, log_p)
        before = jnp.take_along_axis(log_p, action[:, None], 1)[:, 0]
        value = run(both[1], obs)[:, 0]
        after, state, reward, done, *_ = jax.vmap(env.step, (0, 0, 0, None))(
            jax.random.split(move, envs), state, action, params
        )
        return (both, state, after, rng), (obs, action, before, value, reward, done)

    def estimate(carry: Any, step: Any) -> tuple[Any, Any]:
        ahead, following = carry
        value, reward, done = step
        error = reward + GAMMA * following * (1 - done) - value
        ahead = error + GAMMA * LAM * (1 - done) * ahead
        return (ahead, value), ahead

    def learn(carry: Any, rows: Any) -> tuple[Any, None]:
        both, moments, columns = carry
        grads = jax.grad(loss)(both, jax.tree.map(lambda column: column[rows], columns))
        return (*adam(both, moments, grads), columns), None

    def block(carry: Any, _: Any) -> tuple[Any, Any]:
        both, moments, state, obs, rng = carry
        (_, state, obs, rng), kept = jax.lax.scan(act, (both, state, obs, rng), None, STEPS)
        seen, action, before, value, reward, done = kept
        last = run(both[1], obs)[:, 0]
        _, advantage = jax.lax.scan(estimate, (jnp.zeros(envs), last), (value, reward, done), reverse=True)
        returns = advantage + value
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        columns = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (seen, action, before, advantage, returns))
        rng, *keys = jax.random.split(rng, EPOCHS + 1)
        orders = jnp.concatenate([jax.random.permutation(key, STEPS * envs).reshape(PARTS, -1) for key in keys])
        (both, moments, _), _ = jax.lax.scan(learn, (both, moments, columns), orders)
        return (both, moments, state, obs, rng), reward.sum() / jnp.maximum(done.sum(), 1)

    actor, critic, reset, rng = jax.random.split(jax.random.key(0), 4)
    obs, state = jax.vmap(env.reset, (0, None))(jax.random.split(reset, envs), params)
    both = (net(actor, 2), net(critic, 1))
    zeros = jax.tree.map(jnp.zeros_like, both)
    return jax.jit(lambda carry: jax.lax.scan(block, carry, None, BLOCKS)), (both, (zeros, zeros, 0), state, obs, rng)


def main() -> None:
    """Print a line for each number of environments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", type=int, default=[8, 64, 256])
    for envs in parser.parse_args().envs:
        train, carry = program(envs)
        start = time.process_time()
        built = train.lower(carry).compile()
        compiled = time.process_time() - start
        speeds = []
        for _ in range(3):
            start = time.process_time()
            carry, reached = jax.block_until_ready(built(carry))
            speeds.append(BLOCKS * STEPS * envs / (time.process_time() - start))
        print(f"{envs:4} environments: {sorted(speeds)[1]:9.0f} steps per CPU second, {compiled:.1f} CPU s to compile")
        print(f"                   mean return {float(reached[-10:].mean()):.0f}")


if __name__ == "__main__":
    main()
