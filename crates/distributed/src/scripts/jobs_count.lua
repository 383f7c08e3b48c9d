-- KEYS: the start of the queue's keys. Jobs that are ready, that wait for their time, that are reserved, that have failed.
local base = KEYS[1]
return {
  redis.call('ZCARD', base .. ':ready'),
  redis.call('ZCARD', base .. ':waiting'),
  redis.call('ZCARD', base .. ':reserved'),
  redis.call('ZCARD', base .. ':failed'),
}
