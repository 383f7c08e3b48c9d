-- Adds to a number of eight bytes, the lowest first. BITFIELD computes with 64 bits, the highest byte first; Lua has 53.
-- KEYS: the item. ARGV: the number that a new item begins with, the summand, milliseconds of a new item's life (0: no end).
local old = redis.call('GET', KEYS[1])
local number = string.sub((old or ARGV[1]) .. '\0\0\0\0\0\0\0\0', 1, 8)
local life = old and redis.call('PTTL', KEYS[1]) or tonumber(ARGV[3])
redis.call('SET', KEYS[1], string.reverse(number))
redis.call('BITFIELD', KEYS[1], 'INCRBY', 'i64', 0, ARGV[2])
number = string.reverse(redis.call('GET', KEYS[1]))
if life > 0 then
  redis.call('SET', KEYS[1], number, 'PX', life)
else
  redis.call('SET', KEYS[1], number)
end
return 1
