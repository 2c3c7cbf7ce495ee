-- Replaces what is kept of buckets, each unless another gateway was faster.
-- KEYS: one bucket each. ARGV: for each what is kept, what is to be kept ("" for a full bucket in either), and its time to
--   live. Returns 1 for each that was replaced, 0 for the others.
local answer = {}
for i = 1, #KEYS do
  local was, is, ttl = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  answer[i] = 0
  if (redis.call('GET', KEYS[i]) or '') == was then
    answer[i] = 1
    if is == '' then redis.call('DEL', KEYS[i]) else redis.call('SET', KEYS[i], is, 'PX', ttl) end
  end
end
return answer
