-- A period is done. 0: the caller was too late. KEYS: the timer. ARGV: the caller, the period.
local done = tonumber(redis.call('HGET', KEYS[1], 'done') or '-1')
if tonumber(ARGV[2]) > done then redis.call('HSET', KEYS[1], 'done', ARGV[2]) end
if redis.call('HGET', KEYS[1], 'holder') ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[1], 'until', 'holder')
return 1
