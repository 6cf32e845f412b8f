"""One template, many pages."""

import sys
import time

from jinja2 import Environment


def main(rounds: int) -> None:
    page = Environment(autoescape=True).from_string("{% for i in range(2000) %}{{ i + n }} {% endfor %}")
    total = 0
    for n in range(rounds):
        total += len(page.render(n=n))
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
