"""A long document, of which the text is taken page by page.

Thread: https://github.com/jsvine/pdfplumber/issues/193
Looks like: memory climbs with the pages that were read, although a page of text is a few kilobytes.
Fix: `page.close()` when its text is taken.
"""

import io
import sys
import time

import pdfplumber


def document(pages: int) -> io.BytesIO:
    """A file with so many pages of twenty-five lines each."""
    lines = " T* ".join(f"({n:04d} the reading of the meter, in hours and watts) Tj" for n in range(25))
    text = f"BT /F1 10 Tf 14 TL 50 800 Td {lines} ET"
    numbers = [4 + 2 * n for n in range(pages)]
    parts = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Count {pages}/Kids[{' '.join(f'{n} 0 R' for n in numbers)}]>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Courier>>",
    ]
    for n in numbers:
        resources = "/MediaBox[0 0 595 842]/Resources<</Font<</F1 3 0 R>>>>"
        parts.append(f"<</Type/Page/Parent 2 0 R{resources}/Contents {n + 1} 0 R>>")
        parts.append(f"<</Length {len(text)}>>stream\n{text}\nendstream")
    body, places = "%PDF-1.4\n", []
    for n, part in enumerate(parts, start=1):
        places.append(f"{len(body):010d} 00000 n \n")
        body += f"{n} 0 obj\n{part}\nendobj\n"
    table = f"xref\n0 {len(parts) + 1}\n0000000000 65535 f \n{''.join(places)}"
    trailer = f"trailer<</Size {len(parts) + 1}/Root 1 0 R>>\nstartxref\n{len(body)}\n%%EOF\n"
    return io.BytesIO((body + table + trailer).encode())


def main(rounds: int) -> None:
    letters = 0
    with pdfplumber.open(document(rounds)) as report:
        for page in report.pages:
            letters += len(page.extract_text())  # <- here
            time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
