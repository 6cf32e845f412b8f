"""Web pages from blocks of plain data."""
