"""Record batches that are written to a stream in memory and read again."""

import sys
import time

import numpy as np
import pyarrow as pa


def main(rounds: int) -> None:
    total = 0
    for n in range(rounds):
        table = pa.table({"v": np.full(100_000, float(n))})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        total += pa.ipc.open_stream(sink.getvalue()).read_all().num_rows
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
