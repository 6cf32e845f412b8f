"""A CatBoost model that is trained anew each day, the old one dropped."""

import sys
import time

import numpy as np
from catboost import CatBoostRegressor, Pool


def main(days: int) -> None:
    maker = np.random.default_rng(1)
    error = 0.0
    model = None
    for _ in range(days):
        features = maker.normal(size=(2500, 12))
        target = features[:, 0] * 2 + np.sin(features[:, 1] * 3) + maker.normal(size=2500) / 5
        model = CatBoostRegressor(iterations=40, depth=5, thread_count=1, verbose=False, allow_writing_files=False)
        model.fit(Pool(features[:2000], target[:2000]))
        error += float(np.abs(model.predict(features[2000:]) - target[2000:]).mean())
        time.sleep(0.1)
    sys.stdout.write(f"{error / days:.3f} {model.tree_count_}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 90)
