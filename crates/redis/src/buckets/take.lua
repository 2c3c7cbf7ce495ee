-- Takes from all buckets or from none.
--
-- KEYS: one bucket each.
-- ARGV: one rule each, "MARK REFILLS SHADOW COST FULL TTL". A mark is "VERSION CAPACITY NS_PER_TOKEN"; what a bucket kept
--   under another mark holds can't be said here. COST and FULL are pairs of whole numbers: seconds and nanoseconds of
--   refilling, or tokens and 0 where nothing refills. A pair, because a number of Lua counts nanoseconds exactly for
--   104 days only.
--
-- A bucket is kept as "MARK OWED AT": what it lacks to be full, as a pair like COST, and when that was so.
--
-- Returns {1 passed or 0 denied, now, for each bucket: {1 if it lacked tokens or 0, what it owes now}}, flat; or
-- {2, now, for each bucket under another mark: its number, what is kept}, with nothing taken.

local RULE = '^(%d+ %d+ %d+) (%d) (%d) (%d+) (%d+) (%d+) (%d+) (%d+)$'
local KEPT = '^(%d+ %d+ %d+) (%d+) (%d+) (%d+) (%d+)$'
local IDLE_S = 3600
local SECOND_NS = 1000000000

local s, ns = now()
local kept = redis.call('MGET', unpack(KEYS))
local buckets, stale, passed = {}, nil, true

for i = 1, #KEYS do
  local mark, refills, shadow, cost_s, cost_ns, full_s, full_ns, ttl = string.match(ARGV[i], RULE)
  local owed_s, owed_ns, set_back = 0, 0, false
  if kept[i] then
    local was, kept_s, kept_ns, at_s, at_ns = string.match(kept[i], KEPT)
    if was ~= mark then
      stale = stale or {2, s, ns}
      stale[#stale + 1] = i
      stale[#stale + 1] = kept[i]
    elseif refills == '1' then
      -- Time that was set back has not passed. It goes on from here, or a drained bucket would wait for it.
      local past_s, past_ns = s - at_s, ns - at_ns
      if past_ns < 0 then past_s, past_ns = past_s - 1, past_ns + SECOND_NS end
      if past_s < 0 then past_s, past_ns, set_back = 0, 0, true end
      owed_s, owed_ns = kept_s - past_s, kept_ns - past_ns
      if owed_ns < 0 then owed_s, owed_ns = owed_s - 1, owed_ns + SECOND_NS end
      if owed_s < 0 then owed_s, owed_ns = 0, 0 end
    elseif s - at_s <= IDLE_S then
      owed_s = kept_s + 0
    end
  end
  local after_s, after_ns = owed_s + cost_s, owed_ns + cost_ns
  if after_ns >= SECOND_NS then after_s, after_ns = after_s + 1, after_ns - SECOND_NS end
  local over_s = after_s - full_s
  local lacked = over_s > 0 or (over_s == 0 and after_ns > full_ns + 0)
  if lacked and shadow == '0' then passed = false end
  -- A bucket that never refills is full when it was left alone, and an attempt is not that.
  local noted = set_back or (refills == '0' and owed_s > 0)
  buckets[i] = {mark, noted, lacked, owed_s, owed_ns, after_s, after_ns, ttl}
end

if stale then return stale end

local answer = {passed and 1 or 0, s, ns}
for i = 1, #KEYS do
  local mark, noted, lacked, owed_s, owed_ns, after_s, after_ns, ttl = unpack(buckets[i])
  local took = passed and not lacked
  if took then owed_s, owed_ns = after_s, after_ns end
  if took or noted then
    local value = mark .. ' ' .. owed_s .. ' ' .. owed_ns .. ' ' .. s .. ' ' .. ns
    redis.call('SET', KEYS[i], value, 'PX', ttl)
  end
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3] = lacked and 1 or 0, owed_s, owed_ns
end
return answer
