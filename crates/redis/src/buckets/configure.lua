-- Puts rules in force, and tells their versions.
--
-- KEYS: first when rules last changed, which others look at; then one policy each: the list of its versions, oldest
--   first, each "VERSION SINCE CAPACITY NS_PER_TOKEN". SINCE is seconds and nanoseconds; a capacity of 0 was noted by
--   older gateways that dropped the policy, and changes nothing for the others.
-- ARGV: first how many versions are remembered; the microsecond that the rules were decided on, 0 for just now; then two for each policy: the rule to put in force, "CAPACITY NS_PER_TOKEN", or "" for whichever is; and the newest
--   version that the caller knows, or "". Where that has been forgotten here, it is put back, so that the newest one
--   counts and not the one of the gateway that comes first. A rule that was decided on before the one in force came in is late,
--   and does not count.
-- Returns {when rules last changed}, and the versions of each policy.
-- A version's number is the microsecond it came in, or one more than the last: it never stands for two rules, even
-- when Redis was emptied in between.
local function read(version)
  local number, rule = string.match(version or '', '^(%d+) %d+ %d+ (%d+ %d+)$')
  return tonumber(number) or 0, rule
end

local s, ns = now()
local now_us = s * 1000000 + math.floor(ns / 1000)
local since_us = tonumber(ARGV[2])
local last_us = tonumber(redis.call('GET', KEYS[1]) or nil)
local changed = not last_us
local answer = {}
for i = 2, #KEYS do
  local wanted, known = ARGV[2 * i - 1], ARGV[2 * i]
  local number, rule = read(redis.call('LINDEX', KEYS[i], -1))
  local known_number, known_rule = read(known)
  if known_number > number then
    redis.call('RPUSH', KEYS[i], known)
    number, rule, changed = known_number, known_rule, true
  end
  local late = since_us > 0 and number > since_us
  if wanted ~= '' and not late and wanted ~= rule then
    number = math.max(now_us, number + 1)
    redis.call('RPUSH', KEYS[i], string.format('%.0f %.0f %.0f %s', number, s, ns, wanted))
    changed = true
  end
  redis.call('LTRIM', KEYS[i], -ARGV[1], -1)
  answer[i] = redis.call('LRANGE', KEYS[i], 0, -1)
end
if changed then
  last_us = math.max(now_us, (last_us or 0) + 1)
  redis.call('SET', KEYS[1], string.format('%.0f', last_us))
end
answer[1] = {string.format('%.0f', last_us)}
return answer
