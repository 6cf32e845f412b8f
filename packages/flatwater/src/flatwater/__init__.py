"""Train agents in any environment, for days, in constant memory."""

from flatwater_watch.lazy import offer_names

__version__ = "0.1.0"
# Names of the public face load on first use: `import flatwater` alone imports no torch.
__getattr__, __dir__ = offer_names(__name__)
