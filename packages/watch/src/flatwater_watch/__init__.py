"""Find what grows in any Python program: how much, who holds it, the line that makes it, and when memory ends.

pytest under the watch finds this package imported, and need not warn of it: PYTEST_DONT_REWRITE.
"""

from flatwater_watch.lazy import offer_names

__version__ = "0.1.0"
__getattr__, __dir__ = offer_names(__name__)
