-- rights: return the commands of the scripts that this user may not use. Redis checks a command when a script comes to it,
-- and keeps what the script has written before.
-- Returns names

-- What the errors of Redis and Valkey have in common, for a command, a key, a channel, and a renamed command.
local SIGNS = { 'ACL failure', 'NOPERM', 'user executing', 'Unknown' }
local none, refused = COUNTS .. ':none', {}
local function try(command, ...)
  local answer = redis.pcall(command, ...)
  for _, sign in ipairs(type(answer) == 'table' and answer.err and SIGNS or {}) do
    if string.find(answer.err, sign, 1, true) then
      table.insert(refused, command)
      break
    end
  end
end

-- Each tries the same scratch key, whatever its type is then. The last two delete it.
try('RPUSH', none, '1')
try('LPUSH', none, '1')
for _, command in ipairs({ 'GET', 'HGETALL', 'HLEN', 'LLEN', 'LPOP', 'PERSIST', 'RPOP', 'ZCARD', 'EXISTS', 'MGET' }) do
  try(command, none)
end
for _, command in ipairs({ 'APPEND', 'HDEL', 'HEXISTS', 'HGET', 'HMGET', 'HRANDFIELD', 'HSCAN', 'LPOS', 'ZRANDMEMBER',
  'ZREM', 'ZSCORE' }) do
  try(command, none, '1')
end
for _, command in ipairs({ 'GETRANGE', 'HINCRBY', 'HSET', 'HSETNX', 'LRANGE', 'LREM', 'LSET', 'SETRANGE', 'ZADD', 'ZCOUNT',
  'ZRANGE', 'ZRANGEBYSCORE', 'ZREMRANGEBYSCORE', 'ZREVRANGEBYSCORE' }) do
  try(command, none, '1', '1')
end
try('EXPIRE', none, '1')
try('PEXPIRE', none, '1')
try('RENAME', none, none)
try('TIME')
try('SCAN', '0', 'MATCH', none, 'COUNT', '1')
try('PUBLISH', none, '')
try('SET', none, '')
try('MSET', none, '')
try('UNLINK', none)
try('DEL', none)
return refused
