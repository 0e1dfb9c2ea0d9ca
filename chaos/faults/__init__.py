"""The faults: which, when, and how they are carried out."""
