-- rotation: in which order queues have their turn.

-- Takes from one queue of each group in turn, of those at these places and in their order, until `take` says that it is
-- enough (false), or has found nothing (nil) in any of them.
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
    local taken = take(group[group.at])
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
