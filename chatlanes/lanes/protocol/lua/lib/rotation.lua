-- rotation: in which order queues have their turn, and whether anything is left in them.
-- With  ready
-- Writes  filled (ready)
-- Reads  is_anything_paused (ready)

-- Takes from one queue of each group in turn, of those at these places and in their order, until `take` says that it is
-- enough (false), or has found nothing (nil) in any of them. It is told how many there are until it is that one's turn
-- again.
local function in_turn(queues, from, to, take)
  local groups = {} -- by number and by name: lists of queues; `at` is the next one of them
  for i = from, to do
    local name = group_of(queues[i])
    local group = groups[name]
    if not group then
      group = { at = 1 }
      groups[name], groups[#groups + 1] = group, group
    end
    group[#group + 1] = queues[i]
  end
  local at = 1
  while groups[at] do
    local group = groups[at]
    local taken = take(group[group.at], #groups * #group)
    if taken == false then return end
    if taken then
      at, group.at = at + 1, group.at + 1
    else
      table.remove(group, group.at)
      if #group == 0 then table.remove(groups, at) end
    end
    if group.at > #group then group.at = 1 end
    if at > #groups then at = 1 end
  end
end

local function is_closed(queue)
  return is_anything_paused and (is_paused('queue', queue) or is_paused('group', group_of(queue)))
end

-- Whether a worker of these queues would find something. Bells of the others ring no more: nobody waits for them, or
-- they would be gone.
local function is_any_left(queues)
  local unknown, silent, is_left = {}, {}, false
  for _, queue in ipairs(queues) do
    if filled[queue] == nil and not is_closed(queue) then unknown[#unknown + 1] = queue end
  end
  for _, queue in ipairs(which(unknown, true)) do filled[queue] = true end
  for _, queue in ipairs(queues) do
    if not filled[queue] then silent[#silent + 1] = BELL .. queue end
    is_left = is_left or filled[queue] and not is_closed(queue)
  end
  together('DEL', nil, silent)
  return is_left
end
