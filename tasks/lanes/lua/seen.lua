-- seen: the numbers that messages are remembered by: a bit for each, read and written some bytes at a time.

local AT_ONCE = 16 -- bytes
local pieces = {} -- what was read, and behind its place those of its bytes that have changed

local function piece_of(scope, number, block)
  local key, byte = SEEN .. scope .. ':' .. math.floor(number / block), math.floor(number % block / 8)
  local from = byte - byte % AT_ONCE
  local name, at = key .. ' ' .. from, byte - from + 1
  local piece = pieces[name]
  if not piece then
    piece = { key = key, from = from, text = redis.call('GETRANGE', key, from, from + AT_ONCE - 1) }
    pieces[name] = piece
  end
  return piece, at, piece[at] or string.byte(piece.text, at) or 0, 2 ^ (7 - number % 8)
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
