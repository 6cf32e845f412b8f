"""Formulas of a course that are differentiated and evaluated again and again, by a library that caches what it did."""

import sys
import time

import sympy

FORMULAS = ("x**3 * sin(x)", "exp(-x**2)", "log(x + 1) / x", "sqrt(x) * cos(x)", "x / (1 + x**2)", "tan(x) - x")


def main(rounds: int) -> None:
    x = sympy.Symbol("x")
    total = 0.0
    for n in range(rounds):
        slope = sympy.diff(sympy.sympify(FORMULAS[n % len(FORMULAS)]), x)
        total += float(slope.subs(x, sympy.Rational(n % 5 + 1, 4)))
        time.sleep(0.14)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
