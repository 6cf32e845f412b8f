"""A jar of cookies for each login of a crawler, each of which is used once.

Thread: https://github.com/scrapy/scrapy/pull/715
Looks like: the crawl takes more memory with each account that logs in.
Fix: `jars.pop(login)` when the last request of a login is answered.
"""

import sys
import time
from collections import defaultdict
from http.cookiejar import Cookie, CookieJar


def cookie(login: int, number: int) -> Cookie:
    fields = dict.fromkeys(("port", "expires", "comment", "comment_url"))
    marks = dict.fromkeys(
        ("port_specified", "domain_specified", "domain_initial_dot", "path_specified", "secure", "discard"), False
    )
    text = {"name": f"visit{number}", "value": f"{login}-{number}", "domain": "shop.test", "path": f"/{number}"}
    return Cookie(version=0, rest={"SameSite": "Lax"}, **text, **fields, **marks)  # <- here


class Cookies:
    def __init__(self) -> None:
        self.jars: defaultdict[int, CookieJar] = defaultdict(CookieJar)

    def answered(self, login: int) -> None:
        for number in range(20):
            self.jars[login].set_cookie(cookie(login, number))


def main(rounds: int) -> None:
    cookies = Cookies()
    for login in range(rounds):
        cookies.answered(login)
        time.sleep(0.01)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1200)
