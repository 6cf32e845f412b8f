"""A middleware of an ASGI application that remembers each request with its state.

Thread: https://github.com/Kludex/starlette/issues/1749
Looks like: a server grows with each request, by the size of what the handler put on `request.state`.
Fix: remember the path and the time, not the request.
"""

import asyncio
import sys

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

recent: list[Request] = []


async def homepage(request: Request) -> JSONResponse:
    request.state.features = np.ones(300_000)  # <- here
    recent.append(request)
    return JSONResponse({"hello": "world"})


async def serve(rounds: int) -> None:
    app = Starlette(routes=[Route("/", homepage)])

    async def receive() -> dict:
        return {"type": "http.request", "body": b""}

    async def send(message: dict) -> None:
        del message

    for _ in range(rounds):
        scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}
        await app(scope, receive, send)
        await asyncio.sleep(0.15)


def main(rounds: int) -> None:
    asyncio.run(serve(rounds))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
