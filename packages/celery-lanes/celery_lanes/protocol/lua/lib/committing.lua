-- committing: do the writes of a commit. Those of a large one are stored first (stage.lua). The commit decides that they
-- are done; then they are done in portions, each in a step of its own. Until the last one, the message is first in its
-- lanes, so no other message of its lanes sees only some of them. If its worker dies, sweeps do the rest.
-- With  ending timers

local PORTION, PORTION_BYTES, PAUSE_MS = 64, 262144, 100

local function write(queue, lanes, what, key, value, time_ms)
  if what == 'set' and time_ms == '0' then
    redis.call('SET', key, value)
  elseif what == 'set' then
    redis.call('SET', key, value, 'PX', time_ms)
  elseif what == 'delete' then
    redis.call('UNLINK', key)
  elseif what == 'add' then
    add_to(key, value, time_ms)
  elseif what == 'push' then
    redis.call('RPUSH', key, value)
  elseif what == 'note' then
    if value == '' then redis.call('HDEL', NOTES, key) else redis.call('HSET', NOTES, key, value) end
  elseif what == 'mode' then
    local lane = key ~= '' and key or split(lanes)[1]
    if lane and value ~= '' then redis.call('HSET', MODES, lane, value) end
    if lane and value == '' then redis.call('HDEL', MODES, lane) end
  elseif what == 'cancel' then
    cancel_timer(key)
  elseif what == 'assign' then
    assign_timer(key, time_ms, unpack((fields_of(value, 1, 4))))
  elseif what == 'at' or what == 'from' or what == 'in' then
    local timer_id, timer_queue, timer_lanes, stored = unpack((fields_of(value, 1, 4)))
    local due_ms = what == 'in' and due_in(time_ms) or tonumber(time_ms)
    if what == 'from' then due_ms = math.max(due_ms, now_ms) end
    if timer_queue == '' then timer_queue = queue end
    if timer_lanes == '' then timer_lanes = lanes end
    set_timer(key, due_ms, timer_id, timer_queue, timer_lanes, stored)
  elseif redis.call('EXISTS', key) == 1 then
    redis.call('RENAME', key, value)
  end
end

-- Until then, only the worker that committed continues.
local function finish_later(id) redis.call('ZADD', DELAYED, now_ms + PAUSE_MS, id) end

-- Does the next writes of a large commit, and settles its message after the last one. Returns true if some are left.
local function finish_portion(id)
  local found = redis.call('HMGET', MESSAGE .. id, 'state', 'queue', 'lanes')
  local state, queue, lanes = unpack(found, 1, 3)
  if state ~= 'committing' then return false end
  local bytes = 0
  for _ = 1, PORTION do
    local row = redis.call('LPOP', STAGED .. id)
    if not row then
      redis.call('ZREM', DELAYED, id)
      settle(id, queue, lanes)
      remove_settled()
      return false
    end
    write(queue, lanes, unpack((fields_of(row, 1, 4))))
    bytes = bytes + #row
    if bytes > PORTION_BYTES then break end
  end
  finish_later(id)
  return true
end
