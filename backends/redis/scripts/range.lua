#!lua flags=no-writes
-- Reads records in the order of their names. KEYS: records, names. ARGV: the server's history, and
-- the first name and the end of the range in the form of ZRANGEBYLEX. Then follow the numbers of
-- records and bytes at which the page ends, whether to omit values, and the longest value's length,
-- or 0. Answers whether the range continues, names, and records. Instead of a longer value, answers
-- the revision, ':' and its length.
local info = redis.call('INFO', 'replication')
if not (string.find(info, 'role:master', 1, true) and string.find(info, 'master_replid:' .. ARGV[1], 1, true)) then
  return {'history'}
end
local rev = redis.call('HGET', KEYS[1], 'rev')
if not rev or redis.call('HLEN', KEYS[1]) ~= redis.call('ZCARD', KEYS[2]) + 5 then return {'lost'} end
local limit, room, largest = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[7])
local found = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[2], ARGV[3], 'LIMIT', 0, limit + 1)
local answer = {'read', rev, 0}
for lo = 1, math.min(#found, limit), 100 do
  if room <= 0 then
    answer[3] = 1
    return answer
  end
  local hi = math.min(lo + 99, #found, limit)
  local part = redis.call('HMGET', KEYS[1], unpack(found, lo, hi))
  for i = lo, hi do
    local record = part[i - lo + 1]
    if not record then return {'lost'} end
    if ARGV[6] == '1' then record = string.match(record, '^%d+') .. ' ' end
    room = room - #found[i] - #record -- an omitted record was read, too
    if largest > 0 and #record > largest then
      local rev = string.match(record, '^%d+')
      local length = #record - #rev - 1
      if length > largest then record = rev .. ':' .. length end
    end
    answer[#answer + 1] = found[i]
    answer[#answer + 1] = record
  end
end
if #found > limit then answer[3] = 1 end
return answer
