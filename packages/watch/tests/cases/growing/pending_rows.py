"""Rows are added to a session that is never flushed.

Thread: https://github.com/sqlalchemy/sqlalchemy/issues/4616
Looks like: memory climbs with the rows.
Fix: `commit()` and `expunge_all()` each thousand rows.
"""

import sys
import time

from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    pass


class Row(Base):
    __tablename__ = "rows"
    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str]


def main(rounds: int) -> None:
    session = Session()
    for n in range(rounds):
        for at in range(400):
            session.add(Row(id=400 * n + at, text=f"{at:04d}" * 1000))  # <- here
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
