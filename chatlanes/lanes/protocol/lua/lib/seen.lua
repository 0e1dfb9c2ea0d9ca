-- seen: remember the numbers of messages: one bit for each number, read and written in pieces of 16 bytes.
-- Owns  pieces last

local PIECE_BYTES = 16
local pieces = {} -- key and offset -> the bytes that were read (`text`), and at their index those that have changed

local last -- the piece that was used last: usually the next number is in it too

local function piece_of(scope, number, block)
  local bit_at = last and last.scope == scope and number - last.number
  if not bit_at or bit_at < 0 or bit_at >= PIECE_BYTES * 8 then
    bit_at = number % (PIECE_BYTES * 8) -- a block is a multiple of a piece
    local key, from = SEEN .. scope .. ':' .. math.floor(number / block), (number - bit_at) % block / 8
    local name = key .. ' ' .. from
    last = pieces[name]
    if not last then
      local text = redis.call('GETRANGE', key, from, from + PIECE_BYTES - 1)
      last = { key = key, from = from, text = text, scope = scope, number = number - bit_at }
      pieces[name] = last
    end
  end
  local at = math.floor(bit_at / 8) + 1
  return last, at, last[at] or string.byte(last.text, at) or 0, 2 ^ (7 - bit_at % 8)
end

local function is_remembered(scope, number, block)
  local _, _, byte, bit = piece_of(scope, number, block)
  return math.floor(byte / bit) % 2 == 1
end

-- For a number that is not remembered yet. It is stored by `write_seen`.
local function remember(scope, number, block)
  local piece, at, byte, bit = piece_of(scope, number, block)
  piece[at] = byte + bit
end

-- For a message that may have no number. From now on it is remembered.
local function was_remembered(scope, number, block)
  if scope == '' then return false end
  if is_remembered(scope, number, block) then return true end
  remember(scope, number, block)
  return false
end

local function write_seen(ttl_s)
  local keys = {}
  for _, piece in pairs(pieces) do
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
  for key in pairs(keys) do redis.call('EXPIRE', key, ttl_s) end
end
