"""The tested systems: their processes, their bot and the updates they get."""
