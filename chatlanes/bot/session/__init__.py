"""ctx.session: what a bot remembers, written in the step that settles the update."""
