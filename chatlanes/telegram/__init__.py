"""The Bot API: client, errors, files and flood control."""

from chatlanes.telegram.client import BotApi, Prepared, prepare
from chatlanes.telegram.errors import BotApiError, ChatMigrated, NetworkError, NotModified, TooManyRequests
from chatlanes.telegram.http_client import HttpClient, HttpResponse, NoAnswerError
from chatlanes.telegram.responses import BotApiAnswer, parse_answer, status_line
from chatlanes.telegram.retries import is_read_only, repeated

__all__ = [
    "BotApi",
    "BotApiAnswer",
    "BotApiError",
    "ChatMigrated",
    "HttpClient",
    "HttpResponse",
    "NetworkError",
    "NoAnswerError",
    "NotModified",
    "Prepared",
    "TooManyRequests",
    "is_read_only",
    "parse_answer",
    "prepare",
    "repeated",
    "status_line",
]
