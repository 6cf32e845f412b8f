"""The finder: objects that grow in any Python program, their holders, the line that makes them, and when memory ends.

A pytest that runs under the watch finds this package imported already, and need not warn of it: PYTEST_DONT_REWRITE.
"""

from flatwater_watch.lazy import offer_names

__version__ = "0.1.0"
__getattr__, __dir__ = offer_names(__name__)
