-- timers: messages that join the end of their lanes when they are due. Until then they have no record and are in no
-- lane. A timer is named by its owner and its name, which are joined by \n; a new one replaces an old one of that name.
-- The timers of an owner are one string, which takes less memory than a key for each: name, id, queue, lanes and stored
-- form of each, every field preceded by its length and a colon.
-- With  places
-- Writes  announced (ready), is_any_timer_set (paused)

local TIMER_FIELDS = 5
local LAST_MS = 2 ^ 53 -- of a greater number, digits would be lost

local function owner_and_name(timer) return string.match(timer, '^(.*)\n(.*)$') end

-- Returns up to `most` fields from a position on, and the position after them.
local function fields_of(text, at, most)
  local fields = {}
  while at <= #text and #fields < most do
    local _, colon, length = string.find(text, '^(%d+):', at)
    fields[#fields + 1] = string.sub(text, colon + 1, colon + length)
    at = colon + length + 1
  end
  return fields, at
end

-- Removes the timers with these names from those of their owner. Returns the fields of each, by its name.
local function take_timers(owner, names)
  local text, taken, kept, at = redis.call('GET', TIMER .. owner) or '', {}, {}, 1
  while at <= #text do
    local fields, after = fields_of(text, at, TIMER_FIELDS)
    if names[fields[1]] then
      taken[fields[1]] = fields
    else
      kept[#kept + 1] = string.sub(text, at, after - 1)
    end
    at = after
  end
  if kept[1] and next(taken) then redis.call('SET', TIMER .. owner, table.concat(kept)) end
  if not kept[1] then redis.call('DEL', TIMER .. owner) end
  return taken
end

-- An id that ends in a colon is completed by the time at which the timer is due, in ms, and a unique number.
local function set_timer(timer, due_ms, id, queue, lanes, stored)
  local owner, name = owner_and_name(timer)
  due_ms = math.max(math.min(tonumber(due_ms), LAST_MS), 0)
  if string.sub(id, -1) == ':' then id = id .. digits(due_ms) .. ':' .. digits(next_place()) end
  if redis.call('ZADD', TIMERS, due_ms, timer) == 0 then take_timers(owner, { [name] = true }) end
  local fields = { name, id, queue, lanes, stored }
  for i, field in ipairs(fields) do fields[i] = #field .. ':' .. field end
  redis.call('APPEND', TIMER .. owner, table.concat(fields))
  is_any_timer_set = true
  if redis.call('ZRANGE', TIMERS, 0, 0)[1] == timer then announced[queue] = true end
  count('scheduled', 1)
end

-- Returns 1, or 0 if there is none.
local function cancel_timer(timer)
  local owner, name = owner_and_name(timer)
  local was_set = redis.call('ZREM', TIMERS, timer)
  if was_set == 1 then take_timers(owner, { [name] = true }) end
  count('cancelled', was_set)
  return was_set
end

-- Due timers join their lanes, in the order of their times. One whose message exists already is dropped.
local function fire_due(limit)
  if not is_any_timer_set then return end
  local due = redis.call('ZRANGEBYSCORE', TIMERS, '-inf', now_ms, 'LIMIT', 0, limit)
  local names, taken, fired = {}, {}, 0
  for _, timer in ipairs(due) do
    local owner, name = owner_and_name(timer)
    names[owner] = names[owner] or {}
    names[owner][name] = true
  end
  for owner, each in pairs(names) do taken[owner] = take_timers(owner, each) end
  for _, timer in ipairs(due) do
    local owner, name = owner_and_name(timer)
    local _, id, queue, lanes, stored = unpack(taken[owner][name] or {})
    redis.call('ZREM', TIMERS, timer)
    if id and redis.call('EXISTS', MESSAGE .. id) == 0 then
      local seq, keys = next_place(), distinct(lanes)
      lanes = table.concat(keys, '\n')
      redis.call('HSET', MESSAGE .. id, 'state', 'waiting', 'queue', queue, 'lanes', lanes, 'seq', seq)
      redis.call('SET', BODY .. id, stored)
      line_up(id, queue, keys, seq)
      fired = fired + 1
    end
  end
  count('appended', fired)
  count('fired', fired)
end
