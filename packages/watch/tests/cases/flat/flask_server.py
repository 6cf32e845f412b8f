"""A server that answers each request and keeps nothing."""

import sys
import time

from flask import Flask, request

app = Flask(__name__)


@app.post("/")
def upload() -> str:
    return str(len(request.get_data()))


def main(rounds: int) -> None:
    client = app.test_client()
    for n in range(rounds):
        client.post("/", data=bytes([n % 256]) * 2_000_000)
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
