"""The last 1500 tickets of a support desk, in a database of SQLite in memory behind SQLAlchemy."""

import random
import sys
import time

from sqlalchemy import Engine, LargeBinary, create_engine, delete, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import StaticPool


class Base(DeclarativeBase):
    pass


class Ticket(Base):
    __tablename__ = "ticket"
    number: Mapped[int] = mapped_column(primary_key=True)
    urgency: Mapped[int]
    attachment: Mapped[bytes] = mapped_column(LargeBinary)


def take(engine: Engine, first: int, count: int) -> None:
    with Session(engine) as session:
        for number in range(first, first + count):
            session.add(Ticket(number=number, urgency=random.randrange(5), attachment=random.randbytes(20_000)))
        session.execute(delete(Ticket).where(Ticket.number < first + count - 1_500))
        session.commit()


def urgent(engine: Engine) -> int:
    with Session(engine) as session:
        return session.scalar(select(func.count()).where(Ticket.urgency == 4))


def main(rounds: int) -> None:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    Base.metadata.create_all(engine)
    taken, most = 0, 0
    for _ in range(rounds):
        take(engine, taken, 40)
        taken += 40
        most = max(most, urgent(engine))
        time.sleep(0.07)
    sys.stdout.write(f"{taken} tickets, at most {most} urgent ones\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 162)
