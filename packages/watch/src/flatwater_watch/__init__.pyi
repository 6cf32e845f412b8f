from flatwater_watch import errors as errors
from flatwater_watch.diagnose.finding import Finding as Finding
from flatwater_watch.diagnose.finding_text import finding_lines as finding_lines
from flatwater_watch.diagnose.monitor import Monitor as Monitor
from flatwater_watch.faces import callbacks as callbacks
from flatwater_watch.faces.context import watch as watch
from flatwater_watch.faces.freed_objects import expect_freed as expect_freed
from flatwater_watch.faces.main import main as main
from flatwater_watch.faces.notebook import load_ipython_extension as load_ipython_extension
from flatwater_watch.heap.containers import register_container as register_container
from flatwater_watch.series.readings import Reading as Reading

__version__: str
