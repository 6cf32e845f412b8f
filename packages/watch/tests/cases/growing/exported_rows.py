"""Rows of a table that are written into a workbook, which is saved when the last one is in it.

Thread: https://github.com/jmcnamara/XlsxWriter/issues/7
Looks like: an export grows with the rows that it has written, until the workbook is closed.
Fix: `Workbook(file, {"constant_memory": True})`, which writes each row to the disk when the next one begins.
"""

import sys
import tempfile
import time
from pathlib import Path

import xlsxwriter


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        workbook = xlsxwriter.Workbook(Path(folder) / "meters.xlsx")
        sheet = workbook.add_worksheet()
        for day in range(rounds):
            for meter in range(1500):
                row = 1500 * day + meter
                cells = [f"meter {meter:04d} on day {day}", *(float(row + hour) for hour in range(6))]
                sheet.write_row(row, 0, cells)  # <- here
            time.sleep(0.08)
        workbook.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
