-- What is kept of each bucket, and the time by which to judge it.
local s, ns = now()
return {s, ns, unpack(redis.call('MGET', unpack(KEYS)))}
