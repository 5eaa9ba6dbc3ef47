#!lua
do
  local n = #ARGV
  local info = redis.call('INFO', 'replication')
  local record = redis.call('HGET', KEYS[#KEYS], ARGV[n - 1]) or ''
  if not (string.find(info, 'role:master', 1, true) and string.find(info, 'master_replid:' .. ARGV[n - 2], 1, true) and
    string.sub(record, 1, #ARGV[n]) == ARGV[n]) then
    return redis.error_reply('FENCED the lease is no longer the current grant of its shard')
  end
end
