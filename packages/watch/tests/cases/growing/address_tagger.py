"""A tagger of address lines, trained again by python-crfsuite when enough corrected lines have come in.

Thread: https://github.com/scrapinghub/python-crfsuite/issues/37, https://github.com/scrapinghub/python-crfsuite/issues/64
Looks like: each training takes four megabytes more, outside of Python.
Cause: what is appended to a trainer stays in it, so that it trains on all lines from the first on.
Fix: `self.trainer.clear()` before the new lines are appended, or a new trainer for each training.
"""

import random
import sys
import tempfile

import pycrfsuite

STREETS = ["oak", "mill", "church", "station", "park", "lake", "hill", "north", "garden", "bridge"]
CITIES = ["leeds", "york", "bath", "derby", "hull", "ripon", "truro", "wells"]


def corrected_line():
    words = [
        str(random.randrange(1, 400)),
        random.choice(STREETS),
        random.choice(["street", "road", "lane"]),
        f"{random.choice('abcdefgh')}{random.randrange(99)}",
        random.choice(CITIES),
    ]
    return words, ["number", "street", "street", "code", "city"]


def features(words, position):
    word = words[position]
    found = {f"word={word}", f"length={len(word)}", f"digit={word.isdigit()}", f"position={position}"}
    found.update(f"suffix{size}={word[-size:]}" for size in (1, 2, 3, 4))
    found.update(f"prefix{size}={word[:size]}" for size in (1, 2, 3, 4))
    if position:
        found.update((f"before={words[position - 1]}", f"pair={words[position - 1]}|{word}"))  # <- or here
    if position + 1 < len(words):
        found.update((f"after={words[position + 1]}", f"next={word}|{words[position + 1]}"))  # <- or here
    return list(found)  # <- or here


class Tagger:
    def __init__(self, folder):
        self.path = f"{folder}/address.crfsuite"
        self.trainer = pycrfsuite.Trainer(verbose=False, algorithm="averaged-perceptron")
        self.trainer.set_params({"max_iterations": 1, "feature.minfreq": 3})

    def learn(self, lines):
        for words, labels in lines:
            self.trainer.append([features(words, position) for position in range(len(words))], labels)  # <- here
        self.trainer.train(self.path)  # <- or here

    def tag(self, words):
        tagger = pycrfsuite.Tagger()
        with tagger.open(self.path):
            return tagger.tag([features(words, position) for position in range(len(words))])


def main(rounds: int) -> None:
    random.seed(17)
    with tempfile.TemporaryDirectory() as folder:
        tagger = Tagger(folder)
        right, asked = 0, 0
        for _ in range(rounds):
            tagger.learn([corrected_line() for _ in range(2000)])  # <- or here
            for words, labels in [corrected_line() for _ in range(100)]:
                right += tagger.tag(words) == labels
                asked += 1
        print(f"{right} of {asked} lines tagged as a person would")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 29)
