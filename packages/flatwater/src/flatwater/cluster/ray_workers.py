"""Workers as actors of a Ray cluster: each has cores and memory that Ray sets aside for it on some node.

Ray places processes, carries messages and notices that a node is gone. It restarts nothing and repeats nothing: the
run's own process knows which questions a lost worker's successor must be asked. No other module imports Ray.
"""

import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import (
    GetTimeoutError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RaySystemError,
    WorkerCrashedError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from flatwater.cluster.worker import WorkerSession
from flatwater.memory.nodes import STORE_SHARE
from flatwater.named_imports import import_object
from flatwater_watch.errors import RunError
from flatwater_watch.units import format_bytes

AUTO_ADDRESS = "auto"
"""Address that stands for the cluster that this machine belongs to."""
ANSWER_SECONDS = 10.0
"""Seconds that an address may take to answer."""
CHECK_SECONDS = 10.0
"""Seconds between two checks of an actor that has not answered; an actor that is stopped at two checks is killed."""
PLACEMENT_SECONDS = 300.0
"""Seconds that a worker may wait for a place in the cluster."""
_LOST_ERRORS = (RayActorError, ObjectLostError, NodeDiedError, WorkerCrashedError, OutOfMemoryError)
"""Errors for the loss of a worker: a dead actor, a silent node, and an answer that was lost with its node."""


def join_cluster(address: str) -> None:
    """Join a Ray cluster, unless this process has joined one; the handler of SIGTERM stays as it was.

    Raises:
        RunError: no cluster answers at that address.
    """
    if ray.is_initialized():
        return
    is_main_thread = threading.current_thread() is threading.main_thread()
    previous_handler = signal.getsignal(signal.SIGTERM)
    try:
        if address != AUTO_ADDRESS:  # tried first, as Ray itself tries for minutes where nobody answers
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (OSError, ValueError, RuntimeError, RaySystemError) as error:
        raise RunError(
            f"cluster = {address!r}: no Ray cluster answers: {str(error).splitlines()[0]} "
            "Start one with `ray start --head`, or use --workers without --cluster."
        ) from error
    finally:
        # Ray has set a handler of its own, which would end the run without a checkpoint. Python lets the main thread
        # alone set handlers.
        if is_main_thread:
            signal.signal(signal.SIGTERM, previous_handler)


@dataclass(frozen=True)
class RayNode:
    """A machine of the cluster."""

    name: str
    identity: str
    """Ray's ID of the node: several nodes may have one name."""
    cores: float
    memory: int
    """Bytes that Ray may set aside for workers."""
    store: int
    """Bytes of its object store, in which large messages lie."""


def list_nodes() -> list[RayNode]:
    """Return the machines of the cluster that are alive now, sorted by name."""
    nodes = [
        RayNode(
            name=facts["NodeManagerHostname"],
            identity=facts["NodeID"],
            cores=facts["Resources"].get("CPU", 0.0),
            memory=int(facts["Resources"].get("memory", 0)),
            store=int(facts["Resources"].get("object_store_memory", 0)),
        )
        for facts in ray.nodes()
        if facts["Alive"]
    ]
    return sorted(nodes, key=lambda node: (node.name, node.identity))


def object_store_bytes() -> int:
    """Return the bytes that are in use in the object stores of all nodes."""
    name = "object_store_memory"
    return int(ray.cluster_resources().get(name, 0.0) - ray.available_resources().get(name, 0.0))


def ask_nodes(nodes: Sequence[RayNode], target: str, *arguments: object) -> list[Any]:
    """Call a function on several nodes at once, and return the results in the order of the nodes.

    Args:
        nodes: some of `list_nodes`.
        target: `package.module:function`.
        arguments: arguments of the function.
    """
    # Not soft: Ray must not answer from another node instead.
    strategies = (NodeAffinitySchedulingStrategy(node_id=node.identity, soft=False) for node in nodes)
    references = [
        _call_on_node.options(scheduling_strategy=strategy).remote(target, *arguments) for strategy in strategies
    ]
    answers: list[Any] = ray.get(references, timeout=PLACEMENT_SECONDS)
    return answers


def _call_target(target: str, *arguments: object) -> Any:  # noqa: ANN401  (whatever the method returns)
    return import_object(target)(*arguments)


class _RayHost:
    """The actor of a worker on some node of the cluster, which answers as a worker's process does."""

    def __init__(self, maximum_bytes: int) -> None:
        """Begin a session; no answer may be larger than `maximum_bytes`."""
        self._session, self._maximum_bytes = WorkerSession(), maximum_bytes

    def answer(self, message: bytes) -> bytes:
        """Return the answer to one question.

        Raises:
            ValueError: the answer is larger than a message may be.
        """
        content = self._session.answer_message(message)
        if len(content) > self._maximum_bytes:
            raise ValueError(size_error_text(len(content), self._maximum_bytes))
        return content

    def node_and_process(self) -> tuple[str, int]:
        """Return Ray's ID of the node that the actor is on, and the actor's process id there."""
        return ray.get_runtime_context().get_node_id(), os.getpid()


# No retries: the run itself asks the questions of a lost worker again.
_call_on_node = ray.remote(num_cpus=0, max_retries=0)(_call_target)
_RemoteHost = ray.remote(max_restarts=0, max_task_retries=0)(_RayHost)


def size_error_text(size: int, maximum: int) -> str:
    """Return the text of the error for a message of `size` bytes, which may have at most `maximum`."""
    return (
        f"a message of {format_bytes(size)} is larger than {format_bytes(maximum)}, 1/{STORE_SHARE} of the smallest "
        "object store. Start Ray with a larger --object-store-memory, or make replay and population smaller."
    )


class RayActor:
    """A `WorkerConnection` to a worker's actor in the cluster."""

    restart_delay = 2.0  # for a while, Ray still places actors on a node that is lost

    def __init__(self, threads: int, memory: int, node: str) -> None:
        """Ask Ray for a place for the actor, without waiting for it.

        Args:
            threads: cores that Ray sets aside for the worker.
            memory: bytes that Ray sets aside.
            node: identity of the preferred node; empty for any node with free resources.
        """
        # The largest message fits the smallest object store, as a worker may be placed on any node.
        self._maximum_bytes = min(node.store for node in list_nodes()) // STORE_SHARE
        # Soft: if the node is gone, Ray takes another.
        strategy = NodeAffinitySchedulingStrategy(node_id=node, soft=True) if node else None
        self._host = _RemoteHost.options(num_cpus=threads, memory=memory, scheduling_strategy=strategy).remote(
            self._maximum_bytes
        )
        # References to answers that Ray does not have yet; `receive` waits for them.
        self._node_and_process = self._host.node_and_process.remote()
        self._answer_references: deque[Any] = deque()
        self._placement: tuple[str, int] | None = None
        self.exit_reason = "its actor lost"

    @property
    def machine(self) -> str:
        """Ray's ID of the node, as several may have one name; empty until the actor has its place."""
        return "" if self._placement is None else self._placement[0]

    @property
    def pid(self) -> int | None:
        """Process id of the worker; None if it is on another machine, or has no place yet."""
        if self._placement is None:
            return None
        node_id, pid = self._placement
        return pid if node_id == ray.get_runtime_context().get_node_id() else None

    def send(self, message: bytes) -> None:
        """Send a question to the worker.

        Raises:
            RunError: the message is larger than a node's object store can take.
        """
        if len(message) > self._maximum_bytes:
            raise RunError(size_error_text(len(message), self._maximum_bytes))
        self._answer_references.append(self._host.answer.remote(message))

    def receive(self) -> bytes:
        """Wait for the answer to the oldest question, and return it; kill an actor that is stopped at two checks.

        Raises:
            RunError: the cluster has no place for the worker.
            EOFError: the actor is lost.
        """
        try:
            if self._placement is None:
                # Not before the first answer is wanted: until then the actor may wait for free resources.
                self._placement = ray.get(self._node_and_process, timeout=PLACEMENT_SECONDS)
            reference = self._answer_references.popleft()
            is_stopped = False
            # `ray.wait` returns the references that are ready, here one or none, and the others.
            while not ray.wait([reference], timeout=CHECK_SECONDS)[0]:
                # Killed only at the second check in a row: somebody may have stopped it for a moment.
                is_stopped = self._poll_stopped_process_(kill_if_stopped=is_stopped)
            answer: bytes = ray.get(reference)
        except GetTimeoutError as error:
            raise RunError(
                f"the cluster had no room for a worker in {PLACEMENT_SECONDS:.0f} s. Its free resources: "
                f"{ray.available_resources()}. Use fewer --workers, or add machines."
            ) from error
        except _LOST_ERRORS as loss:
            self.exit_reason = str(loss).splitlines()[0]
            raise EOFError(self.exit_reason) from loss
        return answer

    def _poll_stopped_process_(self, *, kill_if_stopped: bool) -> bool:
        """Return whether a signal has stopped the actor's process; with `kill_if_stopped`, kill a stopped process."""
        assert self._placement is not None  # noqa: S101  (`receive` has read it)
        identity, pid = self._placement
        with suppress(RayError):  # the node is gone, and the actor's answer will be an error
            node = next((candidate for candidate in list_nodes() if candidate.identity == identity), None)
            if node is None:  # it is gone
                return False
            # Only the process's own node can see its state.
            (is_stopped,) = ask_nodes([node], "flatwater_watch.meters.proc:is_stopped", pid)
            if is_stopped and kill_if_stopped:
                ask_nodes([node], "os:kill", pid, int(signal.SIGKILL))
            return bool(is_stopped)
        return False

    def close(self) -> None:
        """End the actor."""
        with suppress(*_LOST_ERRORS):
            ray.kill(self._host, no_restart=True)
