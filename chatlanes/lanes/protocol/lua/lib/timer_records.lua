-- timer_records: the timers of an owner are one string, which takes less memory than a key for each: name, id, queue,
-- lanes and stored form of each timer, every field preceded by its length and a colon. All but the name are packed
-- (timer_packing.lua). When the string is full, further ones are in a hash, so that no change rewrites many timers.
-- With  timer_packing

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

-- Returns id, queue, lanes and stored form; nothing without all fields.
local function timer_of(owner, fields)
  if not fields or #fields < TIMER_FIELDS then return end
  local texts, plain = texts_of(owner, fields[1]), {}
  for i = 2, TIMER_FIELDS do plain[i - 1] = unpack_text(fields[i], texts) end
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
