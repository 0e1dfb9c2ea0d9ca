-- look: tell which database this is, and how far it has come.
-- With  history
-- KEYS  none
-- ARGV  none
-- Returns {identity, appended, settled, pending}

even_when_full()
return history()
