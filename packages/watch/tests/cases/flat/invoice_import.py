"""Invoices loaded into the database by Django with DEBUG, whose log of queries is emptied in each round."""

import random
import sys
import tempfile
from pathlib import Path

import django
from django.conf import settings
from django.db import connection, models, reset_queries, transaction

folder = tempfile.TemporaryDirectory()
settings.configure(
    DEBUG=True,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": Path(folder.name) / "invoices.db"}},
)
django.setup()


class Invoice(models.Model):
    customer = models.CharField(max_length=40)
    amount = models.FloatField()
    text = models.CharField(max_length=200)

    class Meta:
        app_label = "invoices"

    def __str__(self) -> str:
        return str(self.customer)


def load_round(number: int) -> str:
    reset_queries()
    for part in range(20):
        rows = [
            Invoice(customer=f"customer {number}-{part}-{i}", amount=random.random() * 900, text="thirty days net " * 4)
            for i in range(150)
        ]
        with transaction.atomic():
            Invoice.objects.bulk_create(rows)
    Invoice.objects.filter(amount__lt=450).delete()
    slowest = max(connection.queries, key=lambda query: float(query["time"]))
    return slowest["time"]


def main(rounds: int) -> None:
    with connection.schema_editor() as editor:
        editor.create_model(Invoice)
    for number in range(rounds):
        slowest = load_round(number)
        sys.stdout.write(f"round {number}: {Invoice.objects.count()} invoices, slowest {slowest} s\n")
    connection.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 132)
