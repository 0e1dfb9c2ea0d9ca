-- lease: the check with which a verb begins that changes one leased message.

-- Returns the same as `holds`. A lost lease is counted as refused.
local function check_lease(id, fence)
  local queue, lanes = holds(id, fence)
  if not queue then count('refused', 1) end
  return queue, lanes
end
