"""Looking at lanes from outside: what waits where, log filters, remote control."""
