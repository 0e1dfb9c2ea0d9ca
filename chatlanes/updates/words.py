"""The words of chatlanes for the messages, groups and lanes of celery_lanes, in log lines and commands."""

from celery_lanes.words import Words

WORDS = Words(
    message="update",
    task="tasks.update",
    a_message="an update",
    group="bot",
    lane="chat",
    lane_help="its number, or a key such as user:7",
    key="user:7",
    queue="updates.0",
    confirmed="confirmed to Telegram",
    replicas="DURABLE_REPLICAS",
    lost="Telegram sends again only those that were not confirmed to it",
    command="chatlanes lanes",
    unread="restore the former QUEUES (or BOTS) until they are processed",
)
