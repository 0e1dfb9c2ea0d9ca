"""The outbox of a Django project: `INSTALLED_APPS += ["celery_lanes.django.outbox"]`, and `manage.py migrate`.

    with transaction.atomic():
        order = Order.objects.create(customer=9)
        outbox.add(charge.s(9, total=20))

Its table is in the database that the project's routers name for it: `default` without routers.
"""

from __future__ import annotations

from typing import Any


def add(signature: Any) -> Any:
    """Publish a task when the transaction is committed. Returns its AsyncResult.

    The task must be in a lane; its keys are made now. It is published right after the commit, and by `lanes outbox` if
    the process dies before, or Redis does not answer. Raises PublishRefused, also outside of a transaction.
    """
    from celery_lanes.django.outbox.models import add_entry  # models can be imported when Django is set up

    return add_entry(signature)
