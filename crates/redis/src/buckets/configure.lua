-- Puts rules in force, and tells their versions.
--
-- KEYS: one policy each: the list of its versions, oldest first, each "VERSION SINCE CAPACITY NS_PER_TOKEN". SINCE is
--   seconds and nanoseconds; a capacity of 0 is a version in which the policy was gone.
-- ARGV: first how many versions are remembered, then for each policy its rule, "CAPACITY NS_PER_TOKEN".
-- A version's number is the microsecond it came in, or one more than the last: it never stands for two rules, even
-- when Redis was emptied in between.
local s, ns = now()
local answer = {}
for i = 1, #KEYS do
  local last = redis.call('LINDEX', KEYS[i], -1)
  local number, rule
  if last then number, rule = string.match(last, '^(%d+) %d+ %d+ (%d+ %d+)$') end
  if rule ~= ARGV[i + 1] and (rule or ARGV[i + 1] ~= '0 0') then
    number = math.max(s * 1000000 + math.floor(ns / 1000), (tonumber(number) or 0) + 1)
    redis.call('RPUSH', KEYS[i], string.format('%.0f %.0f %.0f %s', number, s, ns, ARGV[i + 1]))
    redis.call('LTRIM', KEYS[i], -ARGV[1], -1)
  end
  answer[i] = redis.call('LRANGE', KEYS[i], 0, -1)
end
return answer
