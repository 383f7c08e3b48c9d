-- Says what becomes of a reserved job. 0: the reservation has ended. KEYS: the start of the queue's keys.
-- ARGV: extend, done, retry or fail; member, name and token of the reservation; milliseconds; the reason of a failure.
local base, what, member, name = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if redis.call('HGET', base .. ':tokens', name) ~= ARGV[4] then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if what == 'extend' then
  redis.call('ZADD', base .. ':reserved', now + tonumber(ARGV[5]), member)
  return 1
end
redis.call('ZREM', base .. ':reserved', member)
redis.call('HDEL', base .. ':tokens', name)
if what == 'retry' then
  redis.call('HINCRBY', base .. ':tries', name, 1)
  redis.call('HDEL', base .. ':lost', name)
  redis.call('ZADD', base .. ':waiting', now + tonumber(ARGV[5]), member)
elseif what == 'fail' then
  redis.call('ZADD', base .. ':failed', now, member)
  redis.call('HSET', base .. ':reasons', name, ARGV[6])
else
  for _, part in ipairs({':bodies', ':priorities', ':tries', ':lost', ':reasons'}) do
    redis.call('HDEL', base .. part, name)
  end
end
return 1
