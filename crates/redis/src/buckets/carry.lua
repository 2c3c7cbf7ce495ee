-- Puts buckets under another mark, unless somebody was faster.
-- KEYS: one bucket each. ARGV: for each what is kept, what is to be kept ("" for a full bucket), and its time to live.
for i = 1, #KEYS do
  local was, is, ttl = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  if redis.call('GET', KEYS[i]) == was then
    if is == '' then redis.call('DEL', KEYS[i]) else redis.call('SET', KEYS[i], is, 'PX', ttl) end
  end
end
return 1
