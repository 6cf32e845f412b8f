"""Samples of tar files by webdataset, shuffled through a buffer that fills in the first epoch."""

import io
import sys
import tarfile
import tempfile

import numpy as np
import webdataset as wds


def write_shard(path: str, samples: int, maker: np.random.Generator) -> None:
    with tarfile.open(path, "w") as tar:
        for number in range(samples):
            body = io.BytesIO()
            np.save(body, maker.random((64, 64)).astype("float32"))
            info = tarfile.TarInfo(f"{number:05d}.npy")
            info.size = len(body.getvalue())
            tar.addfile(info, io.BytesIO(body.getvalue()))


def main(epochs: int) -> None:
    maker = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        shards = [f"{folder}/train-{shard}.tar" for shard in range(4)]
        for shard in shards:
            write_shard(shard, 400, maker)
        samples = wds.WebDataset(shards, shardshuffle=False, empty_check=False).decode().to_tuple("npy")
        dataset = samples.shuffle(1200, initial=1000)
        weights = np.zeros((64, 64), "float32")
        for epoch in range(epochs):
            for (image,) in dataset:
                for _ in range(3):
                    gradient = image @ weights - image.T
                    weights -= 1e-4 * np.tanh(gradient)
            sys.stdout.write(f"epoch {epoch} {np.abs(weights).mean()}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 13)
