-- look: return the identity of this database and its totals.
-- Returns {identity, appended, settled, pending}

even_when_full()
return history()
