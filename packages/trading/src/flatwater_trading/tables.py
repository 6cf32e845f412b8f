"""Recipes, commands and pages that trading adds to Flatwater, which finds them by entry points like any package's."""

RECIPES = {
    "erl": ("flatwater_trading.recipe.recipe:ERL", "evolve a population of traders on a market panel"),
    "weights": (
        "flatwater_trading.recipe.weights.recipe:WEIGHTS",
        "learn target weights on a market panel, by differentiating the account",
    ),
}
"""Name -> import path of the recipe, and its line in the list of commands."""

COMMANDS = {
    "study": (
        "flatwater_trading.cli.study:StudyTraders",
        "train in each fold of a walk-forward, and say what the result shows",
    ),
    "study erl": ("flatwater_trading.cli.study:StudyTraders", "the same, with its recipe named"),
    "study weights": ("flatwater_trading.cli.study:StudyWeights", "the same with target weights"),
    "orders": (
        "flatwater_trading.cli.orders:OrdersCommand",
        "list what a trained trader buys and sells after the newest day",
    ),
    "backtest": ("flatwater_trading.cli.backtest:BacktestCommand", "play a trained trader over days of your choice"),
    "paper": (
        "flatwater_trading.cli.paper:PaperCommand",
        "trade a paper account by a trained trader, evening by evening",
    ),
    "panel import": ("flatwater_trading.cli.panel:PanelImport", "make a panel of prices from Parquet, CSV or Excel"),
    "panel show": ("flatwater_trading.cli.panel:PanelShow", "show what is in a panel: days, instruments, gaps, splits"),
}
"""Words of a command -> import path of its class, and a line of help."""

PAGES = {
    "study": ("study.toml", "flatwater_trading.study.page:study_report"),
    "paper": ("journal.jsonl", "flatwater_trading.recipe.paper_page:paper_report"),
    "backtest": ("result.json", "flatwater_trading.recipe.backtest_page:backtest_report"),
}
"""Kind of folder that `flatwater report` draws besides runs -> the file by which such a folder is known, and a function
from the folder to the path of its page and a function that makes the page."""

COMPARISONS = {"study": ("study.toml", "flatwater_trading.study.comparison:compare_studies")}
"""Kind of folder that `flatwater compare` puts side by side besides runs -> the file by which such a folder is known,
and a function from letters and folders to their comparison."""
