"""Charts of what a student learned from its teacher, and of where the time of a step goes."""

from statistics import median

from flatwater.metrics.reader import known
from flatwater.recipe import ShownTable
from flatwater.reports.markup import Chart
from flatwater.reports.memory_charts import curve, round_axis
from flatwater.reports.returns_curves import returns_curves

LEVELS = {"teacher": "--buy-and-hold", "random": "--random"}
PARTS = {
    "env": "--equal-weight",
    "teacher": "--buy-and-hold",
    "student": "--champion",
    "store": "--quiet",
    "update": "--bad",
}
"""Parts of a step, as in the metrics `profile/*_us`."""

Metrics = dict[str, list[float]]


def profile_rows(metrics: Metrics) -> list[tuple[str, str, str]]:
    """Part of a step, microseconds of an agent's step, share: medians over the blocks. Empty where nothing is known."""
    found = {part: known(metrics["round"], metrics.get(f"profile/{part}_us", []))[1] for part in PARTS}
    medians = {part: median(values) for part, values in found.items() if values}
    whole = sum(medians.values())
    rows = [(part, f"{each:.1f}", f"{each / whole:.0%}") for part, each in medians.items()]
    return [*rows, ("all", f"{whole:.1f}", "100%")] if rows else []


def profile_tables(metrics: Metrics) -> list[ShownTable]:
    """Where the time of a step went; nothing where that is not known."""
    rows = profile_rows(metrics)
    return [ShownTable(("part of a step", "µs an agent step", "share"), rows)] if rows else []


def learned_chart(metrics: Metrics) -> Chart:
    """Returns of training episodes and of held-out ones, against the teacher's and random actions."""
    return Chart(
        title="What an agent is paid in an episode",
        reading="Training episodes are led by the teacher in part, the more the earlier. The held-out episodes are "
        "always the same; the student should come to lie near the level line of the teacher.",
        data=returns_curves(metrics, "student", LEVELS),
        layout={"xaxis": round_axis(metrics["round"])},
        height=360,
    )


def handover_chart(metrics: Metrics) -> Chart:
    """How much the teacher leads, how often the student agrees with it, and what it is trained by."""
    rounds = metrics["round"]
    shown = {
        "train/agreement": ("student agrees with the teacher", "--champion"),
        "lead/share": ("teacher leads", "--buy-and-hold"),
        "weight/supervision": ("weight of the supervision", "--equal-weight"),
        "weight/reinforcement": ("weight of PPO", "--random"),
    }
    data = [
        curve(rounds, [100 * value for value in metrics[name]], title, colour)
        for name, (title, colour) in shown.items()
        if name in metrics
    ]
    return Chart(
        title="From the teacher to the student",
        reading="Shares of steps, and weights of the two losses, in percent. The hand-over is where they cross.",
        data=data,
        layout={"xaxis": round_axis(rounds), "yaxis": {"ticksuffix": "%", "rangemode": "tozero"}},
    )


def profile_chart(metrics: Metrics) -> Chart:
    """Microseconds of an agent's step, by part."""
    rounds = metrics["round"]
    data = [
        curve(rounds, metrics[f"profile/{part}_us"], part, colour)
        for part, colour in PARTS.items()
        if f"profile/{part}_us" in metrics
    ]
    return Chart(
        title="Where the time of a step goes",
        reading="Microseconds on the wall for one step of one agent. All lines should stay level: one that rises is "
        "state whose cost grows, and is told as a finding.",
        data=data,
        layout={"xaxis": round_axis(rounds), "yaxis": {"ticksuffix": " µs", "rangemode": "tozero"}},
    )
