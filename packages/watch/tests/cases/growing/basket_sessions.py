"""A shop whose visitors, mostly robots, keep no cookies: each request begins a session of its own.

Thread: https://github.com/cherrypy/cherrypy/issues/1082, https://github.com/cherrypy/cherrypy/issues/838
Looks like: the server grows with its visits, faster at night, although the shop's own code keeps nothing.
Cause: sessions stay in a table of `RamSession`'s class for an hour, whether their visitor comes again or not.
Fix: `cherrypy.lib.sessions.expire()` for visitors without a cookie, or a shorter `tools.sessions.timeout`.
"""

import sys
import time
import urllib.request

import cherrypy


class Shop:
    @cherrypy.expose
    def index(self):
        basket = cherrypy.session.setdefault("basket", [])
        offers = [f"offer {number}: a chair of beech, " * 12 for number in range(320)]  # <- here
        basket.append({"seen": time.time(), "offers": offers})
        return f"{len(basket)} visits"


cherrypy.config.update(
    {
        "server.socket_port": 18563,
        "server.thread_pool": 4,
        "engine.autoreload.on": False,
        "log.screen": False,
        "tools.sessions.on": True,
    }
)


def main(visits: int) -> None:
    cherrypy.tree.mount(Shop(), "/")
    cherrypy.engine.start()
    text = b""
    for _ in range(visits):
        with urllib.request.urlopen("http://127.0.0.1:18563/") as answer:
            text = answer.read()
        time.sleep(0.045)
    cherrypy.engine.exit()
    print(text.decode())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 320)
