#!lua
do
  local n, records = #ARGV, KEYS[#KEYS]
  local info = redis.call('INFO', 'replication')
  local now = redis.call('HMGET', records, 'rev', ARGV[n - 3], ARGV[n - 1])
  local function begins(record, want) return record and string.sub(record, 1, #want) == want end
  if not (string.find(info, 'role:master', 1, true) and string.find(info, 'master_replid:' .. ARGV[n - 5], 1, true) and
    now[1] and tonumber(now[1]) >= tonumber(ARGV[n - 4]) and begins(now[2], ARGV[n - 2]) and begins(now[3], ARGV[n])) then
    return redis.error_reply('FENCED the lease is no longer the current grant of its shard')
  end
end
