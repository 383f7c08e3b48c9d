-- Adds a job. A member of the sorted sets is the job's number in the queue and its name: among equal priorities, the order of
-- members is the order in which jobs came. KEYS: the start of the queue's keys, whose braces keep them together.
-- ARGV: name, body, priority (empty: none), milliseconds since 1970 before which no process gets it.
local base = KEYS[1]
if redis.call('HSETNX', base .. ':bodies', ARGV[1], ARGV[2]) == 0 then return 0 end
local member = string.format('%016.0f:', redis.call('INCR', base .. ':sequence')) .. ARGV[1]
if ARGV[3] ~= '' then redis.call('HSET', base .. ':priorities', ARGV[1], ARGV[3]) end
if tonumber(ARGV[4]) > 0 then
  redis.call('ZADD', base .. ':waiting', ARGV[4], member)
else
  redis.call('ZADD', base .. ':ready', ARGV[3] ~= '' and ARGV[3] or '+inf', member)
end
return 1
