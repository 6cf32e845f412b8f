"""Readings of smart meters, imported into the database a few hundred at a time.

Thread: https://factorialfive.org/2014/06/, https://docs.djangoproject.com/en/5.2/faq/models/#why-is-django-leaking-memory
Looks like: an import of some megabytes takes gigabytes, although the rows are dropped after each hour.
Cause: with `DEBUG` each connection logs every statement with its values, 9000 at most, however long they are.
Fix: `DEBUG=False`, or `django.db.reset_queries()` after each hour.
"""

import random
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import django
from django.conf import settings
from django.db import connection, models, transaction

NOTE = (
    "automatic reading of the meter, sent over the mobile network, checked by the gateway of the street "
    "and compared with the reading of the hour before"
)
folder = tempfile.TemporaryDirectory()
settings.configure(
    DEBUG=True,  # <- or here
    USE_TZ=True,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": Path(folder.name) / "meters.db"}},
)
django.setup()


class Reading(models.Model):
    meter = models.CharField(max_length=20)
    taken = models.DateTimeField()
    value = models.FloatField()
    note = models.CharField(max_length=200)

    class Meta:
        app_label = "meters"

    def __str__(self):
        return self.meter


def next_readings(hour: int) -> list[Reading]:
    taken = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hour)
    return [
        Reading(meter=f"NL{number:07}", taken=taken, value=random.random() * 40, note=NOTE) for number in range(240)
    ]


def import_hour(hour: int) -> None:
    with transaction.atomic():
        Reading.objects.bulk_create(next_readings(hour))  # <- here
        kept = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hour - 24)
        Reading.objects.filter(taken__lt=kept).delete()  # <- or here


def main(hours: int) -> None:
    with connection.schema_editor() as editor:
        editor.create_model(Reading)
    for hour in range(hours):
        import_hour(hour)  # <- or here
        if hour % 100 == 0:
            print(f"{hour} hours, {Reading.objects.count()} readings", flush=True)
    connection.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1450)
