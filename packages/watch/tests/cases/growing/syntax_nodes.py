"""The first function of each file is noted as a node; a node keeps the tree of its whole file, in C.

Thread: https://github.com/tree-sitter/py-tree-sitter/issues/54
Looks like: an index of small nodes takes as much as all sources and their trees.
Fix: keep the node's text and lines, not the node.
"""

import sys
import time

import tree_sitter_python
from tree_sitter import Language, Node, Parser

SOURCE = "\n".join(f"def work_{n}(a, b):\n    return a * {n} + b if a else [b, {n}]\n" for n in range(600))


def main(rounds: int) -> None:
    parser = Parser(Language(tree_sitter_python.language()))
    functions: list[Node] = []
    for n in range(rounds):
        tree = parser.parse(f"# file {n}\n{SOURCE}".encode())  # <- here
        functions.append(tree.root_node.children[1])
        time.sleep(0.12)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
