-- rotation: the order in which queues are read, and whether they have ready messages left.
-- With  ready
-- Writes  filled (ready)
-- Reads  is_anything_paused (paused)

-- Takes from one queue of each group in turn. It reads queues[from] to queues[to], in this order. `take` is called with
-- a queue and the number of calls until it is the turn of that queue again. It returns false to stop, and nil if the
-- queue is empty; in_turn ends when all queues are.
local function in_turn(queues, from, to, take)
  local groups = {} -- lists of queues, by number and by name; `at` is the index of the next queue
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

-- Returns 0 if no queue has a ready message, 1 if one of the first `n` has, 2 if only others have. Deletes the wake-ups of queues without one. No worker
-- waits for those wake-ups: it would have popped them.
local function is_any_left(queues, n)
  local unknown, unused, left = {}, {}, 0
  for _, queue in ipairs(queues) do
    if filled[queue] == nil and not is_closed(queue) then unknown[#unknown + 1] = queue end
  end
  for _, queue in ipairs(filter_existing(unknown, true)) do filled[queue] = true end
  for i, queue in ipairs(queues) do
    if not filled[queue] then unused[#unused + 1] = BELL .. queue end
    if left ~= 1 and filled[queue] and not is_closed(queue) then left = i <= n and 1 or 2 end
  end
  call_in_batches('DEL', nil, unused)
  return left
end
