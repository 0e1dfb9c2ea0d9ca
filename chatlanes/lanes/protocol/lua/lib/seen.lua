-- seen: the numbers that messages are remembered by: a bit for each, read and written some bytes at a time.
-- Owns  pieces last

local AT_ONCE = 16 -- bytes
local pieces = {} -- what was read, and behind its place those of its bytes that have changed

local last -- the piece that was asked for last: mostly it is the next one, too

local function piece_of(scope, number, block)
  local bit_at = last and last.scope == scope and number - last.number
  if not bit_at or bit_at < 0 or bit_at >= AT_ONCE * 8 then
    bit_at = number % (AT_ONCE * 8) -- of which a block is a multiple
    local key, from = SEEN .. scope .. ':' .. math.floor(number / block), (number - bit_at) % block / 8
    local name = key .. ' ' .. from
    last = pieces[name]
    if not last then
      local text = redis.call('GETRANGE', key, from, from + AT_ONCE - 1)
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

-- What was not remembered; nobody else knows of it until `write_down`.
local function remember(scope, number, block)
  local piece, at, byte, bit = piece_of(scope, number, block)
  piece[at] = byte + bit
end

local function write_down(ttl_s)
  local keys = {}
  for _, piece in pairs(pieces) do
    local first, last, bytes = nil, nil, {}
    for at = 1, AT_ONCE do
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
