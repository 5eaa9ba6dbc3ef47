#!lua
-- Records the history under which the server goes on with a namespace, and begins the
-- namespace if it has no records. KEYS: records, names, feeds, and one that is free.
-- ARGV: the server's history, the record that is expected, the one to write, and the
-- first revision. Answers whether it did, and the record that is there.
local info = redis.call('INFO', 'replication')
if not (string.find(info, 'role:master', 1, true) and string.find(info, 'master_replid:' .. ARGV[1], 1, true)) then
  return {'history'}
end
-- Every command that is needed later is tried on a free key, so that opening says at once
-- which right is missing.
redis.call('DEL', KEYS[6])
redis.call('XADD', KEYS[6], '1-0', 'c', '')
redis.call('XREAD', 'COUNT', '1', 'STREAMS', KEYS[6], '0')
redis.call('DEL', KEYS[6])
redis.call('ZADD', KEYS[6], 0, 'x')
redis.call('ZRANGEBYLEX', KEYS[6], '-', '+')
redis.call('ZREM', KEYS[6], 'x')
redis.call('HSET', KEYS[6], 'x', '1')
redis.call('HDEL', KEYS[6], 'x')

local history = redis.call('HGET', KEYS[1], 'history')
if (history or '') ~= ARGV[2] then return {'moved', history or ''} end
if not history then
  redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
  redis.call('HSET', KEYS[1], 'rev', ARGV[4], 'state', ARGV[4], 'logs', ARGV[4], 'beats', ARGV[4])
end
if history ~= ARGV[3] then redis.call('HSET', KEYS[1], 'history', ARGV[3]) end
return {'recorded', ARGV[3]}
