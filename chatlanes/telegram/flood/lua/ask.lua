-- ask: may a call be sent now? Checks the pauses, then takes a slot of every rate that limits the call, or of none.
-- KEYS  1 pause of the bot  2 pause of the scope  3 refused  4 rates of the bot  5 rates of the chat  6 counts
-- ARGV  cost longest_wait_us bot_us slack_us chat_us group_us burst waited_ms
--       `cost`: in messages, 0: no rate applies; `longest_wait_us`: the longest wait in place; `…_us`: the time between two
--       messages, 0: no such rate; `waited_ms`: how long this call has waited in place since it last asked, to be counted
-- Returns {verdict, wait in us, end of the wait in us, 1 if calls were refused and none was accepted since}
--       verdict: go; slot (taken, for use after the wait); pause, bot, rate, busy (no slot taken: ask again after the wait)
local cost, longest_wait_us, bot_us, slack_us, chat_us, group_us, burst, waited_ms = unpack(ARGV, 1, 8)
cost, longest_wait_us, burst = tonumber(cost), tonumber(longest_wait_us), tonumber(burst)
bot_us, slack_us, chat_us, group_us = tonumber(bot_us), tonumber(slack_us), tonumber(chat_us), tonumber(group_us)

if tonumber(waited_ms) > 0 then
  even_when_full()
  redis.call('HINCRBY', KEYS[6], 'waits', 1)
  redis.call('HINCRBY', KEYS[6], 'waited_ms', waited_ms)
end

local function answer(verdict, at_us)
  return { verdict, math.ceil(at_us - now_us), math.ceil(at_us), redis.call('EXISTS', KEYS[3]) }
end

local bot_ms, scope_ms = left_of(KEYS[1]), left_of(KEYS[2])
if bot_ms > 0 or scope_ms > 0 then
  return answer(bot_ms > scope_ms and 'bot' or 'pause', now_us + math.max(bot_ms, scope_ms) * 1000)
end
if cost == 0 or bot_us + chat_us + group_us == 0 then return answer('go', now_us) end

-- When the next evenly spaced message is due. A time later than any call waits for means that the clock was set back.
local function due(key, field, each_us, most_us)
  local at_us = each_us > 0 and tonumber(redis.call('HGET', key, field)) or now_us
  return at_us < now_us + most_us and math.max(at_us, now_us) or now_us
end

local function take(key, field, each_us, from_us)
  if each_us == 0 then return end
  local next_us = from_us + cost * each_us
  redis.call('HSET', key, field, string.format('%.0f', next_us), 'at', string.format('%.0f', now_us))
  local ms = math.ceil((next_us - now_us) / 1000) + 1000
  if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, ms) end
end

-- The clock was set back since a slot was taken: when the next ones are due is not known.
local function forget_future(key)
  if (tonumber(redis.call('HGET', key, 'at')) or 0) > now_us then redis.call('DEL', key) end
end

even_when_full()
if bot_us > 0 then forget_future(KEYS[4]) end
if chat_us + group_us > 0 then forget_future(KEYS[5]) end
local ahead_us = longest_wait_us + 60000000
local bot = due(KEYS[4], 'next', bot_us, ahead_us + 200 * bot_us)
local chat = due(KEYS[5], 'chat', chat_us, ahead_us + 200 * chat_us)
local group = due(KEYS[5], 'group', group_us, ahead_us + 200 * group_us)
local slot = math.max(bot - slack_us, now_us)
-- A chat waits for its own rate before it takes a slot of the bot, so that it holds no slot that another chat could use.
local own = math.max(chat - (burst - 1) * chat_us, group - (burst - 1) * group_us)
if own > slot then return answer('rate', own) end
if slot - now_us > longest_wait_us then
  -- Parked updates come back one after the other, at the rate of the bot.
  local back = math.max(due(KEYS[4], 'back', bot_us, ahead_us + 1000000 * bot_us), now_us + longest_wait_us)
  take(KEYS[4], 'back', bot_us, back)
  return answer('busy', back)
end
take(KEYS[4], 'next', bot_us, bot)
take(KEYS[5], 'chat', chat_us, math.max(chat, slot))
take(KEYS[5], 'group', group_us, math.max(group, slot))
return answer(slot > now_us and 'slot' or 'go', slot)
