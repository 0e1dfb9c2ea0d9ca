"""The referee: ordered, durable processing per key, by several systems under the same load and the same faults.

A handler writes the begin and the end of each message to a file; the judge reads these files and nothing else. Read it
in this order: plan.py (the messages), client/ (the handler and the producer), judge.py, runner.py, systems/.
"""
