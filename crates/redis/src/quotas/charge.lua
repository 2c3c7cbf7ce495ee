-- Counts messages of a user, if the running window has room for them.
-- KEYS: the user's hash, and the ticket of whoever is about to fill it. ARGV: how many, the caller's ticket, its life.
-- Returns {1 counted or 0 denied, limit, count, milliseconds until the window ends}, or {2, 1 if the caller is to fill it}.
local limit, count = unpack(redis.call('HMGET', KEYS[1], 'rateLimit', 'currentCount'))
local rest_ms = redis.call('PTTL', KEYS[1])
limit, count = tonumber(limit or nil), tonumber(count or nil)
-- Without an end, a window would deny for ever.
if not limit or not count or rest_ms < 0 then
  local mine = redis.call('SET', KEYS[2], ARGV[2], 'NX', 'PX', ARGV[3])
  return {2, mine and 1 or 0}
end
if count + ARGV[1] > limit then return {0, limit, count, rest_ms} end
return {1, limit, redis.call('HINCRBY', KEYS[1], 'currentCount', ARGV[1]), rest_ms}
