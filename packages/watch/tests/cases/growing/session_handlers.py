"""Short sessions around one long session, which keeps the handlers of each.

Thread: https://github.com/boto/boto3/issues/2176
Looks like: memory climbs with the sessions, by many small objects, although each session is dropped.
Fix: keep the outer session as long as the inner.
"""

import sys
import time

import boto3
import botocore.session


def main(rounds: int) -> None:
    credentials = botocore.session.Session()
    total = 0
    for _ in range(rounds):
        for _ in range(500):
            session = boto3.Session(region_name="us-west-2", botocore_session=credentials)  # <- here
            total += len(session.region_name)
        time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
