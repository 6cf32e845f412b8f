"""Test data for a social network: each profile has a text that no other one has.

Thread: https://github.com/joke2k/faker, and the kind of https://github.com/engelsystem/engelsystem/pull/1651
Looks like: writing a large file of profiles takes as much memory as the file is long.
Cause: `fake.unique` remembers each text that it gave, so that it gives none twice.
Fix: `fake.unique.clear()` between files, or plain `fake.text()`: texts this long do not repeat.
"""

import json
import sys
import tempfile

from faker import Faker

fake = Faker()
Faker.seed(7)


def make_profile(number):
    return {
        "id": number,
        "name": fake.name(),
        "email": fake.email(),
        "bio": fake.unique.text(max_nb_chars=4000),  # <- here
        "city": fake.city(),
    }


def main(parts: int) -> None:
    with tempfile.TemporaryFile("w") as out:
        for part in range(parts):
            for number in range(110):
                json.dump(make_profile(part * 110 + number), out)
        print("bytes written:", out.tell())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
