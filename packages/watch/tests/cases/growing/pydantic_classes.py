"""A model class for each request, and a list that keeps the classes.

Thread: https://github.com/pydantic/pydantic/issues/11958
Looks like: memory climbs with the requests; no object is large.
Fix: build one model for each schema, and look it up.
"""

import sys
import time

from pydantic import create_model

models = []


def main(rounds: int) -> None:
    for batch in range(rounds):
        for n in range(40):
            model = create_model(f"Dynamic{batch}_{n}", x=(int, 0), y=(str, ""))  # <- here
            models.append(model)
        time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
