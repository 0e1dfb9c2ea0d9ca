"""Conformance: the commands of a run of real servers and workers, judged by the specification (spec/Trace.tla).

Scripts reach the append-only file as their effects only: it does not show that a settle came with an old fence, nor any
call that was refused. MONITOR shows each call with its arguments, and every command in it, in the one order in which
the server runs them. So a run is recorded with MONITOR, from a snapshot of all records on.
"""
