"""Recipes and commands of the platform by name; found by entry points (`plugins.py`), like those of other packages."""

RECIPES = {
    "evolve": (
        "flatwater.recipes.evolve.recipe:EVOLVE",
        "evolve policies in any environment: `train evolve --env X`",
    ),
    "grow": ("flatwater.recipes.grow.recipe:GROW", "learn when and where networks in training should grow"),
    **{
        name: (f"flatwater.recipes.evolve.agents:{name.upper()}", f"train an agent by {title} in any environment")
        for name, title in (("ddpg", "DDPG"), ("dqn", "deep Q-learning"), ("sac", "Soft Actor-Critic"), ("td3", "TD3"))
    },
    "ppo": ("flatwater.recipes.ppo.recipe:PPO", "learn to act in any environment of Gymnasium, PettingZoo or your own"),
    "teach": ("flatwater.recipes.teach.recipe:TEACH", "learn from a teacher, then without one"),
}
"""Place of each recipe, and a line about it for the list of commands."""

COMMANDS = {
    "resume": ("flatwater.cli.train:Resume", "go on with a run from its newest checkpoint, bit for bit"),
    "fork": ("flatwater.cli.train:Fork", "go on from a run's exact state with other settings, as a new run"),
    "evaluate": ("flatwater.cli.evaluate:Evaluate", "play the trained champion or policy against the baselines"),
    "export": ("flatwater.cli.evaluate:Export", "write a trained policy as one file: ONNX, torch, weights"),
    "checkpoints": ("flatwater.cli.checkpoints:Checkpoints", "list a run's checkpoints and check them"),
    "mirror": ("flatwater.cli.checkpoints:MirrorCommand", "send missing checkpoints and records to a run's mirror"),
    "prune": ("flatwater.cli.checkpoints:Prune", "remove all but the newest checkpoints of a run, here or at a URL"),
    "report": ("flatwater.cli.report:Report", "write a run, or a watch, as one web page"),
    "top": ("flatwater.cli.runs:TopCommand", "watch a run: memory by owner, speed, fitness, findings"),
    "runs": ("flatwater.cli.runs:Runs", "list runs: recipe, state, rounds, score, size"),
    "compare": ("flatwater.cli.compare:Compare", "compare runs: settings, numbers, and how sure a difference is"),
    "cluster check": (
        "flatwater.cli.cluster:ClusterCheck",
        "list the machines of a Ray cluster that can compute a run",
    ),
    "version": ("flatwater.cli.version:Version", "print the version, and what numbers depend on: torch, Python, CPU"),
    "completion": ("flatwater.cli.completion:Completion", "print a script that completes commands in your shell"),
}
"""Class that is a command's interface, and one line of help, by the words of the command."""
