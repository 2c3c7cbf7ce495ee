-- Puts rules in force, and tells their versions.
--
-- KEYS: one policy each: the list of its versions, oldest first, each "VERSION SINCE CAPACITY NS_PER_TOKEN". SINCE is
--   seconds and nanoseconds; a capacity of 0 is a version in which the policy was gone.
-- ARGV: first how many versions are remembered, then two for each policy: the rule to put in force, "CAPACITY NS_PER_TOKEN",
--   or "" for whichever is; and the newest version that the caller knows, or "". Where that has been forgotten here, it
--   is put back, so that the newest one counts and not the one of whoever comes first.
-- A version's number is the microsecond it came in, or one more than the last: it never stands for two rules, even
-- when Redis was emptied in between.
local function read(version)
  local number, rule = string.match(version or '', '^(%d+) %d+ %d+ (%d+ %d+)$')
  return tonumber(number) or 0, rule
end

local s, ns = now()
local answer = {}
for i = 1, #KEYS do
  local wanted, known = ARGV[2 * i], ARGV[2 * i + 1]
  local number, rule = read(redis.call('LINDEX', KEYS[i], -1))
  local known_number, known_rule = read(known)
  if known_number > number then
    redis.call('RPUSH', KEYS[i], known)
    number, rule = known_number, known_rule
  end
  if wanted ~= '' and wanted ~= rule and (rule or wanted ~= '0 0') then
    number = math.max(s * 1000000 + math.floor(ns / 1000), number + 1)
    redis.call('RPUSH', KEYS[i], string.format('%.0f %.0f %.0f %s', number, s, ns, wanted))
  end
  redis.call('LTRIM', KEYS[i], -ARGV[1], -1)
  answer[i] = redis.call('LRANGE', KEYS[i], 0, -1)
end
return answer
