"""The shop of a chaos run: a program with a database and an outbox, whose tasks have limits and rates.

`python -m chaos.systems.shop` adds tasks in transactions, of which some are rolled back, until it is killed. It has an
app of its own; the workers of the bot run its tasks (orders.py).
"""

from __future__ import annotations

import os
import time
from itertools import count

from celery import Celery
from kombu import Queue
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, func, insert, select
from sqlalchemy.orm import Session

import celery_lanes as lanes
from celery_lanes.sqlalchemy import Outbox
from chaos.systems import orders

app = Celery("shop", broker=os.environ.get("REDIS_URL"))
lanes.install(app)
app.conf.task_queues = [Queue(orders.QUEUE, queue_arguments=lanes.QUEUE_ARGUMENTS)]

engine = create_engine(f"sqlite:///{os.environ.get(orders.DATABASE, '')}", connect_args={"timeout": orders.WAIT_S})
metadata = MetaData()
placed = Table("orders", metadata, Column("number", Integer, primary_key=True))
outbox = Outbox(app, engine, metadata)


def place(first: int) -> None:
    with Session(engine) as session:
        for number in range(first, first + orders.IN_A_TRANSACTION):
            session.execute(insert(placed).values(number=number))
            named = {"task_id": f"1:{orders.KIND}:{number}", "headers": lanes.headers(orders.keys(number))}
            outbox.add(orders.order.s(number).set(queue=orders.QUEUE, **named), session)
        if orders.is_rolled_back(first):
            session.rollback()
        else:
            session.commit()


def main() -> None:
    metadata.create_all(engine)
    with engine.connect() as connection:
        last = connection.execute(select(func.max(placed.c.number))).scalar()
    for first in count(0 if last is None else last + 1, orders.IN_A_TRANSACTION):
        place(first)
        time.sleep(orders.EVERY_S)


if __name__ == "__main__":
    main()
