"""The additions of chatlanes to `lanes …` of celery_lanes.cli, and its own help for Celery's commands."""
