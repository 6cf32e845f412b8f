"""Numbers of many countries: phonenumbers loads what it knows of a country when it is first asked."""

import sys
import time

import phonenumbers


def main(rounds: int) -> None:
    regions = sorted(phonenumbers.SUPPORTED_REGIONS)
    for n in range(2 * rounds):
        for k in range(3):
            region = regions[(3 * n + k) % len(regions)]
            number = phonenumbers.example_number(region)
            phonenumbers.is_valid_number(number)
        time.sleep(0.06)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
