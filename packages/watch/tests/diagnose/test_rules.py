"""What is known of well-known libraries: each rule is well-formed, and matches a live object of its library."""

import importlib
import io
import logging
import logging.handlers
import multiprocessing.pool
import pickle
import re
import sqlite3
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from flatwater_watch.diagnose.finding_text import split_advice
from flatwater_watch.diagnose.rules import RULES, Rule, find_native_rule, find_rule
from flatwater_watch.heap.roots import loaded_registries

ROOTS = (
    "'s ",
    " in scapy: ",
    "linecache.",
    "sys.modules",
    "*.",
    "finalizers of ",
    "context variable ",
    "torch._dynamo.",
    "torch.multiprocessing.",
    ".SyncManager.",
    ".Agent._ids",
)
"""How places that are roots look."""


def library(module: str) -> Any:
    return pytest.importorskip(module, exc_type=ImportError)


def of_items(*path: str) -> Callable[[], Any]:
    """An object of a class whose constructor wants more than a test has: the class tells as much."""

    def make() -> Any:
        kind: Any = library(path[0])
        for name in path[1:]:
            kind = getattr(kind, name)
        return kind.__new__(kind)

    return make


def _base() -> Any:
    base = sqlite3.connect(":memory:")
    base.close()  # else Python 3.13 warns when it is gone
    return base


def _pool() -> Any:
    pool = multiprocessing.pool.ThreadPool(1)
    pool.terminate()
    return pool


def _task() -> Any:
    asyncio = library("asyncio")

    async def nothing() -> None:
        pass

    async def make() -> Any:
        task = asyncio.ensure_future(nothing())
        await task
        return task

    return asyncio.run(make())


def _loop() -> Any:
    loop = library("asyncio").new_event_loop()
    loop.close()
    return loop


def _optimizer() -> Any:
    torch = library("torch")
    return torch.optim.Adam(torch.nn.Linear(1, 1).parameters())


LIVE: dict[str, Callable[[], Any]] = {
    "logging.Manager.loggerDict": lambda: logging.root.manager,
    "logging.Logger.handlers": lambda: logging.getLogger("some"),
    "logging.Filterer.filters": logging.NullHandler,
    "logging.handlers.BufferingHandler.buffer": lambda: logging.handlers.MemoryHandler(9),
    "concurrent.futures.thread.ThreadPoolExecutor._work_queue": lambda: ThreadPoolExecutor(1),
    "concurrent.futures.process.ProcessPoolExecutor._pending_work_items": lambda: ProcessPoolExecutor(1),
    "multiprocessing.pool.Pool._cache": _pool,
    "multiprocessing.pool.IMapIterator._items": of_items("multiprocessing.pool", "IMapUnorderedIterator"),
    "[concurrent.futures._base.Future]": Future,
    "[_asyncio.Task]": _task,
    "asyncio.base_events.BaseEventLoop._scheduled": _loop,
    "asyncio.base_events.BaseEventLoop._ready": _loop,
    "xlsxwriter.worksheet.Worksheet.table": of_items("xlsxwriter.worksheet", "Worksheet"),
    "[builtins.generator]": lambda: (n for n in ()),
    "[builtins.BaseException]": lambda: KeyError("x"),
    "[_thread.lock]": threading.Lock,
    "[ssl.SSLContext]": lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    "[sqlite3.Connection]": _base,
    "[xml.etree.ElementTree.Element]": lambda: ET.Element("a"),
    "[multiprocessing.shared_memory.SharedMemory]": of_items("multiprocessing.shared_memory", "SharedMemory"),
    "_pickle.Pickler.*": lambda: pickle.Pickler(io.BytesIO()),
    "tarfile.TarFile.members": lambda: library("tarfile").TarFile(fileobj=io.BytesIO(), mode="w"),
    "unittest.mock.NonCallableMock.*": lambda: library("unittest.mock").Mock(),
    "torch.optim.optimizer.Optimizer.state": _optimizer,
    "torch.optim.optimizer.Optimizer.param_groups": _optimizer,
    "torch.nn.modules.module.Module._forward_hooks": lambda: library("torch").nn.Linear(1, 1),
    "torch.nn.modules.module.Module._forward_pre_hooks": lambda: library("torch").nn.Linear(1, 1),
    "torch.nn.modules.module.Module._backward_hooks": lambda: library("torch").nn.Linear(1, 1),
    "torch.profiler.profiler.profile.*": lambda: library("torch.profiler").profile(),
    "torchmetrics.metric.Metric.*": lambda: library("torchmetrics").MeanMetric(),
    "transformers.cache_utils.Cache.layers": lambda: library("transformers.cache_utils").DynamicCache(),
    "transformers.trainer_callback.TrainerState.log_history": of_items("transformers.trainer_callback", "TrainerState"),
    "stable_baselines3.common.monitor.Monitor.episode_returns": of_items("stable_baselines3.common.monitor", "Monitor"),
    "tensorboardX.writer.SummaryWriter.scalar_dict": lambda: library("tensorboardX").SummaryWriter(write_to_disk=False),
    "gymnasium.wrappers.rendering.RenderCollection.frame_list": of_items("gymnasium.wrappers", "RenderCollection"),
    "gymnasium.wrappers.rendering.RecordVideo.recorded_frames": of_items("gymnasium.wrappers", "RecordVideo"),
    "optuna.storages._in_memory.InMemoryStorage.*": of_items("optuna.storages", "InMemoryStorage"),
    "sklearn.ensemble._forest.BaseForest.estimators_": lambda: library("sklearn.ensemble").RandomForestClassifier(),
    "[lightgbm.basic.Booster]": of_items("lightgbm", "Booster"),
    "[xgboost.core.DMatrix]": of_items("xgboost", "DMatrix"),
    "matplotlib.axes._base._AxesBase._children": lambda: library("matplotlib.figure").Figure().add_subplot(),
    "matplotlib.cbook.CallbackRegistry.callbacks": lambda: library("matplotlib.cbook").CallbackRegistry(),
    "[PIL.Image.Image]": lambda: library("PIL.Image").new("L", (1, 1)),
    "[h5py._hl.files.File]": of_items("h5py", "File"),
    "[polars.dataframe.frame.DataFrame]": lambda: library("polars").DataFrame(),
    "[lxml.etree._Element]": lambda: library("lxml.etree").Element("a"),
    "[networkx.classes.graph.Graph]": lambda: library("networkx").DiGraph(),
    "[requests.sessions.Session]": lambda: library("requests").Session(),
    "[httpx.Client]": of_items("httpx", "Client"),
    "[httpx.AsyncClient]": of_items("httpx", "AsyncClient"),
    "[aiohttp.client.ClientSession]": of_items("aiohttp", "ClientSession"),
    "[urllib3.poolmanager.PoolManager]": lambda: library("urllib3").PoolManager(),
    "[botocore.client.BaseClient]": of_items("botocore.client", "BaseClient"),
    "botocore.hooks.HierarchicalEmitter.*": lambda: library("botocore.hooks").HierarchicalEmitter(),
    "moto.core.base_backend.BackendDict.*": of_items("moto.core.base_backend", "BackendDict"),
    "flask.sansio.scaffold.Scaffold.*": lambda: library("flask").Flask("some"),
    "aiohttp.web_app.Application._state": of_items("aiohttp.web_app", "Application"),
    "starlette.datastructures.State._state": lambda: library("starlette.datastructures").State(),
    "prometheus_client.metrics.MetricWrapperBase._metrics": lambda: library("prometheus_client").Counter(
        "some", "one", ["label"], registry=None
    ),
    "prometheus_client.registry.CollectorRegistry.*": lambda: library("prometheus_client").CollectorRegistry(),
    "opentelemetry.sdk.trace.TracerProvider.*": lambda: library("opentelemetry.sdk.trace").TracerProvider(),
    "opentelemetry.sdk.metrics._internal._view_instrument_match._ViewInstrumentMatch.*": of_items(
        "opentelemetry.sdk.metrics._internal._view_instrument_match", "_ViewInstrumentMatch"
    ),
    "[opentelemetry.sdk.trace.Span]": of_items("opentelemetry.sdk.trace", "_Span"),
    "loguru._logger.Core.handlers": lambda: library("loguru").logger._core,
    "sqlalchemy.orm.scoping.scoped_session.registry": lambda: library("sqlalchemy.orm").scoped_session(dict),
    "markdown.core.Markdown.*": lambda: library("markdown").Markdown(),
    "sqlalchemy.orm.session.Session._new": lambda: library("sqlalchemy.orm").Session(),
    "sqlalchemy.orm.session.Session.*": lambda: library("sqlalchemy.orm").Session(),
    "[jinja2.environment.Template]": lambda: library("jinja2").Template("a"),
    "[pydantic._internal._model_construction.ModelMetaclass]": lambda: library("pydantic").create_model("Some"),
    "responses.RequestsMock._calls": lambda: library("responses").RequestsMock(),
    "rich.console.Console._record_buffer": lambda: library("rich.console").Console(),
    "numba.core.dispatcher.Dispatcher.overloads": lambda: library("numba").njit(lambda n: n),
    "[uvloop.loop.TimerHandle]": lambda: library("uvloop").new_event_loop().call_later(9, print),
    "dogpile.cache.backends.memory.MemoryBackend._cache": of_items("dogpile.cache.backends.memory", "MemoryBackend"),
    "rpyc.core.protocol.Connection._local_objects": of_items("rpyc.core.protocol", "Connection"),
    "persistent.mapping.PersistentMapping.*": lambda: library("persistent.mapping").PersistentMapping(),
    "pexpect.spawnbase.SpawnBase.*": lambda: library("pexpect.spawnbase").SpawnBase(),
    "Pyro5.server.Daemon.objectsById": of_items("Pyro5.server", "Daemon"),
    "_abc._abc_data.*": lambda: vars(Callable)["_abc_impl"],
    "trio._channel.MemoryChannelState.data": lambda: library("trio").open_memory_channel(1)[0]._state,
    "anyio.streams.memory._MemoryObjectStreamState.buffer": lambda: (
        library("anyio").create_memory_object_stream[int](1)[0]._state
    ),
}
"""By place: an object that the rule is about."""
NATIVE: dict[str, Callable[[], Any]] = {
    "(ctypes.CDLL)": lambda: library("ctypes").CDLL(None),
    "(torch.profiler.profiler.profile)": lambda: library("torch.profiler").profile(),
    "(sqlite3.Connection)": _base,
    "(google.protobuf.message.Message)": lambda: library("google.protobuf.struct_pb2").Struct(),
    "(tokenizers.Tokenizer)": lambda: library("tokenizers").Tokenizer(library("tokenizers.models").BPE()),
    "(zmq.sugar.socket.Socket)": of_items("zmq", "Socket"),
}
"""By place: an object at whose line memory of C grows."""
NEITHER = {
    "(grpc._server._Server)",
    "[asyncio.tasks.Task]",
    "[grpc._channel.Channel]",
    "pandas.DataFrame._mgr",
    "pandas.core.frame.DataFrame._mgr",
}
"""Of other versions of Python or of the library; a table is asked below. Beside gRPC no test could fork any more."""


def is_root(rule: Rule) -> bool:
    return any(part in rule.place for part in ROOTS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.place)
def test_a_rule_is_well_formed(rule: Rule) -> None:
    assert re.fullmatch(r"|(<|>=)\d+(\.\d+)*", rule.versions)
    assert rule.fact.endswith(".")
    instruction, facts = split_advice(rule.advice({}))
    assert instruction.count("`") >= 2, "something to type"
    assert instruction.count("`") % 2 == instruction.count("{drop") == 0
    assert instruction.endswith(".")
    assert facts.startswith(rule.fact), "facts come after it"
    assert rule.fact[0].isupper() or rule.fact.startswith(
        ("`", "logging", "linecache", "warnings", "torch", "py", "structlog")
    )
    assert len(f"{rule.fact} {rule.fix}") < 260, "two or three lines"
    assert rule.page.startswith("https://") or not rule.page
    assert rule.place in LIVE or rule.place in NATIVE or rule.place in NEITHER or is_root(rule), "name a live object"


def test_there_are_forty_and_each_place_has_one() -> None:
    places = [rule.place for rule in RULES]
    assert len(set(places)) == len(places) >= 40


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", LIVE)
def test_a_rule_matches_a_live_object_of_its_library(place: str) -> None:
    (wanted,) = [rule for rule in RULES if rule.place == place]
    made = LIVE[place]()
    if place.startswith("["):
        assert find_rule("kept", [([made], "[*]")], [made]) == wanted
        return
    attribute = place.rpartition(".")[2]
    found = find_rule("kept", [(made, f".{'anything' if attribute == '*' else attribute}")], [])
    assert found == wanted


@pytest.mark.parametrize("place", NATIVE)
def test_a_rule_for_a_line_matches_an_object_of_its_library(place: str) -> None:
    rule = find_native_rule(type(NATIVE[place]()))
    assert rule is not None
    assert rule.place == place
    assert find_native_rule(dict) is None


def test_the_remedy_has_the_names_of_the_program() -> None:
    rule = Rule("lib.Session.*", "", "A session keeps it.", "Call `{Session:session}.close()` and {drop:drop it}.")
    assert rule.advice({}) == "Call `session.close()` and drop it. A session keeps it."
    names = {"Session": "train.DATABASE", "drop": "drop it (`train.OPEN.pop(key)`)"}
    assert rule.advice(names).startswith("Call `train.DATABASE.close()` and drop it (`train.OPEN.pop(key)`). ")


def test_the_deepest_place_is_asked_first_and_places_before_items() -> None:
    logger, error = logging.getLogger("some"), KeyError("x")
    found = find_rule("kept", [([logger], "[*]"), (logger, ".handlers")], [error])
    assert found is not None
    assert found.place == "logging.Logger.handlers"
    assert find_rule("kept", [({}, "['a']")], [1]) is None


class Keeping(logging.Handler):
    """A handler of the user's, which keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[str] = []


def test_what_an_object_of_the_user_s_keeps_is_not_what_the_library_keeps() -> None:
    """Of a handler that is added once the advice was to add it once."""
    logger, handler = logging.getLogger("some"), Keeping()
    hops = [(logger, ".handlers"), ([handler], "[*]")]
    kept = find_rule("root", [*hops, (handler, "")], [])
    assert kept is not None
    assert kept.place == "logging.Logger.handlers"
    assert find_rule("root", [*hops, (handler, ".records"), (handler.records, "")], ["x"]) is None
    assert find_rule("train.__warningregistry__", [(handler, ".records"), (handler.records, "")], ["x"]) is None
    assert find_rule("root", [*hops, (handler, ".lock"), ([], "")], [KeyError("x")]) is not None, "of the items"


def test_registries_and_roots_have_their_rules() -> None:
    labels = {label for label, _ in loaded_registries()}
    for root in ("finalizers of weakref.finalize", "linecache's files", "logging's handlers"):
        assert root in labels
        found = find_rule(root, [], [])
        assert found is not None
        assert found.place == root
    found = find_rule("context variable trace", [], [])
    assert found is not None
    assert "reset(token)" in found.fix
    assert find_rule("train.__warningregistry__", [], []) is not None


def test_a_table_of_pandas_has_its_rule() -> None:
    pandas = library("pandas")
    found = find_rule("kept", [(pandas.DataFrame({"a": [1]}), "._mgr")], [])
    assert found is not None
    assert "concatenate once" in found.fix


def test_a_rule_of_other_versions_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    table = importlib.import_module("flatwater_watch.diagnose.rules")
    numpy = library("numpy")
    major = int(numpy.__version__.partition(".")[0])
    for versions, holds in (("", True), (f">={major}", True), (f"<{major}", False), (f">={major + 1}", False)):
        rule = Rule("numpy.ndarray.some", versions, "Known.", "Fix.")
        monkeypatch.setattr(table, "_BY_PLACE", {rule.place: rule})
        assert (find_rule("kept", [(numpy.zeros(1), ".some")], []) is not None) is holds
