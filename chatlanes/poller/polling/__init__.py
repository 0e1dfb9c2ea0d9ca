"""Long polling: the main loop, its sources and sinks, backpressure, and the election of the poller that leads."""
