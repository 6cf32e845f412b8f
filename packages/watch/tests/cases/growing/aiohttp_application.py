"""A server that notes each request in its application.

Thread: https://github.com/aio-libs/aiohttp/issues/4478
Looks like: the server grows with its requests.
Fix: count, or keep the last so many.
"""

import asyncio
import sys

from aiohttp import ClientSession, web

SEEN = web.AppKey("seen", list)


async def upload(request: web.Request) -> web.Response:
    body = await request.read()  # <- here
    request.app[SEEN].append({"path": request.path, "body": body})
    return web.Response(text="ok")


async def serve(rounds: int) -> None:
    application = web.Application(client_max_size=1 << 24)
    application[SEEN] = []
    application.router.add_post("/upload", upload)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    async with ClientSession() as session:
        for n in range(rounds):
            await session.post(f"http://127.0.0.1:{port}/upload", data=bytes([n % 256]) * 2_000_000)
            await asyncio.sleep(0.15)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 60))
