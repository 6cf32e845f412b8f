"""What a reform would change: a tax system is loaded from its files for each reform that is asked about.

Thread: https://github.com/PolicyEngine/policyengine-core/issues/520
Looks like: the service grows with each reform, although each system is dropped when it has answered.
Cause: each file is loaded under a name of its own, and `sys.modules` keeps the modules.
Fix: take the modules out when the system is dropped, `sys.modules.pop(name, None)`, or load the files once.
"""

import importlib.util
import sys
import tempfile
import time
from pathlib import Path

VARIABLES = 25


def write_files(folder):
    for number in range(VARIABLES):
        lines = [f"RATES = [year * 0.001 * {number} for year in range(400)]", f"NAME = 'tax {number}'"]
        lines += [f"def rule_{n}(income):\n    return income * RATES[{n}] + {n}" for n in range(20)]
        (folder / f"tax_{number}.py").write_text("\n".join(lines))


class TaxSystem:
    def __init__(self, folder):
        self.modules = [self.load(file) for file in sorted(folder.glob("*.py"))]

    def load(self, file):
        name = f"{id(self)}_{time.monotonic_ns()}_{file.stem}"
        spec = importlib.util.spec_from_file_location(name, file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)  # <- here
        return module

    def tax(self, income):
        return sum(module.rule_3(income) for module in self.modules)


def main(reforms: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        tax = 0.0
        for number in range(reforms):
            tax = TaxSystem(Path(folder)).tax(30_000 + number)
            time.sleep(0.05)
    print("last tax", round(tax))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 160)
