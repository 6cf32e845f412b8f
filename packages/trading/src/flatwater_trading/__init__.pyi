from flatwater_trading.market.config import AccountConfig as AccountConfig
from flatwater_trading.market.config import EpisodeConfig as EpisodeConfig
from flatwater_trading.market.config import TradeConfig as TradeConfig
from flatwater_trading.market.config import TradingConfig as TradingConfig
from flatwater_trading.market.gym_env import make_trading_env as make_trading_env
from flatwater_trading.market.vector_env import TradingVectorEnv as TradingVectorEnv
from flatwater_trading.panel.config import SplitConfig as SplitConfig
from flatwater_trading.panel.importing import import_panel as import_panel
from flatwater_trading.panel.specification import parse_synthetic as parse_synthetic
from flatwater_trading.panel.splits import split_days as split_days
from flatwater_trading.panel.synthetic import synthetic_panel as synthetic_panel
from flatwater_trading.recipe.config import ErlRunConfig as ErlRunConfig
from flatwater_trading.study.folds import find_folds as find_folds
from flatwater_trading.training.learner import LearnerConfig as LearnerConfig
from flatwater_watch import errors as errors

__version__: str
