"""A model that learns which adverts are clicked, one visit after the other.

Thread: https://github.com/jubatus/jubatus/issues/67, and https://github.com/online-ml/river
Looks like: the model of a few hundred features takes more memory with each visitor.
Cause: the name of a visitor is a feature, so that each visitor adds a weight, outside of Python.
Fix: hash the features into a fixed number (`river.preprocessing.FeatureHasher`), or leave the visitor out.
"""

import random
import sys

from river import linear_model, metrics, optim

SECTIONS = ["news", "sport", "travel", "cars", "homes", "jobs"]


class ClickModel:
    def __init__(self):
        self.classifier = linear_model.LogisticRegression(optim.SGD(0.05))
        self.accuracy = metrics.Accuracy()

    def learn(self, visit, clicked):
        features = {
            f"advert={visit['advert']}": 1.0,
            f"hour={visit['hour']}": 1.0,
            f"visitor={visit['visitor']}": 1.0,
            f"section={visit['section']}": 1.0,
            "age": visit["age"] / 60,
        }
        self.accuracy.update(clicked, self.classifier.predict_one(features))
        self.classifier.learn_one(features, clicked)  # <- here


def read_visits(count):
    for number in range(count):
        yield {
            "advert": random.randrange(40),
            "hour": number // 500 % 24,
            "visitor": f"{random.getrandbits(128):032x}",
            "section": random.choice(SECTIONS),
            "age": random.randrange(60),
        }


random.seed(8)
model = ClickModel()


def main(visits: int) -> None:
    for visit in read_visits(visits):
        model.learn(visit, visit["advert"] < 8 and random.random() < 0.6)
    print(model.accuracy)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500_000)
