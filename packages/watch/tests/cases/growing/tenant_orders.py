"""Each tenant has order fields of its own; check the orders that come in.

Thread: https://github.com/marshmallow-code/marshmallow/issues/732
Looks like: memory climbs with the batches, although no document is kept.
Fix: make the class of a tenant once, and keep it.
"""

import datetime as dt
import random
import time

from mongoengine import DateTimeField, Document, FloatField, IntField, ListField, StringField


def order_document(tenant, extra):
    fields = {
        "number": IntField(required=True, min_value=0),
        "customer": StringField(max_length=80),
        "placed": DateTimeField(default=dt.datetime.now),
        "total": FloatField(min_value=0),
        "lines": ListField(StringField()),
        "meta": {"collection": f"orders_{tenant}", "indexes": ["customer", "placed", ("customer", "placed")]},
    }
    for name in extra:
        fields[name] = StringField(max_length=200, choices=[f"{name}{i}" for i in range(40)])
    return type(f"Order{tenant}", (Document,), fields)  # <- here


def import_orders(tenant, number):
    extra = [f"field{i}" for i in range(random.randrange(5, 16))]
    document = order_document(f"{tenant}_{number}", extra)
    for row in range(8):
        order = document(number=row, customer="Miller", total=random.random() * 90, lines=["bolt", "nut"])
        for name in extra:
            setattr(order, name, f"{name}{row}")
        order.validate()


for number in range(500):
    import_orders(random.choice(["north", "south", "east"]), number)
    time.sleep(0.01)
