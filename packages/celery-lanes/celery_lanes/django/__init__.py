"""A page of Django's admin, and `manage.py lanes`: `INSTALLED_APPS += ["celery_lanes.django"]`. It has no tables."""
