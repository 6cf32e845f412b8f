"""Rules for well-known libraries: the places where they keep objects, and how to release these.

A rule is one line of data: the place, the versions of the library that it holds for, a sentence on the library, the
advice, and the page that says so. A place is a class and an attribute (`logging.Logger.handlers`; any attribute: `*`),
the path of a global or of a registry, the class of the items in a container (`[PIL.Image.Image]`), or the class of an
object of the line at which memory of C grows (`(ctypes.CDLL)`). Subclasses count.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from flatwater_watch.heap.raw import full_name, module_namespace, mro, plain_text
from flatwater_watch.heap.roots import is_user_file


class Rule(NamedTuple):
    """One line of the table."""

    place: str
    """Place where the library keeps objects: `logging.Logger.handlers`, `[PIL.Image.Image]`, `(ctypes.CDLL)`."""
    versions: str
    """Versions of the package that the place begins with: `<2.1`, `>=2.1`, or empty for all."""
    fact: str
    """A sentence on the objects that the library keeps there."""
    fix: str
    """A sentence on the remedy, with places such as `{Session:session}`: the name of the object of this class in the
    program, or the word behind the colon. `drop` is the call that takes an item out, and `remove` the method."""
    page: str = ""
    """Address of the library's page that says so; empty if none is noted."""

    def advice(self, names: Mapping[str, str]) -> str:
        """Return the remedy, then what is known of the library, with the page.

        Args:
            names: texts for the places of the remedy, by the word before the colon.
        """
        # A place such as `{Session:session}` without a text gets the word behind its colon.
        fix = _PLACE.sub(lambda place: names.get(place[1], place[2]), self.fix)
        return f"{fix} {self.fact}{f' See {self.page}' if self.page else ''}"


# fmt: off
RULES = tuple(Rule(*row) for row in (
    # Python's own
    ("logging.Manager.loggerDict", "", "logging keeps each logger by its name for ever.", "Use one logger for a module, `logging.getLogger(__name__)`, and put what varies (a connection, a job) into the message or into `extra=`."),
    ("logging.Logger.handlers", "", "A logger keeps each handler that was added.", "Add a handler once, or call `{Logger:logger}.removeHandler(handler)` and `handler.close()` when the job ends."),
    ("logging's handlers", "", "The root logger keeps each handler that was added.", "Configure logging once, or call `logging.getLogger().removeHandler(handler)` and `handler.close()` when the job ends."),
    ("logging.Filterer.filters", "", "A logger or handler keeps each filter that was added.", "Add a filter once, or call `{Filterer:logger}.removeFilter(filter)`."),
    ("logging.handlers.BufferingHandler.buffer", "", "A buffering handler keeps records until it is flushed.", "Give a MemoryHandler its target, `{BufferingHandler:handler}.setTarget(other)`, or call `{BufferingHandler:handler}.flush()` of another handler."),
    ("linecache.cache", "", "linecache keeps the source of each file, and of code that is generated.", "Generate the code once, or call `linecache.clearcache()`."),
    ("linecache's files", "", "linecache keeps the source of each file, and of code that is generated.", "Generate the code once, or call `linecache.clearcache()`."),
    ("*.__warningregistry__", "", "warnings notes each text that was shown.", "Keep what varies (a number, a name) out of the text of `warnings.warn(text)`."),
    ("finalizers of weakref.finalize", "", "A finalizer keeps its arguments until its object is gone.", "Give `weakref.finalize(...)` the name of the resource, never the object itself or what holds it, or call `detach()` of what it returned."),
    ("atexit's callbacks", "", "Each function that atexit was given is kept, with its arguments, until the program ends.", "Register one function once, or call `atexit.unregister(function)` when the job is done."),
    ("context variable *", "", "A context variable keeps its value as long as its context.", "Put back what was there before: `token = variable.set(value)`, then `variable.reset(token)`."),
    ("gc's uncollectable objects", "", "`gc.DEBUG_SAVEALL` and `DEBUG_LEAK` keep all that is collected.", "Call `gc.set_debug(0)` and `gc.garbage.clear()`."),
    ("concurrent.futures.thread.ThreadPoolExecutor._work_queue", "", "`submit` never waits, so work is queued faster than it is done.", "Bound what is under way: `semaphore.acquire()` before `{ThreadPoolExecutor:pool}.submit(...)`, and `future.add_done_callback(lambda _: semaphore.release())`."),
    ("concurrent.futures.process.ProcessPoolExecutor._pending_work_items", "", "`submit` never waits, so work is queued faster than it is done.", "Bound what is under way: `semaphore.acquire()` before `{ProcessPoolExecutor:pool}.submit(...)`, and `future.add_done_callback(lambda _: semaphore.release())`."),
    ("multiprocessing.pool.Pool._cache", "", "A pool keeps the results that nobody has fetched.", "Fetch each result, `result.get()`, or go through `{Pool:pool}.imap_unordered(...)` in portions."),
    ("multiprocessing.pool.IMapIterator._items", "", "A pool takes tasks as fast as they come, and keeps results until they are fetched.", "Let the generator of tasks wait, `semaphore.acquire()` before each `yield`, and call `semaphore.release()` for each result that is taken."),
    ("[concurrent.futures._base.Future]", "", "A future keeps its result, and the error with its frames.", "Take `future.result()` and {drop:drop it}, or go through portions by `concurrent.futures.as_completed(portion)`."),
    ("[_asyncio.Task]", "", "A task that has ended keeps what it returned.", "Let go of a task when it ends: `task.add_done_callback({remove:tasks.discard})`."),
    ("[asyncio.tasks.Task]", "", "A task that has ended keeps what it returned.", "Let go of a task when it ends: `task.add_done_callback({remove:tasks.discard})`."),
    ("asyncio.base_events.BaseEventLoop._scheduled", "", "A loop keeps each timer, and what its function reaches, until it is due.", "Cancel each timer that is not needed any more: `handle = {BaseEventLoop:loop}.call_later(...)`, then `handle.cancel()`."),
    ("[builtins.generator]", "", "A generator that waits keeps its local variables.", "Close each generator when it is done with, `generator.close()` or `with contextlib.closing(rows()) as reader:`, and {drop:drop it}."),
    ("[builtins.BaseException]", "", "An exception keeps its traceback, and so the variables of each function that it passed.", "Keep its text, `str(error)`, or `error.with_traceback(None)`, not the error."),
    ("[_thread.lock]", "", "A lock for each key is never dropped.", "Hold locks weakly, `weakref.WeakValueDictionary()`, or use a fixed number of them by hash: `locks[hash(key) % 64]`."),
    ("[ssl.SSLContext]", "", "An SSL context holds all certificates, about 0.5 MiB outside of Python.", "Make one by `ssl.create_default_context()` and share it."),
    ("[sqlite3.Connection]", "", "A connection keeps its pages outside of Python.", "Call `connection.close()` and {drop:drop it}, or keep one for each thread."),
    ("[xml.etree.ElementTree.Element]", "", "A tree keeps each element that was read.", "Call `element.clear()` when it is done with, in the loop over `iterparse`."),
    ("unittest.mock.NonCallableMock.*", "", "A mock notes each call with its arguments.", "Call `{NonCallableMock:mock}.reset_mock()`, or use a plain function."),
    ("_pickle.Pickler.*", "", "A pickler remembers each object that it wrote, and keeps it alive.", "Call `{Pickler:pickler}.clear_memo()` after each `dump`, or make a new one.", "https://docs.python.org/3/library/pickle.html#pickle.Pickler"),
    ("tarfile.TarFile.members", "", "An archive notes each member, to list them.", "Call `{TarFile:archive}.close()` and begin a new archive now and then; from Python 3.13 on one that is read need not: `tarfile.open(..., stream=True)`.", "https://docs.python.org/3/library/tarfile.html#tarfile.TarFile"),
    ("[multiprocessing.shared_memory.SharedMemory]", "", "A segment stays until it is unlinked, whoever has closed it.", "Call `segment.close()` in each process that uses it, and `segment.unlink()` once, when the last is done.", "https://docs.python.org/3/library/multiprocessing.shared_memory.html"),
    ("multiprocessing.managers.SyncManager._registry", "", "`register` keeps each function for as long as the class, which is for ever.", "Call `register(name, function)` once for each name, and hand what varies over as an argument.", "https://docs.python.org/3/library/multiprocessing.html#multiprocessing.managers.BaseManager.register"),
    # PyTorch and what trains with it
    ("torch.optim.optimizer.Optimizer.state", "", "An optimizer has moments for each parameter that it has ever stepped.", "Make a new optimizer when parameters are replaced, or `del {Optimizer:optimizer}.state[parameter]` and take them from its groups."),
    ("torch.optim.optimizer.Optimizer.param_groups", "", "An optimizer keeps each parameter that was added.", "Call `{Optimizer:optimizer}.add_param_group(...)` once for each, or make a new optimizer."),
    ("torch.nn.modules.module.Module._forward_hooks", "", "A module keeps each hook with all that its function closes over.", "Register it once, or keep the handle that registering returns and call `handle.remove()`."),
    ("torch.nn.modules.module.Module._forward_pre_hooks", "", "A module keeps each hook with all that its function closes over.", "Register it once, or keep the handle that registering returns and call `handle.remove()`."),
    ("torch.nn.modules.module.Module._backward_hooks", "", "A module keeps each hook with all that its function closes over.", "Register it once, or keep the handle that registering returns and call `handle.remove()`."),
    ("torch.profiler.profiler.profile.*", "", "A profiler without a schedule keeps every event.", "Give it `schedule=torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=1)`, and call `profiler.step()` after each step."),
    ("torch.multiprocessing.reductions.shared_cache", "", "Tensors that were sent to other processes stay mapped.", "Drop them in the receiver too, send `tensor.numpy()`, or call `torch.multiprocessing.set_sharing_strategy('file_system')`."),
    ("torch._dynamo.*", "", "torch.compile keeps each version that it has compiled.", "Mark sizes that vary, `torch._dynamo.mark_dynamic(tensor, 0)` or `torch.compile(..., dynamic=True)`, and compile once, outside of loops."),
    ("torchmetrics.metric.Metric.*", "", "A metric keeps its state until it is reset; curves keep each prediction.", "Call `{Metric:metric}.reset()` at the end of each epoch, or give it `thresholds=`."),
    ("transformers.cache_utils.Cache.layers", "", "A cache of keys and values grows with each token.", "Begin a new cache for each conversation, `DynamicCache()`, or call `{Cache:cache}.crop(length)`."),
    ("transformers.trainer_callback.TrainerState.log_history", "", "The trainer keeps each line of its log.", "Raise `logging_steps=` of `TrainingArguments`."),
    ("stable_baselines3.common.monitor.Monitor.episode_returns", "", "Monitor keeps the return of each episode.", "Make a new `Monitor(environment)` now and then, if it is not small."),
    ("tensorboardX.writer.SummaryWriter.scalar_dict", "", "`add_scalars` keeps each value for `export_scalars_to_json`.", "Call `{SummaryWriter:writer}.add_scalar(...)` instead, or use a new writer now and then."),
    ("gymnasium.wrappers.rendering.RenderCollection.frame_list", "", "The wrapper keeps each frame until it is asked for them.", "Call `{RenderCollection:env}.render()` once an episode, with `pop_frames=True` and `reset_clean=True`."),
    ("gymnasium.wrappers.rendering.RecordVideo.recorded_frames", "", "The wrapper keeps the frames of a video until it is written.", "Give it a `video_length=`, and record few episodes."),
    ("optuna.storages._in_memory.InMemoryStorage.*", "", "A study in memory keeps each trial with its attributes.", "Write large results to files and keep their names by `trial.set_user_attr(...)`, or use a database: `create_study(storage='sqlite:///study.db')`."),
    ("sklearn.ensemble._forest.BaseForest.estimators_", "", "With `warm_start` each `fit` adds trees to those that are there.", "Make a new forest, or leave `warm_start=True` out: then each `fit` begins anew."),
    ("[lightgbm.basic.Booster]", "", "A booster keeps its model and its data outside of Python.", "Call `booster.free_dataset()`, or keep `booster.model_to_string()` in its place."),
    ("[xgboost.core.DMatrix]", "", "A DMatrix keeps a copy of its data outside of Python.", "After training {drop:drop it}, or make a smaller one: `xgboost.QuantileDMatrix(...)`."),
    # pictures and tables
    ("pyplot's figures", "", "pyplot keeps each figure until it is closed.", "Call `plt.close(figure)` when it is saved, or make it as `matplotlib.figure.Figure()`."),
    ("matplotlib.axes._base._AxesBase._children", "", "Axes keep each line and picture that was drawn.", "Call `{_AxesBase:axes}.clear()`, or change a line that is there: `line.set_data(x, y)`."),
    ("matplotlib.cbook.CallbackRegistry.callbacks", "", "A figure keeps each callback that was connected.", "Call `figure.canvas.mpl_disconnect(number)` with the number that `mpl_connect` returned."),
    ("[PIL.Image.Image]", "", "An image keeps its pixels outside of Python.", "Call `image.close()` and {drop:drop it}; keep its file's name, a thumbnail or its compressed bytes."),
    ("[h5py._hl.files.File]", "", "An open file keeps its caches, and a file in memory all its data.", "Open it by `with h5py.File(...) as file:`, or call `file.close()` and {drop:drop it}."),
    ("pandas.DataFrame._mgr", "", "The table is replaced by itself and more rows.", "Keep the last rows alone, `table = table.tail(100)`, write out what is done with, and concatenate once, from a list."),
    ("pandas.core.frame.DataFrame._mgr", "", "The table is replaced by itself and more rows.", "Keep the last rows alone, `table = table.tail(100)`, write out what is done with, and concatenate once, from a list."),
    ("[polars.dataframe.frame.DataFrame]", "", "Each frame keeps its columns outside of Python.", "Write it out, `frame.write_parquet(file)`, and {drop:drop it}, or keep what is needed of it."),
    ("[lxml.etree._Element]", "", "One element keeps its whole document.", "Keep the text that is needed, `str(element.text)`, not the element; with `iterparse` call `element.clear()` and delete those before it."),
    ("[networkx.classes.graph.Graph]", "", "A view (`subgraph`, `reverse(copy=False)`) keeps the graph that it is of.", "Keep a copy of the part, `view.copy()`, not the view."),
    # services
    ("[requests.sessions.Session]", "", "A session has a pool of connections and an SSL context of its own.", "Call `session.close()` and {drop:drop it}, or use one session for the program."),
    ("[httpx.Client]", "", "A client has a pool of connections and an SSL context of its own.", "Call `client.close()` and {drop:drop it}, or use one client for the program."),
    ("[httpx.AsyncClient]", "", "A client has a pool of connections and an SSL context of its own.", "Call `await client.aclose()` and {drop:drop it}, or use one client for the program."),
    ("[aiohttp.client.ClientSession]", "", "A session has a connector of its own.", "Call `await session.close()` and {drop:drop it}, or use one session for the program."),
    ("[urllib3.poolmanager.PoolManager]", "", "A manager has pools of connections of its own.", "Call `manager.clear()` and {drop:drop it}, or use one manager for the program."),
    ("[botocore.client.BaseClient]", "", "A client has the whole model of its service.", "Call `client.close()` and {drop:drop it}, or use one for each service and region: clients may be shared by threads."),
    ("botocore.hooks.HierarchicalEmitter.*", "", "Each boto3 session registers its handlers at the botocore session that it is given.", "Make one `boto3.Session(botocore_session=...)` for each botocore session, outside of loops."),
    ("moto.core.base_backend.BackendDict.*", "", "A backend of moto keeps all that was stored in it.", "Use `with mock_aws():` for each test, or delete what was stored, such as by `client.delete_object(...)`."),
    ("[grpc._channel.Channel]", "", "A channel has connections and threads of its own.", "Call `channel.close()` and {drop:drop it}, or use one for each server."),
    ("flask.sansio.scaffold.Scaffold.*", "", "An application keeps each function that was registered.", "Register a function once (`@{Scaffold:app}.before_request` and its like), when the application is made, never in a request."),
    ("aiohttp.web_app.Application._state", "", "What is put into an application stays as long as it runs.", "Keep it by request, `request['name'] = value`, or keep only the newest: `del {Application:app}['name'][:-100]`."),
    ("starlette.datastructures.State._state", "", "What is put into `app.state` stays as long as the application runs.", "Keep it by request, `request.state.name = value`, or keep only the newest: `del app.state.name[:-100]`."),
    ("prometheus_client.metrics.MetricWrapperBase._metrics", "", "Each set of label values is a series that stays for ever.", "Use labels of few values (no user, path or id), or call `{MetricWrapperBase:metric}.remove(value)` for those that are gone."),
    ("prometheus_client.registry.CollectorRegistry.*", "", "A registry keeps each metric that was made.", "Make a metric once, when the module is loaded, or call `{CollectorRegistry:REGISTRY}.unregister(metric)`."),
    ("opentelemetry.sdk.trace.TracerProvider.*", "", "A provider keeps each span processor that was added.", "Call `{TracerProvider:provider}.add_span_processor(...)` once, when the program begins."),
    ("opentelemetry.sdk.metrics._internal._view_instrument_match._ViewInstrumentMatch.*", "", "Each set of attributes is a series that stays for ever.", "Give `counter.add(1, attributes)` attributes of few values, or drop them by a view: `View(attribute_keys=...)`."),
    ("[opentelemetry.sdk.trace.Span]", "", "A span that is not ended is never exported.", "Call `span.end()` and {drop:drop it}, or open it by `with tracer.start_as_current_span(...)`."),
    ("loguru._logger.Core.handlers", "", "The logger keeps each sink that was added.", "Call `logger.remove(number)` with the number that `logger.add(...)` returned."),
    ("structlog's WRITE_LOCKS", "<26.1", "structlog keeps a lock, and so the file, for each file that a logger was made of.", "Make one logger for each file, `structlog.PrintLogger(file)`, outside of loops, or take structlog 26.1 or newer."),
    ("sqlalchemy.orm.session.Session._new", "", "A session keeps each new object until it is flushed.", "Call `{Session:session}.commit()` in portions, and begin a new session for each unit of work."),
    ("sqlalchemy.orm.session.Session.*", "", "A session keeps what was changed until it is flushed.", "Call `{Session:session}.commit()` in portions and `{Session:session}.expunge_all()`, or begin a new session for each unit of work."),
    ("sqlalchemy.orm.scoping.scoped_session.registry", "", "A scoped session keeps a session for each thread, task or key.", "Call `{scoped_session:Session}.remove()` where the task or the request ends.", "https://docs.sqlalchemy.org/en/20/orm/contextual.html"),
    ("sqlalchemy's pools", "", "Each engine has a pool of its own.", "Make one engine for the program, or call `engine.dispose()`."),
    ("markdown.core.Markdown.*", "", "A converter keeps the raw HTML and the footnotes of each page.", "Call `{Markdown:converter}.reset()` before each page.", "https://python-markdown.github.io/reference/markdown/"),
    ("[jinja2.environment.Template]", "", "A template keeps its compiled code.", "Compile it once, `env.get_template(name)`, or keep templates by their text with a bound: `@functools.lru_cache(maxsize=100)`."),
    ("[pydantic._internal._model_construction.ModelMetaclass]", "", "A model class keeps its validators, and classes are seldom freed.", "Make it once, or keep it by its fields: `@functools.lru_cache(maxsize=100)`."),
    ("responses.RequestsMock._calls", "", "`responses` notes each call.", "Call `{RequestsMock:responses}.calls.reset()`."),
    ("rich.console.Console._record_buffer", "", "A console that records keeps all that was printed.", "Call `{Console:console}.export_text(clear=True)` now and then, or leave `record=True` out."),
    ("numba.core.dispatcher.Dispatcher.overloads", "", "Each combination of types is compiled and kept.", "Convert arguments to few types, such as by `array.astype('float64')`, or give signatures: `@numba.njit('float64(float64[:])')`."),
    ("asyncio.base_events.BaseEventLoop._ready", "", "A loop keeps what was handed to it until it runs.", "Let the loop run between two jobs, `await asyncio.sleep(0)`, and never call `time.sleep(...)` in a coroutine.", "https://docs.python.org/3/library/asyncio-dev.html#running-blocking-code"),
    ("xlsxwriter.worksheet.Worksheet.table", "", "A worksheet keeps each cell until the workbook is closed.", "Open the workbook as `xlsxwriter.Workbook(file, {'constant_memory': True})`, which writes each row when the next one begins.", "https://xlsxwriter.readthedocs.io/working_with_memory.html"),
    ("[uvloop.loop.TimerHandle]", "", "A loop keeps each timer, and what its function reaches, until it is due.", "Cancel each timer that is not needed any more: `handle = loop.call_later(...)`, then `handle.cancel()`."),
    ("dogpile.cache.backends.memory.MemoryBackend._cache", "", "The memory backend keeps each value, expired or not.", "Call `{CacheRegion:region}.delete(key)`, give it a dict with a bound (`arguments={'cache_dict': ...}`), or take a backend that expires.", "https://dogpilecache.sqlalchemy.org/en/latest/api.html"),
    ("rpyc.core.protocol.Connection._local_objects", "", "A connection keeps each object that the other side has a reference to.", "Take copies by `rpyc.classic.obtain(...)`, drop references on the other side, or call `{Connection:connection}.close()`."),
    ("persistent.mapping.PersistentMapping.*", "", "A connection of ZODB keeps what it has read or written in its cache.", "Call `{PersistentMapping:root}._p_jar.cacheMinimize()` after a commit, or give the database a `cache_size_bytes=`."),
    ("Pyro5.server.Daemon.objectsById", "", "A daemon keeps each object that was registered.", "Call `{Daemon:daemon}.unregister(object)` when its client ends, or expose a class with `instance_mode='session'`."),
    ("mesa.agent.Agent._ids", "", "This Mesa keeps each model in a table of its agents' numbers.", "Take a version that does not, `pip install --upgrade mesa`, or run each model in a process of its own.", "https://github.com/mesa/mesa/pull/3180"),
    ("_abc._abc_data.*", "", "An abstract class remembers each class that `issubclass` or `isinstance` was asked about.", "Make classes once, or ask for a method, `hasattr(object, 'name')`, where they are made anew; no call empties it."),
    ("AsyncSniffer._run() in scapy: lst", "", "`sniff` keeps each packet for its result.", "Call `sniff(..., store=False)`, with `prn=` for what is to be done with a packet.", "https://scapy.readthedocs.io/en/latest/usage.html#sniffing"),
    ("pexpect.spawnbase.SpawnBase.*", "", "What was read without a match stays in the buffer, whatever the window that is searched.", "Expect the end of a line too, which takes out what was read: `{SpawnBase:child}.expect([pattern, '\\r\\n'])`.", "https://pexpect.readthedocs.io/en/stable/api/pexpect.html"),
    ("sys.modules", "", "Python keeps each module that was loaded under a name of its own.", "Take a module out when it is done with, `sys.modules.pop(name, None)`, and out of the library that made it, or load it once."),
    ("gc's callbacks", "", "The collector keeps each function that was added.", "Add a function once, or call `gc.callbacks.remove(function)`."),
    ("gymnasium's registry", "", "The registry keeps each environment that was registered.", "Call `gymnasium.register(...)` once for each name, outside of loops."),
    ("multiprocessing's children", "", "A process is kept until it has ended and is joined.", "Close what a library started it for, such as a pool, or call `process.join()` and `process.close()` when it has ended."),
    ("trio._channel.MemoryChannelState.data", "", "A channel of `math.inf` never makes the sender wait.", "Give the channel a size: `trio.open_memory_channel(10)`."),
    ("anyio.streams.memory._MemoryObjectStreamState.buffer", "", "A stream of `math.inf` never makes the sender wait.", "Give the stream a size: `anyio.create_memory_object_stream(10)`."),
    # at the line of memory of C
    ("(ctypes.CDLL)", "", "What a function of C allocates is its caller's to free.", "Free what its functions return by the library's own call, such as `{CDLL:library}.free(pointer)`."),
    ("(torch.profiler.profiler.profile)", "", "A profiler without a schedule keeps every event.", "Give it `schedule=torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=1)`, and call `{profile:profiler}.step()` after each step."),
    ("(sqlite3.Connection)", "", "A database in memory keeps its rows outside of Python.", "Delete rows that are done with, `DELETE FROM ...`, or use a file in place of `:memory:`."),
    ("(google.protobuf.message.Message)", "", "A message that stays keeps all that was ever parsed into it.", "Make a new message each time, `message = type(message).FromString(data)`."),
    ("(tokenizers.Tokenizer)", "", "A model of a tokenizer caches the parts of each word.", "Give its model a small cache: `BPE(..., cache_capacity=1000)`."),
    ("(zmq.sugar.socket.Socket)", "", "A socket without a bound queues what the other side does not take.", "Call `{Socket:socket}.set_hwm(100)` before `bind` and `connect`, so that the sender waits."),
    ("(grpc._server._Server)", "", "A server that was never started keeps its handlers.", "Call `{_Server:server}.start()` before its `stop(0)`, or use one server for the program."),
))
# fmt: on
_PLACE = re.compile(r"\{(\w+):([\w. ]+)\}")
_VERSION = re.compile(r"(<|>=)(\d+(?:\.\d+)*)")


def find_rule(root: str, hops: Sequence[tuple[Any, str]], items: Sequence[Any]) -> Rule | None:
    """Return the rule (what is known of a library's container, and the remedy) for a container; None if there is none.

    Rules for the attributes on its path come first, the deepest first; then rules for its items; then for its root.

    Args:
        root: path of the global, registry or local variable from which the container is reached.
        hops: (object, attribute) for each hop from the root to the container: ((agent, ".memory"), (memory, ".rows"),
            (rows, "")). The last is the container itself, with an empty text.
        items: newest items of the container.
    """
    attribute_keys: list[str] = []
    root_keys = [root]
    for holder, name in reversed(hops):
        attribute_keys += _attribute_rule_keys(type(holder), name)
        # If the container lies below a user's object, it is not the library that fills it: rules for what lies above
        # that object, the root included, do not count.
        if name and _is_user_class(type(holder)):
            root_keys = []
            break
    item_keys = [key for item in items[-1:] for key in _item_keys(item)]  # the newest item stands for all
    for key in [*attribute_keys, *item_keys, *root_keys]:
        rule = _find_rule_by_key(key)
        if rule is not None:
            return rule
    return None


def find_native_rule(kind: type) -> Rule | None:
    """Return the rule (what is known of a library, and the remedy) for a class; None if there is none.

    An object of the class is used at a line at which memory of C grows.
    """
    for owner in mro(kind):
        rule = _find_rule_by_key(f"({'.'.join(full_name(owner))})")  # `(ctypes.CDLL)`
        if rule is not None:
            return rule
    return None


def _attribute_rule_keys(kind: type, name: str) -> Iterable[str]:
    """Yield the places at which rules for an attribute of a class may stand, the most exact first.

    Of the attribute `.handlers` of the root logger they are "logging.RootLogger.handlers", "logging.Logger.handlers"
    and so on for each base class, then "logging.RootLogger.*", "logging.Logger.*" and so on.
    """
    attribute = name.lstrip(".")
    class_names = [".".join(full_name(owner)) for owner in mro(kind)]
    yield from (f"{owner}.{attribute}" for owner in class_names)
    yield from (f"{owner}.*" for owner in class_names)


def _is_user_class(kind: type) -> bool:
    """Return whether a class is defined in a file of the user's program, and not in a library."""
    module, _ = full_name(kind)
    file = (module_namespace(module) or {}).get("__file__")
    return module == "__main__" or (type(file) is str and is_user_file(file))


def _item_keys(item: Any) -> Iterable[str]:
    """Yield the places of an item, `[PIL.Image.Image]`, for its class and each base class.

    The places of an item that is itself a class are its metaclass, then the class itself, each with its base classes.
    """
    is_class = issubclass(type(item), type)
    classes = (*mro(type(item)), *mro(item)) if is_class else mro(type(item))
    for owner in classes:
        yield f"[{'.'.join(full_name(owner))}]"


def _find_rule_by_key(key: str) -> Rule | None:
    """Return the rule at a place, which the rule may write with `*`; None if none holds for the loaded version."""
    rule = _BY_PLACE.get(key)
    if rule is None:
        rule = next((pattern for pattern in _PATTERNS if _matches_pattern(pattern.place, key)), None)
    return rule if rule is not None and _fits_loaded_version(rule) else None


def _matches_pattern(place: str, key: str) -> bool:
    """Return whether a key matches the place of a rule that begins or ends with `*`: `torch._dynamo.*`."""
    return key.endswith(place[1:]) if place.startswith("*") else key.startswith(place[:-1])


def _fits_loaded_version(rule: Rule) -> bool:
    """Return whether the loaded library has one of the versions of a rule; True also if its version is not known."""
    if not rule.versions:
        return True
    bound_match = _VERSION.fullmatch(rule.versions)  # `<2.1`, `>=2.1`
    package_match = re.search(r"\w+", rule.place)
    namespace = None if package_match is None else module_namespace(package_match[0])
    version_text = plain_text((namespace or {}).get("__version__"))
    # Three numbers at most: those behind them are of builds, such as `cu121`.
    loaded_version = [int(part) for part in re.findall(r"\d+", version_text)[:3]]
    if bound_match is None or not loaded_version:
        return True
    version_bound = [int(part) for part in bound_match[2].split(".")]
    return loaded_version < version_bound if bound_match[1] == "<" else loaded_version >= version_bound


_PATH_PATTERNS = {"context variable *", "torch._dynamo.*"}
"""Places that begin the path of a root, and must be named here. Any other place that ends in `*` is a class with any
attribute, which `_attribute_rule_keys` yields as it is."""
_BY_PLACE = {rule.place: rule for rule in RULES}
_PATTERNS = tuple(rule for rule in RULES if rule.place.startswith("*") or rule.place in _PATH_PATTERNS)
