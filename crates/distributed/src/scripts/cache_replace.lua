-- Replaces a value if it is still the one that the caller has read. A value that was there keeps its time.
-- KEYS: the item. ARGV: 1 if it was there, its value, the new value, milliseconds of a new item's life (0: no end).
local old = redis.call('GET', KEYS[1])
if ARGV[1] == '1' then
  if old ~= ARGV[2] then return 0 end
elseif old then
  return 0
end
local life = old and redis.call('PTTL', KEYS[1]) or tonumber(ARGV[4])
if life > 0 then
  redis.call('SET', KEYS[1], ARGV[3], 'PX', life)
else
  redis.call('SET', KEYS[1], ARGV[3])
end
return 1
