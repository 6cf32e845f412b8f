from flatwater.memory.watch.context import watch as watch
from flatwater.memory.watch.freed import expect_freed as expect_freed

__version__: str
