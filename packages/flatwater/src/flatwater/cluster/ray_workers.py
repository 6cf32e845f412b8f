"""Workers as actors of a Ray cluster: one for each, with cores and memory that Ray sets aside for it on some node.

Ray places processes, carries messages and notices that a node is gone. It restarts nothing and repeats nothing: the
run's own process knows what a worker that was lost has to be told. The only module that imports Ray.
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
"""Seconds between two checks of an actor that has not answered; an actor that stands still at two of them is ended."""
PLACEMENT_SECONDS = 300.0
"""Seconds that a worker may wait for a place in the cluster."""
_LOST_ERRORS = (RayActorError, ObjectLostError, NodeDiedError, WorkerCrashedError, OutOfMemoryError)
"""Errors for the loss of a worker: a dead actor, a silent node, and an answer that was lost with its node."""


def join_cluster(address: str) -> None:
    """Join a cluster, once in each process; the handler of SIGTERM stays as it was.

    Raises:
        RunError: no cluster answers at that address.
    """
    if ray.is_initialized():
        return
    is_main = threading.current_thread() is threading.main_thread()
    # Handlers can be set in the main thread alone.
    handler_before = signal.getsignal(signal.SIGTERM)
    try:
        if address != AUTO_ADDRESS:  # Ray itself asks for minutes where nobody answers
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (OSError, ValueError, RuntimeError, RaySystemError) as error:
        raise RunError(
            f"cluster = {address!r}: no Ray cluster answers: {str(error).splitlines()[0]} "
            "Start one with `ray start --head`, or use --workers without --cluster."
        ) from error
    finally:
        if is_main:  # Ray puts a handler of its own there, which would end the run without a checkpoint
            signal.signal(signal.SIGTERM, handler_before)


@dataclass(frozen=True)
class RayNode:
    """A machine of the cluster."""

    name: str
    identity: str
    cores: float
    memory: int
    """Bytes that Ray may set aside for workers."""
    store: int
    """Bytes of its object store, in which large messages lie."""


def list_nodes() -> list[RayNode]:
    """Return the machines that are there now, in the order of their names."""
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
    """Return the bytes that the object stores of all nodes hold, each node's once."""
    total = ray.cluster_resources()
    available = ray.available_resources()
    name = "object_store_memory"
    return int(total.get(name, 0.0) - available.get(name, 0.0))


def ask_nodes(nodes: Sequence[RayNode], target: str, *arguments: object) -> list[Any]:
    """Call a function on several nodes at once, and return its result on each.

    Args:
        nodes: some of `list_nodes`.
        target: `package.module:function`.
        arguments: arguments of the function.
    """
    # Not soft: another node's answer would be of other memory.
    strategies = (NodeAffinitySchedulingStrategy(node_id=node.identity, soft=False) for node in nodes)
    references = [
        _call_on_node.options(scheduling_strategy=strategy).remote(target, *arguments) for strategy in strategies
    ]
    answers: list[Any] = ray.get(references, timeout=PLACEMENT_SECONDS)
    return answers


def _call_target(target: str, *arguments: object) -> Any:  # noqa: ANN401  (whatever the method returns)
    return import_object(target)(*arguments)


class _RayHost:
    """The actor of a worker, which answers as a worker's process does; it lives on some node of the cluster."""

    def __init__(self, most: int) -> None:
        """Nothing is made yet.

        Args:
            most: bytes that an answer may have.
        """
        self._session, self._maximum_bytes = WorkerSession(), most

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
        """Return the identity of the node, and the process id there."""
        return ray.get_runtime_context().get_node_id(), os.getpid()


# Ray repeats nothing: the run itself knows what a lost worker has to be told again.
_call_on_node = ray.remote(num_cpus=0, max_retries=0)(_call_target)
_RemoteHost = ray.remote(max_restarts=0, max_task_retries=0)(_RayHost)


def size_error_text(size: int, maximum: int) -> str:
    """Return why a message is not sent."""
    return (
        f"a message of {format_bytes(size)} is larger than {format_bytes(maximum)}, 1/{STORE_SHARE} of the smallest "
        "object store. Start Ray with a larger --object-store-memory, or make replay and population smaller."
    )


class RayActor:
    """A worker's actor in the cluster, from its start to its end."""

    restart_delay = 2.0  # a node that is lost is still offered by Ray for a while

    def __init__(self, threads: int, memory: int, node: str) -> None:
        """Ask for a place, without waiting for it.

        Args:
            threads: cores that Ray sets aside for the worker.
            memory: bytes that Ray sets aside.
            node: identity of the preferred node; empty for any node with free resources.
        """
        # The smallest, as a worker may come to any node.
        self._maximum_bytes = min(node.store for node in list_nodes()) // STORE_SHARE
        # Soft: a node that is gone is replaced.
        strategy = NodeAffinitySchedulingStrategy(node_id=node, soft=True) if node else None
        self._host = _RemoteHost.options(num_cpus=threads, memory=memory, scheduling_strategy=strategy).remote(
            self._maximum_bytes
        )
        self._node_and_process = self._host.node_and_process.remote()
        self._answers_expected: deque[Any] = deque()
        self._placement: tuple[str, int] | None = None
        self.exit_reason = "its actor lost"

    @property
    def machine(self) -> str:
        """Identity of the node, as several may have one name; empty until the actor has its place."""
        return "" if self._placement is None else self._placement[0]

    @property
    def pid(self) -> int | None:
        """Process id of the worker, where it is on this machine."""
        if self._placement is None or self._placement[0] != ray.get_runtime_context().get_node_id():
            return None
        return self._placement[1]

    def send(self, message: bytes) -> None:
        """Post a question.

        Raises:
            RunError: the message is larger than a node's object store can take.
        """
        if len(message) > self._maximum_bytes:
            raise RunError(size_error_text(len(message), self._maximum_bytes))
        self._answers_expected.append(self._host.answer.remote(message))

    def receive(self) -> bytes:
        """Return the oldest answer; an actor that a signal has stopped for two looks is killed.

        Raises:
            RunError: the cluster has no place for the worker.
            EOFError: the actor is lost.
        """
        try:
            if self._placement is None:
                # With the first answer: until then it may wait for free resources.
                self._placement = ray.get(self._node_and_process, timeout=PLACEMENT_SECONDS)
            reference = self._answers_expected.popleft()
            is_stopped = False
            while not ray.wait([reference], timeout=CHECK_SECONDS)[0]:
                # At the second look in a row that finds it stopped: somebody may have it stopped for a moment.
                is_stopped = self._kill_or_detect_stopped(kill_if_stopped=is_stopped)
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

    def _kill_or_detect_stopped(self, *, kill_if_stopped: bool) -> bool:
        """Return whether a signal has stopped the process, as its node says; kill a stopped process on request."""
        assert self._placement is not None  # noqa: S101  (it was asked)
        identity, pid = self._placement
        with suppress(RayError):  # its node is gone: Ray says so of the actor as well
            node = next((candidate for candidate in list_nodes() if candidate.identity == identity), None)
            # Only its node can see that.
            if node and ask_nodes([node], "flatwater_watch.meters.proc:is_stopped", pid)[0]:
                if kill_if_stopped:
                    ask_nodes([node], "os:kill", pid, int(signal.SIGKILL))
                return True
        return False

    def close(self) -> None:
        """End the actor."""
        with suppress(*_LOST_ERRORS):
            ray.kill(self._host, no_restart=True)
