-- numbers: the numbers of the messages of a scope are remembered: one bit for each, read and written in pieces of 16 bytes.
-- Messages of a scope join their lanes in the order of their numbers although they arrive in another order. A message is
-- held while a lower number is missing, until hold_ms after its own arrival, and while a lower message is held. No message
-- is held for longer than twice hold_ms. A number is missing if it has not arrived although higher ones have. The first
-- message above a missing number, and those that arrive within hold_ms of it, wait for it, each for at most hold_ms. Later
-- ones do not wait.
-- With  joining

step.last_piece = false -- of `pieces`, the one that was used last: usually the next number is in it too
step.seen_ttl_s = false -- how long the numbers are remembered
step.gap_scopes = {} -- scope -> whether a gap is recorded; nil: not known
step.held_scopes = {} -- scope -> whether any of its messages are held; nil: not known
step.late = 0 -- how many messages joined their lanes behind higher numbers

local PIECE_BYTES = 16

local function piece_of(scope, number, block)
  local last = step.last_piece
  local bit_at = last and last.scope == scope and number - last.number
  if not bit_at or bit_at < 0 or bit_at >= PIECE_BYTES * 8 then
    bit_at = number % (PIECE_BYTES * 8) -- a block is a multiple of a piece
    local key, from = SEEN .. scope .. ':' .. math.floor(number / block), (number - bit_at) % block / 8
    local name = key .. ' ' .. from
    last = step.pieces[name]
    if not last then
      local text = redis.call('GETRANGE', key, from, from + PIECE_BYTES - 1)
      last = { key = key, from = from, text = text, scope = scope, number = number - bit_at }
      step.pieces[name] = last
    end
    step.last_piece = last
  end
  local at = math.floor(bit_at / 8) + 1
  return last, at, last[at] or string.byte(last.text, at) or 0, 2 ^ (7 - bit_at % 8)
end

local function is_remembered(scope, number, block)
  local _, _, byte, bit = piece_of(scope, number, block)
  return math.floor(byte / bit) % 2 == 1
end

-- For a message that may have no number. From now on it is remembered, for `ttl_s`.
local function was_remembered(scope, number, block, ttl_s)
  if scope == '' then return false end
  local piece, at, byte, bit = piece_of(scope, number, block)
  if math.floor(byte / bit) % 2 == 1 then return true end
  piece[at], step.seen_ttl_s = byte + bit, ttl_s
  return false
end

local function write_seen()
  local keys = {}
  for _, piece in pairs(step.pieces) do
    local first, last, bytes = nil, nil, {}
    for at = 1, PIECE_BYTES do
      if piece[at] then first, last = first or at, at end
    end
    for at = first or 1, last or 0 do
      bytes[#bytes + 1] = string.char(piece[at] or string.byte(piece.text, at) or 0)
    end
    if first then
      redis.call('SETRANGE', piece.key, piece.from + first - 1, table.concat(bytes))
      keys[piece.key] = true
    end
  end
  for key in pairs(keys) do redis.call('EXPIRE', key, step.seen_ttl_s) end
end

-- Key and offset -> the bytes that were read (`text`), and at their index those that have changed. Written after what the
-- messages need, so that nothing is remembered that is not stored.
step.pieces = put_off(NUMBERS, write_seen)

local function place_of(scope, number) return scope .. ':' .. digits(number) end

-- The entry of a gap is <number>:<ms>: the number right above it, and the time until which messages may wait for it.
-- A higher gap has a later time, so the entries that have expired are the lowest ones.
local function read_gap(found)
  local number, until_ms = string.match(found[1] or '', '^(%d+):(%d+)$')
  return tonumber(number), tonumber(until_ms)
end

-- `hold_ms`: of this append. A gap that lasts longer than one of now was found before the clock was set back.
local function has_gaps(scope, hold_ms)
  while step.gap_scopes[scope] == nil do
    local found = redis.call('ZRANGE', MISSING .. scope, 0, 0)
    local _, until_ms = read_gap(found)
    if until_ms and (until_ms < now_ms or until_ms > now_ms + 2 * hold_ms) then
      redis.call('ZREM', MISSING .. scope, found[1])
    else
      step.gap_scopes[scope] = until_ms ~= nil
    end
  end
  return step.gap_scopes[scope]
end

-- Records that a number has arrived. The entry of the next number, if any, is removed. If the number below is missing,
-- this number gets an entry: for the rest of the gap, or for a new gap.
local function note_arrival(scope, number, block, hold_ms)
  if scope == '' then return end
  local is_gap = number > 0 and not is_remembered(scope, number - 1, block)
  if not has_gaps(scope, hold_ms) and not is_gap then return end
  local key = MISSING .. scope
  local above, until_ms = read_gap(redis.call('ZRANGEBYSCORE', key, '(' .. digits(number), '+inf', 'LIMIT', 0, 1))
  if above == number + 1 then redis.call('ZREMRANGEBYSCORE', key, above, above) end
  if is_gap then
    redis.call('ZADD', key, number, place_of(digits(number), until_ms or now_ms + 2 * hold_ms))
    redis.call('PEXPIRE', key, 2 * hold_ms)
    step.gap_scopes[scope] = true
  end
end

-- True if a message that may be held until `until_ms` must wait for a gap below it.
local function has_gap(scope, number, until_ms)
  local _, ends_ms = read_gap(redis.call('ZREVRANGEBYSCORE', MISSING .. scope, number, '-inf', 'LIMIT', 0, 1))
  return ends_ms ~= nil and ends_ms >= until_ms
end

-- Nothing is held if HELD does not exist: the lowest held message of a scope has an entry in it.
local function has_held(scope)
  local held = step.held_scopes
  if held[scope] == nil then held[scope] = scope ~= '' and redis.call('EXISTS', GAP .. scope) == 1 end
  return held[scope]
end

local function write_highest()
  for scope, number in pairs(step.highest) do redis.call('HSET', LAST, scope, number) end
end
step.highest = put_off(HIGHEST, write_highest) -- scope -> the highest number that joined its lanes in this step

-- A message is late if a higher number of its scope has joined its lanes before. A number that is lower by a million or
-- more is not late: the numbering of its scope has started again, as some sources do.
local function note_number(scope, number)
  local last = step.highest[scope] or number_of(redis.call('HGET', LAST, scope))
  if last and number < last and last - number < 1000000 then
    step.late = step.late + 1
  else
    step.highest[scope] = number
  end
end

local function join_held(scope, id, number)
  redis.call('ZREM', GAP .. scope, id)
  redis.call('ZREM', HELD, scope .. ':' .. number)
  local message = redis.call('HMGET', MESSAGE .. id, 'state', 'queue', 'lanes', 'group', 'turn', 'seq')
  if message[1] ~= 'held' then return end
  note_number(scope, tonumber(number))
  local queue, lanes, group, turn_ms = message[2], split(message[3]), message[4], number_of(message[5])
  if turn_ms then
    turn_ms = math.min(turn_ms, now_ms + turn_ms - message[6] / 1000) -- the clock may be set back
    if turn_ms <= now_ms then turn_ms = nil end
  end
  group = group and limits_of(group) and group
  if group and join_group(queue, group, lanes, redis.call('GET', BODY .. id), turn_ms) then
    absorb(id, queue, {})
    return
  end
  local seq = next_place()
  redis.call('HSET', MESSAGE .. id, 'state', 'waiting', 'seq', seq)
  redis.call('HDEL', MESSAGE .. id, 'held', 'turn')
  if group or turn_ms then start_waiting(id, queue, group or '', turn_ms) end
  line_up(id, queue, lanes, seq)
end

-- Held messages of a scope join their lanes in order, up to the first one that must still wait. One without an entry in
-- HELD has waited for long enough: only a lower held message kept it waiting.
local function join_due(scope)
  if not has_held(scope) then return end
  local found = redis.call('ZRANGE', GAP .. scope, 0, 0, 'WITHSCORES')
  while found[1] do
    local id, number = found[1], found[2]
    local until_ms = tonumber(redis.call('ZSCORE', HELD, scope .. ':' .. number) or 0)
    if until_ms > now_ms and has_gap(scope, number, until_ms) then return end
    join_held(scope, id, number)
    found = redis.call('ZRANGE', GAP .. scope, 0, 0, 'WITHSCORES')
  end
  step.held_scopes[scope] = false
end

-- An append without hold_ms knows that no lower number is missing: held messages with lower numbers join first.
local function close_gaps(scope, number)
  if not has_held(scope) then return end
  local found = redis.call('ZRANGEBYSCORE', GAP .. scope, '-inf', '(' .. digits(number), 'WITHSCORES')
  for i = 1, #found, 2 do join_held(scope, found[i], found[i + 1]) end
  redis.call('ZREMRANGEBYSCORE', MISSING .. scope, '-inf', number + 1)
end

-- Messages that were held for long enough join their lanes, unless a lower one is still held. Returns ms until the next
-- held message is due, -1 if none is held.
local function expire_holds(limit)
  local scopes = {}
  for _, place in ipairs(redis.call('ZRANGEBYSCORE', HELD, '-inf', now_ms, 'LIMIT', 0, limit)) do
    scopes[string.match(place, '^(.*):%d+$') or ''] = true
    redis.call('ZREM', HELD, place)
  end
  for scope in pairs(scopes) do join_due(scope) end
  return ms_until_due(HELD)
end
