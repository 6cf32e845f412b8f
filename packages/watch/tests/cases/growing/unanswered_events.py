"""Events that ask for an answer, sent to a client that gives none.

Thread: https://github.com/miguelgrinberg/python-socketio/issues/1431
Looks like: a server grows with what it sends, for as long as the client stays connected.
Fix: `call(..., timeout=10)` instead of `emit(..., callback=...)`.
"""

import asyncio
import functools
import sys

import aiohttp
import socketio
from aiohttp import web


def drawn(number: int) -> list[int]:
    return list(range(number, number + 2_000))  # <- here


def confirm(chart: list[int], *_answer: object) -> int:
    return len(chart)


async def listen(address: str) -> None:
    async with aiohttp.ClientSession() as session, session.ws_connect(address) as connection:
        await connection.receive()
        await connection.send_str("40")
        async for _ in connection:
            pass


async def serve(rounds: int) -> None:
    server = socketio.AsyncServer(async_mode="aiohttp")
    connected: asyncio.Queue[str] = asyncio.Queue()
    server.on("connect", lambda client, _environ: connected.put_nowait(client))
    application = web.Application()
    server.attach(application)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    _, port = runner.addresses[0]
    listening = asyncio.create_task(listen(f"http://127.0.0.1:{port}/socket.io/?EIO=4&transport=websocket"))
    client = await connected.get()
    for n in range(rounds):
        for number in range(25):
            await server.emit("chart", n, to=client, callback=functools.partial(confirm, drawn(1000 * number)))
        await asyncio.sleep(0.14)
    listening.cancel()
    await runner.cleanup()


def main(rounds: int) -> None:
    asyncio.run(serve(rounds))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
