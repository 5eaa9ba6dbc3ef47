#!lua flags=no-writes
-- Reads records. KEYS: records. ARGV: the server's history, then the records' names.
local info = redis.call('INFO', 'replication')
if not (string.find(info, 'role:master', 1, true) and string.find(info, 'master_replid:' .. ARGV[1], 1, true)) then
  return {'history'}
end
local rev = redis.call('HGET', KEYS[1], 'rev')
if not rev then return {'lost'} end
local answer = {'read', rev}
for lo = 2, #ARGV, 1000 do
  for _, record in ipairs(redis.call('HMGET', KEYS[1], unpack(ARGV, lo, math.min(lo + 999, #ARGV)))) do
    answer[#answer + 1] = record
  end
end
return answer
