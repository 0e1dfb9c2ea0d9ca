"""Texts that many timers of a bot contain. Each is stored as one character, so a timer takes half the memory.

Their order is stored: the code of a text is its place in its version. A released version never changes, in any way. To
add, remove or change a text, append a version that has all of them. Older releases postpone the timers of a newer
version, with a log line, until a worker of that release fires them (celery_lanes.protocol.use_texts).
"""

TIMER_TEXTS = (
    (  # version 1: the stored form of a task (pack_task in envelope.py), and the content of a timer (bot/timers.py)
        '{"headers":{"task":"tasks.update","argsrepr":"(timer, chat ',
        '{"headers":{"task":"',
        '","argsrepr":"',
        '"}}\n[[',
        ',{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]',
        '{"timer":{"name":"',
        ',"data":',
        ',"chat":{"id":',
        ',"type":"private"}',
        ',"type":"supergroup"}',
        ',"from":{"id":',
    ),
)
