-- timers: messages that join the end of their lanes when they are due. Until then they have no record and are in no
-- lane. A timer is named by its owner and its name, which are joined by \n; a new one replaces an old one of that name.
-- The timers of an owner are one string, which takes less memory than a key for each: name, id, queue, lanes and stored
-- form of each, every field preceded by its length and a colon.
-- With  places
-- Writes  announced (ready), is_any_timer_set (paused)

local TIMER_FIELDS = 5

local function fields_of(text)
  local fields, at = {}, 1
  while at <= #text do
    local _, colon, length = string.find(text, '^(%d+):', at)
    fields[#fields + 1] = string.sub(text, colon + 1, colon + length)
    at = colon + length + 1
  end
  return fields
end

local function write_timers(owner, fields)
  if not fields[1] then return redis.call('DEL', TIMER .. owner) end
  local parts = {}
  for i, field in ipairs(fields) do parts[i] = #field .. ':' .. field end
  redis.call('SET', TIMER .. owner, table.concat(parts))
end

-- Removes a timer from those of its owner. Returns its id, queue, lanes and stored form, or nothing.
local function take_timer(owner, name)
  local fields = fields_of(redis.call('GET', TIMER .. owner) or '')
  for i = 1, #fields, TIMER_FIELDS do
    if fields[i] == name then
      local _, id, queue, lanes, stored = unpack(fields, i, i + TIMER_FIELDS - 1)
      for _ = 1, TIMER_FIELDS do table.remove(fields, i) end
      write_timers(owner, fields)
      return id, queue, lanes, stored
    end
  end
end

-- An id that ends in a colon is completed by the time at which the timer is due, in ms, and a unique number.
local function set_timer(timer, due_ms, id, queue, lanes, stored)
  local owner, name = string.match(timer, '^(.*)\n(.*)$')
  if string.sub(id, -1) == ':' then id = id .. digits(due_ms) .. ':' .. digits(next_place()) end
  take_timer(owner, name)
  local fields = { name, id, queue, lanes, stored }
  for i, field in ipairs(fields) do fields[i] = #field .. ':' .. field end
  redis.call('APPEND', TIMER .. owner, table.concat(fields))
  redis.call('ZADD', TIMERS, due_ms, timer)
  is_any_timer_set = true
  if redis.call('ZRANGE', TIMERS, 0, 0)[1] == timer then announced[queue] = true end
  count('scheduled', 1)
end

-- Returns 1, or 0 if there was no such timer.
local function cancel_timer(timer)
  local owner, name = string.match(timer, '^(.*)\n(.*)$')
  local was_set = redis.call('ZREM', TIMERS, timer)
  take_timer(owner, name)
  count('cancelled', was_set)
  return was_set
end

-- Due timers join their lanes, in the order of their times. One whose message exists already is dropped. Returns how
-- many joined.
local function fire_due(limit)
  local fired = 0
  if not is_any_timer_set then return 0 end
  for _, timer in ipairs(redis.call('ZRANGEBYSCORE', TIMERS, '-inf', now_ms, 'LIMIT', 0, limit)) do
    redis.call('ZREM', TIMERS, timer)
    local owner, name = string.match(timer, '^(.*)\n(.*)$')
    local id, queue, lanes, stored = take_timer(owner, name)
    if id and redis.call('EXISTS', MESSAGE .. id) == 0 then
      local seq = next_place()
      redis.call('HSET', MESSAGE .. id, 'state', 'waiting', 'queue', queue, 'lanes', lanes, 'seq', seq)
      redis.call('SET', BODY .. id, stored)
      line_up(id, queue, split(lanes), seq)
      fired = fired + 1
    end
  end
  count('appended', fired)
  count('fired', fired)
  return fired
end
