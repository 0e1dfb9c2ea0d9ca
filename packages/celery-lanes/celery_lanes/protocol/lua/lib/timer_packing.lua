-- timer_packing: texts that many timers contain are stored as one control character each: the owner of the timer, its
-- name, the ends of the owner, such as the numbers of a shop and a customer, and the TEXTS of the app (scripts.py). JSON
-- contains no control character except the newline, which is not used here. A text with others is stored as it is,
-- after RAW.
-- TEXTS has a list for each version; the last one packs. A packed text begins with VERSION, its version and VERSION.
-- One without texts of the app, or with those of version 1, does not, so it is as in the first release.

local RAW, VERSION, FIRST, CODES = '\31', '\30', 10, '[\1-\9\11-\31]'

-- The text of each code that is not the app's, in the timers with this owner and name.
local function texts_of(owner, name)
  local ends = { string.match(owner, '^[^/: ]+'), string.match(owner, '[^/: ]+$') }
  return { ['\1'] = owner, ['\2'] = name, ['\3'] = ends[1], ['\4'] = ends[2] }
end

local function replace(text, literal, by)
  if not literal or literal == '' or string.find(literal, '%z') then return text end
  return (string.gsub(text, string.gsub(literal, '%W', '%%%0'), by))
end

local function pack_text(text, texts)
  if string.find(text, CODES) then return RAW .. text end
  local packed = text
  for i, common in ipairs(TEXTS[#TEXTS] or {}) do packed = replace(packed, common, string.char(FIRST + i)) end
  local prefix = #TEXTS > 1 and packed ~= text and VERSION .. #TEXTS .. VERSION or ''
  for i = 1, 4 do packed = replace(packed, texts[string.char(i)], string.char(i)) end
  return prefix .. packed
end

-- Returns nil and the version if a code of it has no text here.
local function unpack_text(text, texts)
  if string.sub(text, 1, 1) == RAW then return string.sub(text, 2) end
  local version, packed = string.match(text, '^' .. VERSION .. '(%d+)' .. VERSION .. '(.*)$')
  local known, is_known = TEXTS[tonumber(version or 1)] or {}, true
  local plain = string.gsub(packed or text, CODES, function(code)
    local found = texts[code] or known[string.byte(code) - FIRST]
    is_known = is_known and (found or '') ~= ''
    return found
  end)
  if is_known then return plain end
  return nil, tonumber(version or 1)
end
