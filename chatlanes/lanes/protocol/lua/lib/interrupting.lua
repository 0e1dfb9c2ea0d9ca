-- interrupting: end the run of a group, because a message joins the group. It gets a new fence, so that this run
-- changes nothing more, and is open again.
-- With  take_back

-- The calls of a run, and of runs that died before it, stay in the journal, each under the fence of the run and its
-- position, for later runs to read: they are not answered from them. A refused call took no effect.
local function keep_calls(id, fence)
  local journal, kept, moved = redis.call('HGETALL', JOURNAL .. id), {}, {}
  for i = 1, #journal, 2 do
    local position, call = journal[i], journal[i + 1]
    local state = string.match(call, '^(%S+) ')
    if not string.find(position, ' ', 1, true) then moved[#moved + 1] = position end
    if state and state ~= 'refused' and moved[#moved] == position then
      local n = #kept
      kept[n + 1], kept[n + 2] = fence .. ' ' .. position, call
    end
  end
  call_in_batches('HSET', JOURNAL .. id, kept)
  call_in_batches('HDEL', JOURNAL .. id, moved)
end

-- To keep more calls would take too long: such a run is not interrupted.
local function may_interrupt(id) return redis.call('HLEN', JOURNAL .. id) <= 1000 end

-- Notifies the holder. If that fails, the next renewal of the holder finds the interrupt.
local function interrupt(id)
  local found = redis.call('HMGET', MESSAGE .. id, 'holder', 'fence')
  if found[1] then redis.pcall('PUBLISH', INTERRUPTS .. found[1], id .. '#' .. found[2]) end
  take_back(id, 'waiting')
  redis.call('HSET', MESSAGE .. id, 'open', now_ms)
  redis.pcall('HINCRBY', MESSAGE .. id, 'interrupted', 1) -- a corrupt count stays: leasing.lua buries the message
  keep_calls(id, found[2])
  count('interrupted', 1)
end
