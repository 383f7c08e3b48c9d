-- KEYS: the holder, the last token. ARGV: the caller's name.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
