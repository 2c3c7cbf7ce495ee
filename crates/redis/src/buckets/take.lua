-- Takes from all buckets or from none.
--
-- KEYS: one bucket each.
-- ARGV: eight per bucket, its rule: MARK, REFILLS, SHADOW, COST, FULL, TTL. A mark is "VERSION CAPACITY NS_PER_TOKEN"; what
--   a bucket kept under another mark holds can't be said here. COST and FULL are pairs of whole numbers: seconds and
--   nanoseconds of refilling, or tokens and 0 where nothing refills. A pair, because a number of Lua counts nanoseconds
--   exactly for 104 days only.
--
-- A bucket is kept as OWED, AT, MARK: what it lacks to be full, as a pair like COST, and when that was so. Packed: texts
-- took Redis half as long again.
--
-- Returns {1 passed or 0 denied, now, for each bucket: {1 if it lacked tokens or 0, what it owes now}}, flat; or
-- {2, now, for each bucket under another mark: its number, what is kept}, with nothing taken.

local PACKED, MARK_AT = '>I4I4I5I4', 18
local IDLE_S = 3600
local SECOND_NS = 1000000000

local s, ns = now()
local kept = redis.call('MGET', unpack(KEYS))
local answer, stale = {1, s, ns}, nil
local noted, after = {}, {}

for i = 1, #KEYS do
  local rule = 8 * i - 8
  local owed_s, owed_ns = 0, 0
  local value = kept[i]
  if value then
    if string.sub(value, MARK_AT) ~= ARGV[rule + 1] then
      stale = stale or {2, s, ns}
      stale[#stale + 1] = i
      stale[#stale + 1] = value
    else
      local kept_s, kept_ns, at_s, at_ns = struct.unpack(PACKED, value)
      if ARGV[rule + 2] == '1' then
        -- Time that was set back has not passed. It goes on from here, or a drained bucket would wait for it.
        local past_s, past_ns = s - at_s, ns - at_ns
        if past_ns < 0 then past_s, past_ns = past_s - 1, past_ns + SECOND_NS end
        if past_s < 0 then past_s, past_ns, noted[i] = 0, 0, true end
        owed_s, owed_ns = kept_s - past_s, kept_ns - past_ns
        if owed_ns < 0 then owed_s, owed_ns = owed_s - 1, owed_ns + SECOND_NS end
        if owed_s < 0 then owed_s, owed_ns = 0, 0 end
      elseif s - at_s <= IDLE_S then
        -- A bucket that never refills is full when it was left alone, and an attempt is not that.
        owed_s, noted[i] = kept_s, kept_s > 0
      end
    end
  end
  local after_s, after_ns = owed_s + ARGV[rule + 4], owed_ns + ARGV[rule + 5]
  if after_ns >= SECOND_NS then after_s, after_ns = after_s + 1, after_ns - SECOND_NS end
  local over_s = after_s - ARGV[rule + 6]
  local lacked = over_s > 0 or (over_s == 0 and after_ns > ARGV[rule + 7] + 0)
  if lacked and ARGV[rule + 3] == '0' then answer[1] = 0 end
  answer[3 * i + 1], answer[3 * i + 2], answer[3 * i + 3] = lacked and 1 or 0, owed_s, owed_ns
  after[2 * i - 1], after[2 * i] = after_s, after_ns
end

if stale then return stale end

for i = 1, #KEYS do
  local took = answer[1] == 1 and answer[3 * i + 1] == 0
  if took then answer[3 * i + 2], answer[3 * i + 3] = after[2 * i - 1], after[2 * i] end
  if took or noted[i] then
    local value = struct.pack(PACKED, answer[3 * i + 2], answer[3 * i + 3], s, ns) .. ARGV[8 * i - 7]
    redis.call('PSETEX', KEYS[i], ARGV[8 * i], value)
  end
end
return answer
