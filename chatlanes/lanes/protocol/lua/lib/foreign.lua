-- foreign: turn an entry of a ready list into a message id. An entry is an id, or a whole message that a stock Celery
-- client pushed onto the list: that one gets a record under an id of its own, and no lane.

local OPEN_BRACE = string.byte('{')

local function id_of(entry, queue)
  if string.byte(entry) ~= OPEN_BRACE or redis.call('EXISTS', MESSAGE .. entry) == 1 then return entry end
  local ok, decoded = pcall(cjson.decode, entry)
  local named = ok and type(decoded) == 'table' and type(decoded.headers) == 'table' and decoded.headers.id
  if type(named) ~= 'string' then named = 'foreign:' .. redis.sha1hex(entry) end
  local id, seq = named, next_fence()
  while redis.call('EXISTS', MESSAGE .. id) == 1 do
    id, seq = named .. ':' .. seq, next_fence(seq)
  end
  redis.call('HSET', MESSAGE .. id, 'state', 'ready', 'queue', queue, 'lanes', '', 'seq', seq)
  redis.call('SET', BODY .. id, entry)
  redis.call('ZADD', PENDING .. group_of(queue), seq, id)
  return id
end
