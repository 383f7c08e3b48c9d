-- Hands out the first job. Before that, jobs whose time has come and jobs whose worker is lost become ready, a hundred of each
-- at most. KEYS: the start of the queue's keys. ARGV: milliseconds of the reservation, lost workers of a job at most.
local base = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function name_of(member) return string.sub(member, 18) end
local function make_ready(member)
  redis.call('ZADD', base .. ':ready', redis.call('HGET', base .. ':priorities', name_of(member)) or '+inf', member)
end

for _, member in ipairs(redis.call('ZRANGEBYSCORE', base .. ':reserved', '-inf', now, 'LIMIT', 0, 100)) do
  local name = name_of(member)
  redis.call('ZREM', base .. ':reserved', member)
  redis.call('HDEL', base .. ':tokens', name)
  local lost = redis.call('HINCRBY', base .. ':lost', name, 1)
  if lost >= tonumber(ARGV[2]) then
    redis.call('ZADD', base .. ':failed', now, member)
    redis.call('HSET', base .. ':reasons', name, 'its process has died or did not answer ' .. lost .. ' times while it worked on it')
  else
    make_ready(member)
  end
end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', base .. ':waiting', '-inf', now, 'LIMIT', 0, 100)) do
  redis.call('ZREM', base .. ':waiting', member)
  make_ready(member)
end

local first = redis.call('ZPOPMIN', base .. ':ready')
if #first == 0 then return false end
local member = first[1]
local name = name_of(member)
local token = string.format('%.0f', redis.call('INCR', base .. ':token'))
redis.call('HSET', base .. ':tokens', name, token)
redis.call('ZADD', base .. ':reserved', now + tonumber(ARGV[1]), member)
local body = redis.call('HGET', base .. ':bodies', name) or ''
local tries = tonumber(redis.call('HGET', base .. ':tries', name) or '0')
local lost = tonumber(redis.call('HGET', base .. ':lost', name) or '0')
return {member, name, body, token, tries, lost}
