-- finish: do the next writes of a large commit; after the last one, settle its message.
-- With  committing
-- ARGV  id
-- Returns 1 if writes are left, else 0
local id = unpack(ARGV, 1, 1)

even_when_full()
local is_left = finish_portion(id)
finish()
return is_left and 1 or 0
