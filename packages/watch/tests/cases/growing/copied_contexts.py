"""Functions that are kept with the context of the request that made them.

Thread: https://github.com/dchevell/flask-executor/issues/26
Looks like: memory climbs with the requests, by the size of their bodies.
Fix: pass the function what it needs.
"""

import sys
import time

from flask import Flask, copy_current_request_context, request

app = Flask(__name__)
jobs = []


@app.post("/")
def upload() -> str:
    request.get_data()  # <- here

    @copy_current_request_context
    def job() -> int:
        return len(request.get_data())

    jobs.append(job)
    return "kept"


def main(rounds: int) -> None:
    client = app.test_client()
    for n in range(rounds):
        client.post("/", data=bytes([n % 256]) * 2_000_000)
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
