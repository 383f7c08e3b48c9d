-- The failed jobs. KEYS: the start of the queue's keys. ARGV: list and a count; retry or drop and a name.
local base = KEYS[1]
if ARGV[1] == 'list' then
  local jobs = {}
  local found = redis.call('ZRANGEBYSCORE', base .. ':failed', '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, tonumber(ARGV[2]))
  for index = 1, #found, 2 do
    local name = string.sub(found[index], 18)
    jobs[#jobs + 1] = {name, redis.call('HGET', base .. ':reasons', name) or '', tonumber(found[index + 1])}
  end
  return jobs
end
-- A failed job keeps its member, which is found by its name. Failed jobs are few.
local name = ARGV[2]
for _, member in ipairs(redis.call('ZRANGE', base .. ':failed', 0, -1)) do
  if string.sub(member, 18) == name then
    redis.call('ZREM', base .. ':failed', member)
    redis.call('HDEL', base .. ':lost', name)
    redis.call('HDEL', base .. ':reasons', name)
    if ARGV[1] == 'retry' then
      redis.call('ZADD', base .. ':ready', redis.call('HGET', base .. ':priorities', name) or '+inf', member)
    else
      for _, part in ipairs({':bodies', ':priorities', ':tries'}) do redis.call('HDEL', base .. part, name) end
    end
    return 1
  end
end
return 0
