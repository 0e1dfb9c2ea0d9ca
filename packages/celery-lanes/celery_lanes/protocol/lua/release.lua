-- release: give messages back untouched: each stays first in its lanes and is ready at once.
-- With  ending
-- ARGV  id fence died, once for each message; `died` is 1 if its process died after it had started, 2 if it never
--       started, else 0
-- Returns the ids whose lease was lost; they were not changed
even_when_full()
local lost = {}
for i = 1, #ARGV, 3 do
  local id, fence, died = unpack(ARGV, i, i + 2)
  if holds(id, fence) then
    if died == '1' then count_death(id, now_ms) end
    give_back(id, died == '2')
    count('released', 1)
  else
    lost[#lost + 1] = id
  end
end
count('refused', #lost)
finish()
return lost
