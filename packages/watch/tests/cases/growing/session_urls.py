"""A load test of a recommender, each visitor with a session of its own in the name of the request.

Thread: https://github.com/open-telemetry/opentelemetry-demo/pull/426
Looks like: the load generator is killed for memory after hours, while the service is well.
Cause: locust keeps statistics for each distinct name of a request, and the name has the session in it.
Fix: one name for all of them, `name="/recommendations"` (`self.client.get(url, name=...)`).
"""

import random
import sys
import time
import uuid

import gevent
from locust import User, constant, task
from locust.env import Environment


class Recommender:
    """The client of the service's own protocol, which tells locust of each call."""

    def __init__(self, environment: Environment):
        self.environment = environment

    def get(self, path: str, name: str) -> None:
        began = time.perf_counter()
        gevent.sleep(random.uniform(0.001, 0.02))
        took = 1000 * (time.perf_counter() - began)
        self.environment.events.request.fire(  # <- here
            request_type="RPC", name=name, response_time=took, response_length=900, exception=None, context={}
        )


class Visitor(User):
    wait_time = constant(0)

    def __init__(self, environment: Environment):
        super().__init__(environment)
        self.client = Recommender(environment)

    @task
    def recommendations(self):
        path = f"/recommendations?session={uuid.uuid4()}&products=" + ",".join(map(str, range(60)))
        self.client.get(path, name=path)


def main(seconds: float) -> None:
    environment = Environment(user_classes=[Visitor])
    runner = environment.create_local_runner()
    runner.start(12, spawn_rate=12)
    gevent.sleep(seconds)
    runner.quit()
    print("requests", environment.stats.total.num_requests)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 25)
