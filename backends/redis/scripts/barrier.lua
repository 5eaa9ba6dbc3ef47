#!lua
-- Makes a write that changes nothing, so that the following WAIT covers all earlier writes. KEYS:
-- records, and a free key. ARGV: the server's history. Answers the revision.
local info = redis.call('INFO', 'replication')
if not (string.find(info, 'role:master', 1, true) and string.find(info, 'master_replid:' .. ARGV[1], 1, true)) then
  return {'history'}
end
local rev = redis.call('HGET', KEYS[1], 'rev')
if not rev then return {'lost'} end
redis.call('HSET', KEYS[2], 'x', '1')
redis.call('HDEL', KEYS[2], 'x')
return {'read', rev}
