-- timer_packing: texts that many timers contain are stored as one control character each: those below, and the owner of
-- the timer, its name, and the ends of the owner, such as the numbers of a bot and a chat. JSON contains no control
-- characters but the newline, which is none of them. A text with other ones is stored as it is, after RAW.

local RAW, FIRST, CODES = '\31', 10, '[\1-\9\11-\31]'
-- Of the stored form of a task (pack_task in envelope.py), and of the content of a bot's timer (chatlanes/bot/timers.py).
local COMMON = {
  '{"headers":{"task":"tasks.update","argsrepr":"(timer, chat ',
  '{"headers":{"task":"',
  '","argsrepr":"',
  '"}}\n[[',
  ',{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]',
  '{"timer":{"name":"',
  ',"data":',
  ',"chat":{"id":',
  ',"type":"private"}',
  ',"type":"supergroup"}',
  ',"from":{"id":',
}
local TEXT_OF = {}
for i, text in ipairs(COMMON) do TEXT_OF[string.char(FIRST + i)] = text end
local OTHERS = { __index = TEXT_OF }

-- The text of each code in the timers with this owner and name.
local function texts_of(owner, name)
  local ends = { string.match(owner, '^[^/: ]+'), string.match(owner, '[^/: ]+$') }
  return setmetatable({ ['\1'] = owner, ['\2'] = name, ['\3'] = ends[1], ['\4'] = ends[2] }, OTHERS)
end

local function replace(text, literal, by)
  if not literal or literal == '' or not string.find(text, literal, 1, true) then return text end
  local parts, at = {}, 1
  repeat
    local from, to = string.find(text, literal, at, true)
    parts[#parts + 1], at = string.sub(text, at, from and from - 1 or -1), (to or 0) + 1
  until not from
  return table.concat(parts, by)
end

local function pack_text(text, texts)
  if string.find(text, CODES) then return RAW .. text end
  for i = FIRST + 1, FIRST + #COMMON do text = replace(text, texts[string.char(i)], string.char(i)) end
  for i = 1, 4 do text = replace(text, texts[string.char(i)], string.char(i)) end
  return text
end

local function unpack_text(text, texts)
  if string.sub(text, 1, 1) == RAW then return string.sub(text, 2) end
  return (string.gsub(text, CODES, texts))
end
