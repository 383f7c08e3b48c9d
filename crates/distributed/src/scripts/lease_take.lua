-- Takes a lease, if no other process holds it, and returns its token; 0 if one does.
-- The token is larger than the last one, and not smaller than the server's microseconds: so it grows even if the server has lost
-- its data. KEYS: the holder, the last token. ARGV: the caller's name, milliseconds.
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return tonumber(redis.call('GET', KEYS[2]) or '0')
elseif holder then
  return 0
end
local time = redis.call('TIME')
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
local token = math.max(last + 1, time[1] * 1000000 + time[2])
redis.call('SET', KEYS[2], string.format('%.0f', token))
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return token
