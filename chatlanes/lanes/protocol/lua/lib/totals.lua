-- totals: add to many counters of a hash with two commands instead of one for each counter.

-- `more`: field -> increment. Sums of µs stay exact for centuries.
local function add_up(key, more)
  local fields, sums = {}, {}
  for field in pairs(more) do fields[#fields + 1] = field end
  for i = 1, #fields, 1000 do
    local last = math.min(i + 999, #fields)
    for j, sum in ipairs(redis.call('HMGET', key, unpack(fields, i, last))) do
      local field, n = fields[i + j - 1], #sums
      sums[n + 1], sums[n + 2] = field, (number_of(sum) or 0) + more[field]
    end
  end
  call_in_batches('HSET', key, sums)
end
