-- timers: messages that join the end of their lanes when they are due. Until then they have no record and are in no
-- lane. A timer is named by its owner and its name, which are joined by \n; a new one replaces an old one of that name.
-- The timers of an owner are one string, which takes less memory than a key for each: name, id, queue,
-- lanes and stored form of each timer, every field preceded by its length and a colon. All but the name are packed
-- (timer_packing.lua). When the string is full, further ones are in a hash, so that no change rewrites many timers.
-- With  places timer_packing

local TIMER_FIELDS, FULL = 5, 2048

local function owner_and_name(timer) return string.match(timer, '^(.*)\n(.*)$') end

-- Returns up to `most` fields from a position on, and the position after them.
local function fields_of(text, at, most)
  local fields = {}
  while at <= #text and #fields < most do
    local _, colon, length = string.find(text, '^(%d+):', at)
    if not colon then return {}, #text + 1 end -- it and the rest cannot be read
    fields[#fields + 1] = string.sub(text, colon + 1, colon + length)
    at = colon + length + 1
  end
  return fields, at
end

local function add_record(owner, name, fields)
  local parts = {}
  for i, field in ipairs(fields) do parts[i] = #field .. ':' .. field end
  local text, record = redis.call('GET', TIMER .. owner) or '', table.concat(parts)
  if #text + #record > FULL then
    redis.call('HSET', OVERFLOW .. owner, name, record)
  else
    redis.call('SET', TIMER .. owner, text .. record) -- an APPEND would reserve memory for more
  end
end

local function add_timer(owner, name, ...)
  local fields, texts = { name, ... }, texts_of(owner, name)
  for i = 2, TIMER_FIELDS do fields[i] = pack_text(fields[i], texts) end
  add_record(owner, name, fields)
end

-- The version of the texts by which the last timer that could not be read is packed; 0: all could be read.
step.unknown_version = 0

-- Returns id, queue, lanes and stored form; nothing without all fields, or if its version is not known.
local function timer_of(owner, fields)
  if not fields or #fields < TIMER_FIELDS then return end
  local texts, plain, unknown = texts_of(owner, fields[1]), {}, nil
  for i = 2, TIMER_FIELDS do
    plain[i - 1], unknown = unpack_text(fields[i], texts)
    if unknown then
      step.unknown_version = unknown
      return
    end
  end
  return unpack(plain)
end

-- Removes the timers with these names from those of their owner, and what cannot be read. Returns the fields of each,
-- by its name.
local function take_timers(owner, names)
  local text, taken, kept, at = redis.call('GET', TIMER .. owner) or '', {}, {}, 1
  while at <= #text do
    local fields, after = fields_of(text, at, TIMER_FIELDS)
    if names[fields[1]] then
      taken[fields[1]] = fields
    elseif fields[1] then
      kept[#kept + 1] = string.sub(text, at, after - 1)
    end
    at = after
  end
  local rest = table.concat(kept)
  if kept[1] and #rest < #text then redis.call('SET', TIMER .. owner, rest) end
  if not kept[1] then redis.call('DEL', TIMER .. owner) end
  for name in pairs(names) do
    local record = not taken[name] and redis.call('HGET', OVERFLOW .. owner, name)
    if record then
      taken[name] = fields_of(record, 1, TIMER_FIELDS)
      redis.call('HDEL', OVERFLOW .. owner, name)
    end
  end
  return taken
end

local LAST_MS = 2 ^ 53 -- of a greater number, digits would be lost
-- Each worker sweeps more often than this, and learns then which timer is due next. So only one that is due before has
-- to wake a worker.
local SOON_MS = 5000
-- A timer that is set for at most this long from now is marked by half a millisecond in its time: it keeps its distance
-- when the clock is set back (sweep.lua).
local SHORT_MS = 60000

-- The time of a timer that is set for a time from now.
local function due_in(in_ms)
  in_ms = tonumber(in_ms)
  return now_ms + in_ms - (in_ms >= 0 and in_ms <= SHORT_MS and 0.5 or 0)
end

-- An id that ends in a colon is completed by the time at which the timer is due, in ms, and a unique number.
local function set_timer(timer, due_ms, id, queue, lanes, stored)
  local owner, name = owner_and_name(timer)
  due_ms = math.max(math.min(tonumber(due_ms), LAST_MS), 0)
  if string.sub(id, -1) == ':' then id = id .. digits(math.ceil(due_ms)) .. ':' .. digits(next_place()) end
  if redis.call('ZADD', TIMERS, due_ms, timer) == 0 then take_timers(owner, { [name] = true }) end
  add_timer(owner, name, id, queue, lanes, stored)
  step.is_any_timer_set = true
  if due_ms < now_ms + SOON_MS then step.announced[queue] = true end
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

-- Gives a timer the owner of `to`, and another message of the same id. It is removed if `to` is set already. Nothing
-- happens if it is not the timer with this id any more.
local function assign_timer(timer, to, id, queue, lanes, stored)
  local owner, name = owner_and_name(timer)
  local due_ms = redis.call('ZSCORE', TIMERS, timer)
  local fields = due_ms and take_timers(owner, { [name] = true })[name]
  if not fields then return end
  if timer_of(owner, fields) ~= id then return add_record(owner, name, fields) end
  redis.call('ZREM', TIMERS, timer)
  if redis.call('ZSCORE', TIMERS, to) then return count('cancelled', 1) end
  set_timer(to, due_ms, id, queue, lanes, stored)
  count('scheduled', -1) -- it is not another one
end

-- A timer that another release or another app packed is left to its own workers. If they do not fire it within a second,
-- a sweep lets it be due again after this time, so that it keeps no others waiting.
local LEFT_MS, POSTPONED_MS = 1000, 5000
step.is_sweep, step.postponed = false, 0

local function leave_to_others(timer, owner, name, fields)
  add_record(owner, name, fields)
  if not step.is_sweep or now_ms - redis.call('ZSCORE', TIMERS, timer) < LEFT_MS then return end
  redis.call('ZADD', TIMERS, due_in(POSTPONED_MS), timer)
  step.postponed = step.postponed + 1
end

-- Due timers join their lanes, in the order of their times. Those of tasks with an eta may be successors.
local function fire(due)
  local names, taken, fired, succeeding = {}, {}, 0, 0
  for _, timer in ipairs(due) do
    local owner, name = owner_and_name(timer)
    if owner then
      names[owner] = names[owner] or {}
      names[owner][name] = true
    end
  end
  for owner, each in pairs(names) do taken[owner] = take_timers(owner, each) end
  for _, timer in ipairs(due) do
    local owner, name = owner_and_name(timer)
    local fields = owner and taken[owner][name]
    local id, queue, lanes, stored = timer_of(owner, fields)
    if not id and fields and fields[TIMER_FIELDS] then
      leave_to_others(timer, owner, name, fields)
    else
      redis.call('ZREM', TIMERS, timer)
      if id and add_message(id, queue, lanes, stored) then
        fired = fired + 1
      elseif timer == 'task ' .. (id or '') .. '\neta' and set_successor(id, queue, lanes, stored) then
        succeeding = succeeding + 1
      end
    end
  end
  count('appended', fired)
  count('fired', fired + succeeding)
end

local function fire_due(limit)
  if not step.is_any_timer_set then return end
  local due = redis.call('ZRANGEBYSCORE', TIMERS, '-inf', now_ms, 'LIMIT', 0, limit)
  if due[1] then fire(due) end
end
