"""Templates by their text, where the text holds the customer's name.

Thread: https://github.com/sbintuitions/flexeval/pull/113
Looks like: memory climbs with the customers.
Fix: compile the template once, and render with the name.
"""

import sys
import time

from jinja2 import Environment, Template

compiled: dict[str, Template] = {}


def main(rounds: int) -> None:
    environment = Environment(autoescape=True)
    for n in range(rounds):
        for at in range(6):
            text = f"Dear customer {n}-{at}, " + "{{ a }} and {{ b }} " * 100
            compiled[text] = environment.from_string(text)  # <- here
        time.sleep(0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
