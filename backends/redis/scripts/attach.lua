#!lua
-- Records the history under which the server continues a namespace, and begins the namespace if it
-- has no records. KEYS: records, names, feeds, and a free key. ARGV: the server's history, the
-- expected record, the new record without its past, and the first revision. Then follow the amount
-- by which a different history raises the revision, and the number of previous histories to keep.
-- Answers whether it wrote the record, the current record, and the revision.
local info = redis.call('INFO', 'replication')
if not (string.find(info, 'role:master', 1, true) and string.find(info, 'master_replid:' .. ARGV[1], 1, true)) then
  return {'history'}
end
-- Every command that is needed later is tried on a free key, so that opening immediately reports a
-- missing right.
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
    -- The past records the revision reached here. A process that knows a later one detects the
    -- loss, and no revision that was seen is assigned again.
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
