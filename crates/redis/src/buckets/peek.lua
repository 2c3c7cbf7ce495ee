-- What is kept of a bucket, and the time by which to judge it.
local s, ns = now()
return {s, ns, redis.call('GET', KEYS[1])}
