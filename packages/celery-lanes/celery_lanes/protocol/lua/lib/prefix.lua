-- prefix: puts PREFIX before every key and channel that a script uses (protocol/prefix.py). It precedes the script, and
-- replaces its `redis` and `KEYS`, so that the script has the names without the prefix.
local server, given = redis, KEYS
local KEYS = {}
for i, key in ipairs(given) do KEYS[i] = string.sub(key, #PREFIX + 1) end

-- Commands with several keys, and how far these are apart.
local APART = { DEL = 1, EXISTS = 1, MGET = 1, MSET = 2, RENAME = 1, UNLINK = 1 }
local function with_prefix(command, key, ...)
  if not key then return command end
  local apart = APART[command]
  if not apart then return command, PREFIX .. key, ... end
  local arguments = { key, ... }
  for i = 1, #arguments, apart do arguments[i] = PREFIX .. arguments[i] end
  return command, unpack(arguments)
end

local function scan(cursor, match, pattern, ...)
  local found = server.call('SCAN', cursor, match, string.gsub(PREFIX, '[\\*?%[%]]', '\\%0') .. pattern, ...)
  for i, key in ipairs(found[2]) do found[2][i] = string.sub(key, #PREFIX + 1) end
  return found
end

local redis = setmetatable({
  call = function(command, ...)
    if command == 'SCAN' then return scan(...) end
    return server.call(with_prefix(command, ...))
  end,
  pcall = function(...) return server.pcall(with_prefix(...)) end,
}, { __index = server })
