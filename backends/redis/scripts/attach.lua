#!lua
-- Records the history under which the server goes on with a namespace, and begins the
-- namespace if it has no records. KEYS: records, names, feeds, and one that is free.
-- ARGV: the server's history, the record that is expected, the one to write without what
-- it says of former histories, the first revision, by how much the revision is raised
-- when the history becomes another one, and of how many former ones the record tells.
-- Answers whether it did, the record that is there, and the revision.
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
local rev = redis.call('HGET', KEYS[1], 'rev')
if (history or '') ~= ARGV[2] then return {'moved', history or '', rev or '0'} end
local record = ARGV[3] .. ' -'
if not history then
  rev = ARGV[4]
  redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
  redis.call('HSET', KEYS[1], 'rev', rev, 'state', rev, 'logs', rev, 'beats', rev)
else
  if not rev then return {'lost'} end
  local was, past = string.match(history, '^(%S+) %S+ %S+ %S+ (%S+)$')
  if was and was ~= ARGV[1] then
    -- What was written here is in the past of this server: a process that knows of more
    -- than that sees it, and no revision that somebody saw before is given again.
    local last = {was .. ':' .. rev}
    for one in string.gmatch(past, '[^,-]+') do
      if #last < tonumber(ARGV[6]) then last[#last + 1] = one end
    end
    past = table.concat(last, ',')
    rev = string.format('%.0f', tonumber(rev) + tonumber(ARGV[5]))
    redis.call('HSET', KEYS[1], 'rev', rev)
  end
  record = ARGV[3] .. ' ' .. (past or '-')
end
if history ~= record then redis.call('HSET', KEYS[1], 'history', record) end
return {'recorded', record, rev}
