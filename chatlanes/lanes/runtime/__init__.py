"""What lanes need of the process they run in: clock, threads, timers, retries."""
