-- timer_records: the timers of an owner are one string, which takes less memory than a key for each: name, id, queue,
-- lanes and stored form of each timer, every field preceded by its length and a colon. Lanes that are the name of the
-- owner are stored as a newline. Of a plain task (pack_task in envelope.py) only the name, argsrepr and arguments are
-- stored, each after a control character.

local TIMER_FIELDS, OWN_LANE, SHORT = 5, '\n', '\28'
local HEAD_START, HEAD_MIDDLE, HEAD_END = '{"headers":{"task":"', '","argsrepr":"', '"}}\n[['
local PLAIN_TASK = '^{"headers":{"task":"([^"]*)","argsrepr":"([^"]*)"}}\n%[%[(.*)$'
local ENDING = ',{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]'

local function owner_and_name(timer) return string.match(timer, '^(.*)\n(.*)$') end

local function record_of_timer(owner, name, id, queue, lanes, stored)
  if lanes == owner then lanes = OWN_LANE end
  local task, args, body = string.match(stored, PLAIN_TASK)
  if task and string.sub(body, -#ENDING) == ENDING then
    stored = SHORT .. task .. SHORT .. args .. SHORT .. string.sub(body, 1, -#ENDING - 1)
  end
  local fields = { name, id, queue, lanes, stored }
  for i, field in ipairs(fields) do fields[i] = #field .. ':' .. field end
  return table.concat(fields)
end

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

-- Returns id, queue, lanes and stored form; nothing without fields.
local function timer_of(owner, fields)
  if not fields then return end
  local _, id, queue, lanes, stored = unpack(fields)
  if lanes == OWN_LANE then lanes = owner end
  local task, args, body = string.match(stored, '^\28([^\28]*)\28([^\28]*)\28(.*)$')
  if task then stored = HEAD_START .. task .. HEAD_MIDDLE .. args .. HEAD_END .. body .. ENDING end
  return id, queue, lanes, stored
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
