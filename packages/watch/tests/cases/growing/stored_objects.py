"""A stand-in for a cloud's storage that holds each object in memory.

Thread: https://github.com/localstack/localstack/issues/1950
Looks like: a server for tests grows by the size of what is uploaded to it.
Fix: `reset()` between the tests, or delete the objects.
"""

import sys
import time

import boto3
from moto import mock_aws


@mock_aws
def main(rounds: int) -> None:
    client = boto3.client("s3", "us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
    client.create_bucket(Bucket="reports")
    for n in range(rounds):
        for part in range(4):
            client.put_object(Bucket="reports", Key=f"{n}/{part}", Body=bytes([part]) * 300_000)  # <- here
        time.sleep(0.13)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
