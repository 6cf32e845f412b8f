"""A check of the schemas that tenants upload: each is parsed and its structs are counted.

Thread: https://github.com/Thriftpy/thriftpy/pull/9
Looks like: each upload takes memory for good, although what was parsed is dropped at once.
Cause: a parsed schema is a module of its own, and the parser keeps it under the name that was asked for.
Fix: `thriftpy2.parser.parser._thrift_cache.clear()` and its names out of `sys.modules`, or a process for each check.
"""

import io
import random
import sys

import thriftpy2

TYPES = ["i32", "i64", "string", "double", "bool", "list<string>", "map<string, i64>"]


def write_schema(tenant, structs=14):
    lines = []
    for number in range(structs):
        fields = [f"  {n}: optional {random.choice(TYPES)} field_{number}_{n}" for n in range(1, 21)]
        lines += [f"struct Record{number} {{", *fields, "}"]
    lines.append(f"service Tenant{tenant} {{ Record0 fetch(1: string key) }}")
    return "\n".join(lines)


def check_schema(tenant):
    source = io.StringIO(write_schema(tenant))
    module = thriftpy2.load_fp(source, module_name=f"tenant_{tenant}_thrift")  # <- here
    return len(module.__thrift_meta__["structs"])


def main(days: int) -> None:
    random.seed(6)
    structs = 0
    for day in range(days):
        structs = sum(check_schema(day * 5 + tenant) for tenant in range(5))
    print("structs of the last day:", structs)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 75)
