"""Sources in many languages: Pygments loads a lexer when it is first used, and keeps it."""

import sys
import time

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_all_lexers, get_lexer_by_name

SOURCE = 'x = 1\nif (x) { print("hello"); }\n' * 40


def main(rounds: int) -> None:
    names = [aliases[0] for _, aliases, _, _ in get_all_lexers() if aliases][:60]
    for n in range(2 * rounds):
        highlight(SOURCE, get_lexer_by_name(names[n % len(names)]), HtmlFormatter())
        time.sleep(0.06)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
