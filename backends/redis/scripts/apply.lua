#!lua
-- Applies a batch of conditional transactions, in one step.
--
-- KEYS: records, names, feeds of the state, the logs and the heartbeats, then the feed of each
-- session whose heartbeat is written. ARGV: the server's history; the window of the feeds; the
-- number of names to read before the batch, and these names; the guard's conditions; the
-- transactions. Answers that the history has changed, records are lost, or the guard was refused,
-- or with the results: see answer.go.
local info = redis.call('INFO', 'replication')
if not (string.find(info, 'role:master', 1, true) and string.find(info, 'master_replid:' .. ARGV[1], 1, true)) then
  return {'history'}
end

local records, names = KEYS[1], KEYS[2]
local at = 2
local function take()
  at = at + 1
  return ARGV[at]
end
local function count() return tonumber(take()) end
local function skip(width)
  local n = count()
  at = at + n * width
end

local was, place = {}, {} -- records by their number, numbers by name
local n, own = count(), nil
for lo = 1, math.max(n, 1), 1000 do
  local hi = math.min(lo + 999, n)
  local part = redis.call('HMGET', records, 'rev', 'state', 'logs', 'beats', unpack(ARGV, at + lo, at + hi))
  own = own or part
  for i = lo, hi do
    was[i] = part[i - lo + 5]
    place[ARGV[at + i]] = i
  end
end
at = at + n

local function holds()
  local all, read = true, {}
  for i = 1, count() do
    read[i] = was[count()]
    local want = take()
    if want == '0' then
      all = all and not read[i]
    elseif want == '-1' then
      all = all and read[i]
    else
      all = all and read[i] and string.sub(read[i], 1, #want + 1) == want .. ' '
    end
  end
  return all, read
end

local all, read = holds()
if not all then return {'refused', own[1] or '0', unpack(read)} end
if not own[1] or redis.call('HLEN', records) ~= redis.call('ZCARD', names) + 5 then return {'lost'} end

-- Conditions first: no transaction writes what another one compares.
local txns, applied = {}, 0
for i = 1, count() do
  local t = {}
  t.ok = holds()
  t.ops = at
  skip(4)
  t.yes = at
  skip(1)
  t.no = at
  skip(1)
  t.prev = count()
  if t.ok then applied = applied + 1 end
  txns[i] = t
end

local rev = own[1]
if applied > 0 then rev = string.format('%.0f', tonumber(rev) + applied) end

local puts, dels, added, feeds, single = {}, {}, {}, {{}, {}, {}}, {}
local answer = {'applied', rev}
for _, t in ipairs(txns) do
  answer[#answer + 1] = t.ok and 1 or 0
  if t.prev > 0 then answer[#answer + 1] = was[t.prev] and string.match(was[t.prev], '^%d+') or '0' end
  if t.ok then
    at = t.ops
    for _ = 1, count() do
      local name, kind, feed, value = take(), take(), count(), take()
      local record = false
      if kind == 'k' then
        record = rev .. ' ' .. value
        puts[#puts + 1] = name
        puts[#puts + 1] = record
        if not (place[name] and was[place[name]]) then -- otherwise it already has its name
          added[#added + 1] = 0
          added[#added + 1] = name
        end
      else
        dels[#dels + 1] = name
      end
      if place[name] then was[place[name]] = record end
      if feed > 5 then
        single[#single + 1] = {KEYS[feed], kind, name}
        feed = 3
      end
      if feed > 0 then
        table.insert(feeds[feed], kind .. name)
      end
    end
  end
  at = t.ok and t.yes or t.no
  for _ = 1, count() do answer[#answer + 1] = was[count()] end
end
if applied == 0 then return answer end

-- A right may have been taken from the user since the namespace was opened. A script is
-- not rolled back, so all of them are checked before the first write.
for _, c in ipairs({{'HSET', records, 'x', '1'}, {'HDEL', records, 'x'}, {'ZADD', names, '0', 'x'},
  {'ZREM', names, 'x'}, {'XADD', KEYS[3], '1-0', 'c', ''}, {'DEL', KEYS[3]}}) do
  if not redis.acl_check_cmd(unpack(c)) then
    return redis.error_reply('NOPERM this user has no permissions to run the command ' .. c[1])
  end
end

-- In this order, a command that the server refuses leaves no record without its name and no change
-- unreported.
local function each(command, key, list)
  for lo = 1, #list, 1000 do redis.call(command, key, unpack(list, lo, math.min(lo + 999, #list))) end
end
local id = rev .. '-0'
local oldest = string.format('%.0f', math.max(0, tonumber(rev) - tonumber(ARGV[2])))
redis.call('HSET', records, 'rev', rev)
for i, feed in ipairs({'state', 'logs', 'beats'}) do
  local told = feeds[i]
  if #told > 0 then
    redis.call('XADD', KEYS[2 + i], 'MINID', '~', oldest, id, 'p', own[1 + i], 'c', table.concat(told, ' '))
    puts[#puts + 1] = feed
    puts[#puts + 1] = rev
  end
end
for _, one in ipairs(single) do
  if one[2] == 'k' then
    redis.call('XADD', one[1], 'MAXLEN', '1', id, 'c', 'k' .. one[3])
  else
    redis.call('DEL', one[1])
  end
end
each('ZREM', names, dels)
each('HDEL', records, dels)
each('ZADD', names, added)
each('HSET', records, puts)
return answer
