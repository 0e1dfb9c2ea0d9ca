"""Stop requests, threads and retries: what the poller and the receiver run on."""
