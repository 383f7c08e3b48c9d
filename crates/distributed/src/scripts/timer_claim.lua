-- Asks for a period: {1, period} the caller fires, {2, period} another process does, {0, period} it is done.
-- KEYS: the timer. ARGV: milliseconds of a period (0: it is named), its name, milliseconds of a firing, the caller,
-- the last period that the caller knows to be done (-1: none).
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local length = tonumber(ARGV[1])
local period = length > 0 and math.floor(now / length) or tonumber(ARGV[2])
local done = tonumber(redis.call('HGET', KEYS[1], 'done') or ARGV[5])
-- A timer whose periods have another length counts anew, and so does one whose server's clock was set back.
if (redis.call('HGET', KEYS[1], 'length') or ARGV[1]) ~= ARGV[1] or (length > 0 and done > period + 1) then done = -1 end
if done == -1 and length > 0 then
  done = period
end
redis.call('HSET', KEYS[1], 'done', done, 'length', ARGV[1])
if done >= period then return {0, done} end
if tonumber(redis.call('HGET', KEYS[1], 'until') or '0') > now then return {2, period} end
redis.call('HSET', KEYS[1], 'until', now + tonumber(ARGV[3]), 'holder', ARGV[4])
return {1, period}
