"""A host of the user's: many at once are each of them alone; plan, reset and rollback are those of all hosts."""

from functools import partial

import numpy as np
import own_hosts
import pytest
import torch
from own_hosts import Both
from small import CPU, config, do, generator, grow, play, task
from torch import Tensor
from torch.nn.functional import cross_entropy

from flatwater.envs.growing.config import GrowingConfig, HostConfig
from flatwater.envs.growing.own_host import find_host
from flatwater.envs.growing.pool import GrowingEnvs, build_envs, pool_host
from flatwater.envs.growing.simulator import host_gates, impaired_hosts, observe, reset_, step_
from flatwater.envs.growing.spaces import HEADS, Operation
from flatwater.envs.growing.stream import image_numbers
from flatwater.envs.growing.task import load_task, make_task
from flatwater.envs.pooled import remnants
from flatwater.nets.hosts import ImageShape
from flatwater.nets.own_host import OwnHost, make_network
from flatwater.nets.slots import vmap_blend_seed, vmap_seed_input
from flatwater.nets.stack import views
from flatwater.recipes.grow.config import GrowRunConfig
from flatwater.recipes.grow.plan import plan_grow
from flatwater.state.tree import nbytes
from flatwater.trainers.grow.config import GrowConfig
from flatwater_watch.errors import ConfigError

torch.set_num_threads(1)
META = torch.device("meta")
SEEDS = torch.tensor([5, 2**40 + 8, 7])


def host(device: torch.device = CPU) -> OwnHost:
    found = find_host("own_hosts:Both", HostConfig(rank=2), task().image_shape, device)
    assert isinstance(found, OwnHost)
    return found


def envs_of(config: GrowingConfig, count: int = 3) -> GrowingEnvs:
    return build_envs(config, count=count, data=task(), device=CPU, net=host())


def begun(config: GrowingConfig, seeds: Tensor = SEEDS) -> GrowingEnvs:
    envs = envs_of(config, len(seeds))
    reset_(envs, seeds)
    return envs


def grown() -> GrowingEnvs:
    """Hosts with a blended seed in each slot."""
    envs = begun(config(steps=20))
    grow(envs, 0, 2)
    grow(envs, 1, 1)
    do(envs)
    return envs


def test_a_host_begins_as_its_class_makes_it_from_its_seed_alone() -> None:
    before = torch.get_rng_state()
    envs, other = begun(config()), begun(config(), SEEDS[[1, 0]])
    assert torch.equal(torch.get_rng_state(), before), "the global generator is left alone"
    named = views(envs.host.weights, pool_host(envs).layout)
    assert named["head.bias"].eq(0.25).all()
    assert named["head.weight"].std(dim=0).min() > 0
    assert torch.equal(envs.host.weights[[1, 0]], other.host.weights)


def test_all_hosts_at_once_are_each_alone_with_its_seeds_grafted_by_hand() -> None:
    envs = grown()
    net, gates, images = pool_host(envs), host_gates(envs), envs.task.train_images[:18].view(6, 3, -1)
    assert isinstance(net, OwnHost)
    own = views(envs.host.weights, net.layout)
    seeds = [views(part.weights, layout) for part, layout in zip(envs.seeds, net.seeds, strict=True)]
    together = net.logits(own, seeds, gates, images)
    without = net.logits(own, seeds, gates._replace(alpha=torch.zeros_like(gates.alpha)), images)
    assert (together - without).abs().max() > 1e-3
    for env in range(3):
        one = make_network(Both, net.image_shape, 0)
        one.load_state_dict({name: value[env] for name, value in own.items()}, strict=False)
        for slot, (name, graft) in enumerate(net.grafts.items()):
            cut = graft.cut_to_blueprint(seeds[slot], gates.blueprint[:, slot])
            seed, alpha = {key: value[env] for key, value in cut.items()}, gates.alpha[env, slot]
            one.get_submodule(name).register_forward_hook(
                lambda _, __, h, seed=seed, alpha=alpha, graft=graft: h + alpha * (graft.apply_seed(seed, h) - h)
            )
        torch.testing.assert_close(together[:, env], one(images[:, env].view(-1, 1, 8, 8)), rtol=0, atol=1e-5)


def test_one_host_s_slot_is_the_formula_in_value_and_in_gradient() -> None:
    rng = generator(0)
    for alpha, train in ((0.0, 0.0), (0.0, 1.0), (0.3, 0.0), (0.8, 0.0), (1.0, 0.0)):
        h, w = (torch.randn(3, 5, generator=rng, dtype=torch.float64).requires_grad_() for _ in range(2))
        gates = [torch.tensor(gate, dtype=torch.float64) for gate in (alpha, train)]
        out = vmap_blend_seed(h, (vmap_seed_input(h, gates[1]) * w).tanh(), alpha=gates[0], train=gates[1])
        found = torch.autograd.grad(out.square().sum(), (h, w))
        z = ((h.detach() if train else h) * w).tanh()
        written = h + alpha * (z - h) + train * (z - z.detach())
        torch.testing.assert_close(found, torch.autograd.grad(written.square().sum(), (h, w)), rtol=0, atol=1e-14)
        assert alpha > 0 or torch.equal(out, h)
        assert alpha < 1 or torch.equal(out, z)


def test_a_seed_that_learns_leaves_its_host_unchanged_to_the_bit() -> None:
    alone, behind = begun(config()), begun(config())
    do(alone)
    do(behind, operation=Operation.GERMINATE, slot=1, blueprint=0)
    do(alone)
    do(behind, operation=Operation.ADVANCE, slot=1)
    for _ in range(3):
        first = behind.seeds[1].weights.clone()
        do(alone)
        do(behind)
        assert torch.equal(alone.host.weights, behind.host.weights)
        assert torch.equal(alone.measures.loss, behind.measures.loss)
        assert bool((behind.seeds[1].weights != first).any(1).all())


def test_contributions_are_those_of_passes_with_the_seed_switched_off() -> None:
    envs = grown()
    net, gates, valid = pool_host(envs), host_gates(envs), envs.task.valid_images
    named = [views(part.weights, layout) for part, layout in zip(envs.seeds, net.seeds, strict=True)]
    passes = net.ablations(views(envs.host.weights, net.layout), named, gates, valid)
    for left_out in range(3):
        alpha = gates.alpha.clone()
        if left_out:
            alpha[:, left_out - 1] = 0
        every = valid[:, None].expand(-1, 3, -1)
        wanted = net.logits(views(envs.host.weights, net.layout), named, gates._replace(alpha=alpha), every)
        torch.testing.assert_close(passes[left_out], wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_an_env_does_not_notice_the_others_not_even_their_nans(poison: float) -> None:
    found = []
    for poisoned in (False, True):
        envs = begun(config())
        for _ in range(3):
            if poisoned:
                envs.host.weights[0] = poison
                envs.seeds[0].weights[2] = poison
            do(envs)
        found.append((envs.host.weights[1].clone(), observe(envs)[1]))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_a_host_learns_as_torch_s_own_adam_teaches_it() -> None:
    envs = begun(config(steps=20))
    net = pool_host(envs)
    assert isinstance(net, OwnHost)
    one = make_network(Both, net.image_shape, 0)
    own = views(envs.host.weights, net.layout)
    one.load_state_dict({name: value[1] for name, value in own.items()}, strict=False)
    adam = torch.optim.Adam(one.parameters(), lr=envs.config.fit.lr)
    for _ in range(5):
        rows = image_numbers(envs.seed, envs.drawn, count=4, images=len(envs.task.train_labels))[:, 1]
        adam.zero_grad()
        images = envs.task.train_images[rows].view(-1, 1, 8, 8)
        cross_entropy(one(images), envs.task.train_labels[rows]).backward()
        adam.step()
        do(envs)
    for name, value in one.named_parameters():
        torch.testing.assert_close(own[name][1], value.detach(), rtol=0, atol=1e-5)


def test_a_plan_on_the_meta_device_weighs_what_is_held() -> None:
    planned, held = (
        build_envs(config(), count=3, data=load_task("digits", device), device=device, net=host(device))
        for device in (META, CPU)
    )
    assert nbytes(planned) == nbytes(held)
    assert nbytes(held)["constants.scale"] == 8 * 8 * 4
    assert nbytes(held)["host.weights"] == 3 * 4 * sum(
        p.numel() for p in make_network(Both, task().image_shape, 0).parameters()
    )


def live_(envs: GrowingEnvs) -> None:
    for episode in range(3):
        reset_(envs, SEEDS + 100 * episode)
        for _ in play(envs, generator(episode), envs.config.steps):
            pass
    grow(envs, 0)


@pytest.mark.long
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_used_env_that_was_reset_is_a_new_one(optimizer: str) -> None:
    settings = config(optimizer=optimizer)
    found = remnants(
        build=partial(envs_of, settings),
        reset_=lambda envs: reset_(envs, SEEDS),
        dirty_=live_,
        trace=lambda envs: play(envs, generator(77), settings.steps),
    )
    assert found == []


def test_no_host_of_the_user_s_is_impaired() -> None:
    assert not impaired_hosts(begun(config(), torch.arange(4))).any()


def test_vectors_are_images_of_one_row() -> None:
    data = make_task((np.eye(60, 7), np.arange(60) % 3), CPU)
    net = find_host("own_hosts:Both", HostConfig(rank=2), data.image_shape, CPU)
    envs = build_envs(config(), count=2, data=data, device=CPU, net=net)
    reset_(envs, torch.arange(2))
    assert step_(envs, torch.zeros(2, len(HEADS), dtype=torch.int64)).isfinite().all()


NOWHERE = {
    "no_such_module:Net": "No module named 'no_such_module'",
    "own_hosts:Missing": "no attribute 'Missing'",
    "conv": r"package\.module:Class.*env\.host\.kind",
    "own_hosts:NUMBER": r"torch\.nn\.Module.* int$",
}
WRONG = {
    own_hosts.NoSlots: "`slots`.* None",
    own_hosts.OneName: "`slots`.* 'layer'",
    own_hosts.Twice: "`slots`.* twice",
    own_hosts.Nowhere: "slot 'conv1'.* layer, head",
    own_hosts.Itself: "slot ''",
    own_hosts.OtherMaking: r"\(channels, height, width, classes\).*too many positional",
    own_hosts.Scores: r"logits.*\(4, 10\).*\(4, 9\)|\(4, 9\).*logits.*\(4, 10\)",
    own_hosts.Pair: "forward.*(tuple.*logits|logits.*tuple)",
    own_hosts.Double: r"parameter layer\.weight.* float64",
    own_hosts.Frozen: r"parameter head\.bias.* frozen",
    own_hosts.Nothing: "no parameters",
    own_hosts.Elsewhere: r"parameter head\.bias.*manual_seed",
    own_hosts.Unused: r"logits .*parameter spare\.weight",
    own_hosts.Statistics: r"buffer norm\.running_mean.*BatchNorm",
    own_hosts.DrawnBuffer: "buffer mask.* host",
    own_hosts.Hidden: "stacked.*nn.Parameter",
    own_hosts.Dropping: "stacked.*random",
    own_hosts.Branching: r"stacked.*control flow.* \(own_hosts.py, line \d+\)",
    own_hosts.Again: "slot layer: .* 2$",
    own_hosts.Tokens: r"slot layer: .*\(4, 8, 6\)",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_class_that_cannot_be_a_host_is_told_why(wrong: type) -> None:
    with pytest.raises(ConfigError, match=f"^host = 'own_hosts:{wrong.__name__}': .*{WRONG[wrong]}"):
        find_host(f"own_hosts:{wrong.__name__}", HostConfig(), ImageShape(1, 8, 8, 10), CPU)


@pytest.mark.parametrize("name", NOWHERE)
def test_a_name_that_leads_to_no_class_is_told(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^host = '{name}': .*{NOWHERE[name]}"):
        find_host(name, HostConfig(), ImageShape(1, 8, 8, 10), CPU)


def test_settings_of_shipped_hosts_say_nothing_of_one_s_own() -> None:
    with pytest.raises(ConfigError, match=r"env\.host\.channels = .*: .*own_hosts:Both"):
        GrowConfig(host="own_hosts:Both", env=GrowingConfig(host=HostConfig(channels=(2, 2, 2))))
    assert GrowConfig(host="own_hosts:Both", env=GrowingConfig(host=HostConfig(rank=2))).env.host.rank == 2


def test_a_class_that_cannot_leave_the_cpu_is_told_why() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^host = 'own_hosts:OnTheCPU': .*CPU.*device",
    ):
        plan_grow(GrowRunConfig(host=f"own_hosts:{own_hosts.OnTheCPU.__name__}"), CPU)
