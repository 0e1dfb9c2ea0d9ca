"""The test suites of Celery and kombu, on stock and with lanes (docs/compatibility.md)."""
