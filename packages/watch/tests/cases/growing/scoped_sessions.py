"""A session for each task, from a scoped session whose key is the task; it is closed, and never removed.

Thread: https://github.com/sqlalchemy/sqlalchemy/issues/8340
Looks like: memory climbs with the tasks, although each closes its session.
Fix: `await Session.remove()` at the end of each task.
"""

import asyncio
import sys

from sqlalchemy import create_engine, text
from sqlalchemy.orm import scoped_session, sessionmaker

engine = create_engine("sqlite://")
Session = scoped_session(sessionmaker(engine), scopefunc=asyncio.current_task)


class Report:
    def __init__(self, number: int) -> None:
        self.number = number

    async def write(self) -> int:
        rows = [f"report {self.number} row {row}" for row in range(600)]  # <- here
        session = Session()
        session.info["rows"] = rows
        session.execute(text("select 1"))
        session.close()
        await asyncio.sleep(0)
        return len(rows)


async def serve(rounds: int) -> None:
    for first in range(0, 20 * rounds, 20):
        await asyncio.gather(*(Report(first + n).write() for n in range(20)))
        await asyncio.sleep(0.1)


def main(rounds: int) -> None:
    asyncio.run(serve(rounds))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 90)
