"""What `flatwater watch` must say of real leaks of public projects, rebuilt small with their libraries.

Each program names the thread that it is modelled on. A comment `# <- here` marks the line that makes most of what
grows, and `# <- or here` other lines that are right as well. Half of the programs are `unseen`: the finder is not tuned
on what is said of them, and one that was opened to see why it went wrong is seen from then on (`OPENED`).
"""

import random
from dataclasses import dataclass
from pathlib import Path

CASES = Path(__file__).parent
MARK = "# <- here"
OTHER_MARK = "# <- or here"
SEED = 17
LIBRARIES = "FLATWATER_CASE_LIBRARIES"
"""The environment variable that names a folder with `site-packages` in its path, for libraries not installed."""


@dataclass(frozen=True)
class Case:
    """The finding that a program must lead to, first of all that are told."""

    needs: str
    """The library that the program is written with."""
    verdicts: frozenset[str]
    """Any of them is right."""
    owners: tuple[str, ...]
    """Words that a person would use for the owner; one of them is in its path."""
    line: bool = True
    """Whether a line of the program makes the growth."""


def _case(needs: str, verdicts: str, *owners: str, line: bool = True) -> Case:
    return Case(needs, frozenset(verdicts.split()), owners, line)


GROWING = {
    "open_spans": _case("opentelemetry.sdk", "leak", "unfinished"),
    "starlette_requests": _case("starlette", "leak", "recent"),
    "kept_futures": _case("concurrent", "leak", "futures"),
    "executor_backlog": _case("concurrent", "backlog", "pool", "_work_queue"),
    "lightgbm_models": _case("lightgbm", "leak", "boosters"),
    "xgboost_matrices": _case("xgboost", "leak", "folds"),
    "pillow_copies": _case("PIL", "leak", "container"),
    "optuna_attributes": _case("optuna", "leak", "study"),
    "pydantic_classes": _case("pydantic", "leak", "models"),
    "profiler_without_schedule": _case("torch", "native leak", "outside of Python", "profiler", line=False),
    "worker_caches": _case("torch", "native leak", "worker", "cache", line=False),
    "logger_per_connection": _case("logging", "leak", "loggerDict", "logg"),
    "slow_websocket": _case("websockets", "backlog", "outbox"),
    "tokenizer_cache": _case("tokenizers", "native cache", "outside of Python", "tokenizer", line=False),
    "graph_views": _case("networkx", "leak", "cyclic garbage"),
    "closed_figures": _case("matplotlib", "leak", "cyclic garbage"),
    "client_per_request": _case("httpx", "leak", "clients"),
    "session_contexts": _case("requests", "leak", "sessions"),
    "polars_frames": _case("polars", "leak", "frames"),
    "arrow_tables": _case("pyarrow", "leak", "waiting"),
    "pandas_reports": _case("pandas", "leak", "Report.frames"),
    "warning_texts": _case("warnings", "leak", "__warningregistry__"),
    "cached_clients": _case("requests", "cache", "files"),
    "kept_errors": _case("lxml", "leak", "failures"),
    "pending_rows": _case("sqlalchemy", "leak backlog", "session"),
    "compiled_templates": _case("jinja2", "leak cache", "compiled"),
    "parsed_documents": _case("lxml", "leak", "XML_FILES"),
    "iterparse_tree": _case("lxml", "native leak", "outside of Python", "parser", line=False),
    "persisted_arrays": _case("dask", "leak", "persisted"),
    "warm_forest": _case("sklearn", "leak filling", "forest"),
    "waiting_tasks": _case("anyio", "leak backlog", "receive_loop", "opened"),
    "copied_contexts": _case("flask", "leak", "jobs"),
    "labelled_counters": _case("prometheus_client", "leak", "seconds", "_metrics"),
}
"""Program -> what must be found."""

LATER = {
    "metric_without_reset": _case("torchmetrics", "leak", "curve"),
    "thread_local_caches": _case("numpy", "leak", "tiles", "state"),
    "context_history": _case("numpy", "leak", "trace"),
    "finalizer_registry": _case("numpy", "leak", "weakref.finalize"),
    "loguru_sinks": _case("loguru", "leak", "loguru", "handlers"),
    "concatenated_frames": _case("pandas", "leak", "history"),
    "trio_channel": _case("trio", "leak backlog", "channel", "sender", "receiver"),
    "native_frames": _case("ctypes", "native", "outside of Python"),
    "carried_state": _case("torch", "leak", "hidden"),
    "exit_handlers": _case("numpy", "leak", "atexit"),
    "leaked_pixels": _case("PIL", "native", "outside of Python"),
    "trimmed_heap": _case("ctypes", "leak", "examples"),
    "scoped_sessions": _case("sqlalchemy", "leak", "registry"),
    "engine_listeners": _case("sqlalchemy", "leak", "engine"),
    "archive_members": _case("tarfile", "leak", "members"),
    "mocked_client": _case("unittest", "leak", "client", "mock_calls"),
    "generated_classes": _case("attrs", "leak", "linecache"),
    "page_stash": _case("markdown", "leak", "converter", "rawHtmlBlocks"),
    "counted_agents": _case("mesa", "leak", "_ids"),
    "expired_answers": _case("dogpile.cache", "leak cache", "REGION", "_cache"),
    "registered_tables": _case("Pyro5.api", "leak", "objectsById"),
    "remote_frames": _case("rpyc", "leak", "_local_objects", "frames"),
    "user_indices": _case("hnswlib", "leak native", "users", "outside of Python"),
    "visited_pages": _case("mechanize", "leak", "_history"),
    "written_sessions": _case("shelve", "leak cache", "sessions.cache"),
    "awaited_error": _case("pexpect", "leak backlog native", "job", "_buffer", "_before"),
    "bandit_examples": _case("vowpalwabbit", "native", "outside of Python", "workspace", "example"),
    "brain_volumes": _case("nibabel", "leak cache", "images", "_fdata_cache", "study"),
    "compiled_lengths": _case("jax", "native cache leak", "score", "jit", "jaxpr", "outside of Python"),
    "daily_tasks": _case("luigi", "leak cache", "Register", "instance_cache"),
    "fantasy_models": _case("gpytorch", "native leak", "outside of Python", "_memoize_cache", "cyclic garbage"),
    "finished_chats": _case("langgraph", "leak cache", "saver", "storage", "blobs", "writes"),
    "flow_charts": _case("holoviews", "leak", "curdoc", "Document", "state", "callbacks"),
    "planned_routes": _case("ortools", "native leak", "outside of Python", "CostLog", "RoutingModel"),
    "saved_generations": _case("pymoo", "leak", "algorithm", "history", "result"),
    "session_urls": _case("locust", "leak cache", "stats", "entries", "environment"),
    "tuned_forest": _case("skopt", "leak cache filling", "models", "optimizer"),
    "unpolled_producer": _case("confluent_kafka", "native backlog", "outside of Python", "producer"),
    "warped_tiles": _case("rasterio", "native", "outside of Python", "MemoryFile", "dataset"),
    "basket_sessions": _case("cherrypy", "leak cache", "RamSession"),
    "catalog_audit": _case("deepdiff", "leak", "changes"),
    "chat_handlers": _case("pyee", "leak", "bus", "_events", "EventEmitter"),
    "clicked_ads": _case("river", "native leak", "classifier", "_weights", "VectorDict"),
    "embedded_pages": _case("mpire", "leak cache native", "worker"),
    "imported_orders": _case("pony.orm", "leak cache", "SessionCache", "db2cache"),
    "averaged_checkpoints": _case("safetensors", "mapped leak", "embeddings"),
    "branch_reports": _case("git", "leak", "branches"),
    "prepared_zones": _case("shapely", "leak cache native", "_prepared"),
    "replayed_readings": _case("more_itertools", "leak cache", "readings of", "seekable", "_cache"),
    "survey_answers": _case("posthog", "leak", "threads"),
    "tenant_schemas": _case("thriftpy2", "leak cache", "_thrift_cache", "sys.modules"),
    "tick_streams": _case("streamz", "leak", "_global_sinks"),
    "unique_bios": _case("faker", "leak cache", "fake.unique", "UniqueProxy", "_unique_proxy", "_seen"),
    "unread_bus": _case("can", "backlog leak", "buffer", "BufferedReader", "listeners"),
    "delivery_quotes": _case("asgiref", "leak cache", "state", "context variable"),
    "tenant_orders": _case("mongoengine", "leak", "_document_registry"),
    "message_filters": _case("wasmtime", "native leak", "outside of Python", "store", "gateway"),
    "payment_service": _case("logbook", "leak backlog", "buffered_records", "handler"),
    "upload_sessions": _case("watchdog", "leak", "_handlers"),
    "upload_jobs": _case("aiojobs", "leak backlog", "scheduler", "store_when_confirmed"),
    "van_positions": _case("rtree", "native leak", "fleet.tree", "rtree"),
    "linked_facts": _case("pyoxigraph", "native leak", "linked_facts.store"),
    "product_vectors": _case("faiss", "native leak", "shop.index"),
    "scripted_rules": _case("lupa", "native leak", "referee.lua"),
    "shown_adverts": _case("ahocorasick", "native leak", "filters.seen"),
    "site_plugins": _case("pluginbase", "leak cache", "sys.modules"),
    "tax_systems": _case("importlib", "leak cache", "sys.modules"),
    "camera_clips": _case("av", "leak native cache", "yard.clips", "Yard.clips", "InputContainer"),
    "duplicate_articles": _case("datasketch", "leak cache", "feed.seen", "Feed.seen", "MinHashLSH"),
    "flow_totals": _case("uncertainties", "leak cache", "volume", "LinearCombination", "AffineScalarFunc"),
    "fold_scores": _case("accelerate", "leak cache native", "accelerator", "Accelerator", "_models", "_optimizers"),
    "forecast_points": _case("netCDF4", "leak native cache", "forecasts.files", "Forecasts.files", "Dataset"),
    "meter_import": _case("django", "leak cache", "queries"),
    "parcel_states": _case("transitions", "leak cache", "depot.machine", "Machine.models"),
    "partner_orders": _case("adaptix", "leak cache", "linecache"),
    "plate_reader": _case("aiortc", "leak backlog native", "reader.track", "relay", "RelayStreamTrack"),
    "run_dashboard": _case("tensorboard", "leak cache", "dashboard.events", "Dashboard.events", "EventAccumulator"),
    "sentence_vectors": _case("billiard", "leak cache", "vectors", "worker"),
    "shop_prices": _case("selectolax", "leak native cache", "prices.offers", "PriceList.offers"),
    "star_cutouts": _case("astropy", "leak mapped", "night.cutouts", "Night.cutouts", "exposure"),
    "van_routes": _case("deap", "leak cache", "history", "History"),
    "camera_checks": _case("PySide6", "native leak", "checker.network", "QNetworkAccessManager", "QNetworkReply"),
    "daily_refits": _case("ignite", "leak cache native", "refit.trainer", "_event_handlers", "fit_day.<locals>.watch"),
    "link_audit": _case("scrapy", "leak backlog cache", "scheduler", "downloader", "Request", "HtmlResponse"),
    "loan_questions": _case("datafusion", "leak native cache", "context", "SessionContext"),
    "private_clicks": _case("opacus", "leak cache native", "activations", "network", "GradSampleModule"),
    "promo_effects": _case("pyro", "leak cache native", "_params", "param_store", "PARAM_STORE", "ParamStoreDict"),
    "rain_alarm": _case("eccodes", "native leak", "outside of Python", "eccodes", "gribapi"),
    "scene_watch": _case("pystac", "leak cache", "watch.catalog", "SceneWatch.catalog", "ResolvedObjectCache"),
    "shop_prices_crawl": _case("eventlet", "leak backlog cache", "pile", "GreenPile", "GreenThread"),
    "tenant_forecasts": _case("pathos", "leak native", "worker process", "_STATE", "__state__", "ProcessPool"),
}
"""Programs written when the finder was mended, or mended for after one examination: all are seen."""

ASIDE = {
    "axes_lines": _case("matplotlib", "leak", "axes", "figure"),
    "duckdb_connections": _case("duckdb", "leak", "connections"),
    "hdf5_files": _case("h5py", "leak", "opened"),
    "aiohttp_application": _case("aiohttp", "leak", "seen", "application"),
    "background_tasks": _case("asyncio", "leak", "running"),
    "open_generators": _case("numpy", "leak", "readers"),
    "callback_rollouts": _case("stable_baselines3", "leak", "seen"),
    "rendered_frames": _case("gymnasium", "leak", "frame_list"),
    "attention_cache": _case("transformers", "leak", "past"),
    "memoized_queries": _case("cachetools", "leak cache", "query", "cache"),
    "observed_settings": _case("traitlets", "leak", "settings", "_trait_notifiers"),
    "registered_answers": _case("responses", "leak", "responses", "mock", "registry"),
    "session_jars": _case("http.cookiejar", "leak", "jars", "cookies"),
    "unordered_results": _case("multiprocessing", "leak backlog", "_items", "imap_unordered", "pool"),
    "unread_callbacks": _case("asyncio", "leak backlog", "_ready", "loop"),
}
"""The same, looked at once, at the end."""

NEW = {
    "loss_history": _case("torch", "leak native", "losses"),
    "second_order_gradients": _case("torch", "native leak", "outside of Python", "cyclic garbage", "weights"),
    "gradient_maps": _case("torch", "leak", "cyclic garbage", "ActivationMaps"),
    "queued_records": _case("logging", "backlog", "records", "QueueHandler", "QueueListener"),
    "registered_routes": _case("fastapi", "leak", "routes", "router", "application"),
    "widget_registry": _case("ipywidgets", "leak", "_instances", "widgets"),
    "rate_limits": _case("limits", "leak cache", "events", "MemoryStorage", "storage", "limiter"),
    "stored_objects": _case("moto", "leak", "s3_backends", "buckets", "backend"),
    "tls_contexts": _case("ssl", "leak native", "clients", "outside of Python"),
    "page_strings": _case("bs4", "leak", "titles"),
    "timer_handles": _case("asyncio", "leak backlog", "_scheduled", "loop", "TimerHandle"),
    "signal_receivers": _case("psygnal", "leak", "changed", "_slots", "theme"),
    "memory_database": _case("sqlite3", "native leak", "outside of Python", "database", "sqlite"),
    "pool_globals": _case("concurrent", "leak native", "index", "worker"),
    "session_handlers": _case("boto3", "leak", "credentials", "emitter", "_handlers", "_trie"),
    "cached_completions": _case("aiocache", "cache leak", "_cache", "completion", "aiocache"),
    "parsed_positions": _case("google.protobuf", "native leak", "outside of Python", "positions"),
    "pushed_frames": _case("zmq", "native backlog", "outside of Python", "sender", "socket"),
    "extracted_pages": _case("pdfplumber", "leak cache", "report", "pages"),
    "unanswered_events": _case("socketio", "leak backlog", "callbacks", "manager", "server"),
    "shell_outputs": _case("IPython", "leak cache", "_oh", "Out", "user_ns"),
    "short_names": _case("rdflib", "cache leak", "__cache", "NamespaceManager", "namespace_manager", "graph"),
    "broken_walls": _case("Box2D", "native leak", "outside of Python", "field", "world"),
    "collision_groups": _case("pygame", "leak", "__g", "groups", "fleet", "Ship"),
    "exported_rows": _case("xlsxwriter", "leak", "table", "sheet", "workbook"),
    "sniffed_packets": _case("scapy", "leak", "lst", "sniff", "PacketList"),
    "analysed_modules": _case("jedi", "cache leak", "parser_cache"),
    "failed_requests": _case("flask", "leak", "cyclic garbage"),
    "offline_publisher": _case("paho", "leak backlog", "_out_messages", "client"),
    "retired_servers": _case("grpc", "native leak", "outside of Python", "server"),
    "rolling_fits": _case("statsmodels", "leak", "fits"),
    "watched_theme": _case("textual", "leak", "__watchers", "dashboard"),
    "unread_messages": _case("kombu", "backlog leak", "queues", "state"),
    "cancelled_timeouts": _case("uvloop", "leak backlog", "loop", "_timers", "TimerHandle"),
    "checked_plugins": _case("abc", "leak native", "PLUGINS", "_abc_impl", "outside of Python"),
    "stored_signals": _case("ZODB", "leak cache", "root", "_cache", "database"),
    "syntax_nodes": _case("tree_sitter_python", "leak native", "functions"),
    "address_tagger": _case("pycrfsuite", "native leak cache", "tagger.trainer", "Tagger.trainer", "Trainer"),
    "bus_departures": _case("requests_cache", "leak cache", "board.session", "Board.session", "DictStorage"),
    "order_pages": _case("rocksdict", "leak native cache", "desk.cursors", "OrderDesk.cursors", "RdictIter"),
    "plant_dispatch": _case("pyomo", "leak cache", "model.solutions", "ModelSolutions", "SymbolMap"),
}
"""Programs whose verdicts, owners and lines were written down before the finder had read them."""

NEW_FLAT = {
    "cart_pole_replay": "torch",
    "catalog_lookup": "pandas",
    "claim_sums": "datafusion",
    "courier_distances": "pyproj",
    "district_walks": "networkx",
    "exchange_rates": "requests_cache",
    "tenant_exports": "pathos",
    "ticket_board": "sqlalchemy",
    "invoice_import": "django",
    "last_minutes": "av",
    "map_tiles": "cachetools",
    "price_folds": "accelerate",
    "rain_maps": "netCDF4",
    "ranked_batches": "billiard",
    "recipe_search": "sklearn",
    "sensor_windows": "polars",
    "daily_boosting": "catboost",
    "feature_store": "lmdb",
    "recent_embeddings": "async_lru",
    "reused_workers": "joblib",
    "room_bookings": "intervaltree",
    "variable_batches": "onnxruntime",
    "vips_thumbnails": "pyvips",
    "cached_answers": "cachelib",
    "converted_units": "pint",
    "recycled_renderers": "pebble",
    "rule_expressions": "numexpr",
    "scraped_documents": "html5lib",
    "shuffled_samples": "webdataset",
    "bounded_thumbnails": "cachetools",
    "date_patterns": "babel",
    "differentiated_formulas": "sympy",
    "error_crumbs": "sentry_sdk",
    "fresh_messages": "google.protobuf",
    "highlighted_files": "pygments",
    "parsed_zones": "dateutil",
    "phone_regions": "phonenumbers",
    "polled_pages": "bs4",
    "read_blocks": "fsspec",
    "recent_answers": "lru",
    "stopped_actors": "pykka",
    "summed_chunks": "concurrent",
    "trained_network": "torch",
    "waiting_sender": "zmq",
}
"""Program in which nothing is to be found -> the library that it is written with. They came with those of `NEW`."""

FLAT = {
    "arrow_batches": "pyarrow",
    "bounded_publisher": "asyncio",
    "flask_server": "flask",
    "jinja_pages": "jinja2",
    "lxml_documents": "lxml",
    "pandas_pipeline": "pandas",
    "pillow_batches": "PIL",
    "polars_pipeline": "polars",
    "sklearn_fits": "sklearn",
    "sqlalchemy_rows": "sqlalchemy",
    **NEW_FLAT,
}
"""All programs in which nothing is to be found."""

OPENED = frozenset(
    {
        "arrow_tables",
        "attention_cache",
        "bounded_thumbnails",
        "broken_walls",
        "closed_figures",
        "collision_groups",
        "date_patterns",
        "extracted_pages",
        "graph_views",
        "iterparse_tree",
        "offline_publisher",
        "page_strings",
        "persisted_arrays",
        "polled_pages",
        "rain_maps",
        "recycled_renderers",
        "room_bookings",
        "session_contexts",
        "session_handlers",
        "signal_receivers",
        "slow_websocket",
        "stored_objects",
        "timer_handles",
        "warning_texts",
    }
)
"""Programs that were drawn for the unseen half, and opened later."""


def halves() -> tuple[list[str], list[str]]:
    """The seen and the unseen programs, each with a share of those that grow; without those that were opened."""
    seen, unseen = sorted(LATER), [*sorted(ASIDE), *sorted(NEW), *sorted(NEW_FLAT)]
    for names in (sorted(GROWING), sorted(set(FLAT) - set(NEW_FLAT))):
        random.Random(SEED).shuffle(names)
        middle = (len(names) + 1) // 2
        seen += names[:middle]
        unseen += names[middle:]
    return seen, [name for name in unseen if name not in OPENED]


def needs(name: str) -> str:
    """The library that a program is written with."""
    return growing()[name].needs if name in growing() else FLAT[name]


def growing() -> dict[str, Case]:
    """All programs in which something is to be found."""
    return {**GROWING, **LATER, **ASIDE, **NEW}


def program_of(name: str) -> Path:
    """The file of a program."""
    return CASES / ("growing" if name in growing() else "flat") / f"{name}.py"


def marked_line(name: str) -> int:
    """The number of the line that makes most of what grows."""
    lines = program_of(name).read_text().splitlines()
    (number,) = [n for n, line in enumerate(lines, start=1) if line.endswith(MARK)]
    return number


def right_lines(name: str) -> set[int]:
    """The marked line, and the others that are right as well."""
    lines = program_of(name).read_text().splitlines()
    return {n for n, line in enumerate(lines, start=1) if line.endswith((MARK, OTHER_MARK))}
