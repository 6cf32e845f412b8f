"""Servers that are set up to ask whether all is in order, and stopped before they were ever started.

Thread: https://github.com/grpc/grpc/issues/31509
Looks like: memory climbs with the servers, although each is stopped and dropped, and no Python object grows.
Fix: one server for the life of the process, or `server.start()` before `server.stop(0)`.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc


def read(request: bytes, _context: grpc.ServicerContext) -> bytes:
    return request


def rehearse(pool: ThreadPoolExecutor) -> None:
    server = grpc.server(pool)  # <- here
    methods = {f"Read{n}": grpc.unary_unary_rpc_method_handler(read) for n in range(4)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Meters", methods),))
    server.stop(0)


def main(rounds: int) -> None:
    pool = ThreadPoolExecutor(4)
    for _ in range(rounds):
        for _ in range(700):
            rehearse(pool)
        time.sleep(0.12)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
