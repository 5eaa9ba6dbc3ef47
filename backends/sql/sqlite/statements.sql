-- The statements of the SQLite backend. BEGIN IMMEDIATE has taken the only write lock before any
-- statement writes, so no row needs a separate lock. CROSS JOIN makes SQLite take the list first
-- and look up each item. The driver binds an empty blob as NULL, so the statements use coalesce.
-- The writes of a batch run once for each row. Each run is only a function call, which takes half
-- the time of reading rows from JSON.

-- name: namespace_insert
INSERT OR IGNORE INTO tenure_namespaces (namespace, store_id) VALUES (:namespace, :store_id);

-- name: namespace_read namespace_lock
SELECT bounded(store_id), base, revision, trimmed, '', '' FROM tenure_namespaces WHERE namespace = :namespace;

-- name: tail_insert
INSERT OR IGNORE INTO tenure_tails (namespace, bucket) VALUES (:namespace, :bucket);

-- name: tails_move
UPDATE tenure_tails SET position = position + :count, trimmed = max(trimmed, :trimmed) WHERE namespace = :namespace AND bucket = :bucket;

-- name: shards_lock shards_claim shards_hold shards_try shards_read
SELECT s.shard, bounded(s.session), s.token, s.granted_from, s.number, s.seq, s.oldest, s.nonce, s.commit_token
FROM json_each(:shards) AS j CROSS JOIN tenure_shards AS s
WHERE s.namespace = :namespace AND s.shard = j.value;

-- name: shards_insert
INSERT INTO tenure_shards (namespace, shard, session, token, granted_from, revision, grants)
SELECT :namespace, j.value, :session, :token, :from, :revision, :note FROM json_each(:shards) AS j;

-- name: shards_grant
-- Unlike an UPDATE with a list, this statement needs only one pass. The rows exist. A history that
-- is not a text of Tenure is removed.
INSERT INTO tenure_shards (namespace, shard, session, token, granted_from, revision, grants)
SELECT :namespace, j.value, :session, :token, 0, :revision, :note FROM json_each(:shards) AS j WHERE true
ON CONFLICT (namespace, shard) DO UPDATE SET session = excluded.session, token = excluded.token,
  granted_from = CASE WHEN :from < 0 THEN token ELSE :from END, revision = excluded.revision,
  grants = substr(excluded.grants || CASE WHEN grants NOT GLOB '*[^!-~]*' THEN grants ELSE '' END, 1, 200);

-- name: shards_release
UPDATE tenure_shards SET session = '', revision = :revision,
  grants = substr(:note || CASE WHEN grants NOT GLOB '*[^!-~]*' THEN grants ELSE '' END, 1, 200)
WHERE namespace = :namespace AND shard IN (SELECT value FROM json_each(:shards));

-- name: shards_delete
DELETE FROM tenure_shards
WHERE namespace = :namespace AND shard IN (SELECT value FROM json_each(:shards));

-- name: heads_write
UPDATE tenure_shards SET number = :number, seq = :seq, oldest = :oldest, nonce = :nonce, commit_token = :token
WHERE namespace = :namespace AND shard = :shard;

-- name: items_versions
SELECT shard, key, version FROM tenure_items WHERE namespace = :namespace AND shard = :shard AND key = :key;

-- name: items_put
INSERT INTO tenure_items (namespace, shard, key, version, value)
VALUES (:namespace, :shard, :key, :version, coalesce(:bytes, x''))
ON CONFLICT (namespace, shard, key) DO UPDATE SET version = excluded.version, value = excluded.value;

-- name: items_delete
DELETE FROM tenure_items WHERE namespace = :namespace AND shard = :shard AND key = :key;

-- name: items_list
SELECT bounded(key), version, octet_length(value), CASE WHEN octet_length(value) <= :largest THEN bounded(value) END FROM tenure_items
WHERE namespace = :namespace AND shard = :shard AND key >= :low AND (:high = '' OR key < :high)
ORDER BY key LIMIT :limit;

-- name: logs_insert
INSERT INTO tenure_logs (namespace, shard, first_seq, last_seq, token, number, bucket, position, cuts, payloads)
VALUES (:namespace, :shard, :first, :last, :token, :number, :bucket,
  (SELECT t.position FROM tenure_tails AS t WHERE t.namespace = :namespace AND t.bucket = :bucket) - :back,
  :cuts, coalesce(:bytes, x''));

-- name: logs_read
SELECT bounded(shard), first_seq, last_seq, token, number, position, bounded(cuts), octet_length(payloads), bounded(payloads) FROM tenure_logs
WHERE namespace = :namespace AND shard = :shard AND last_seq > :after AND last_seq <= coalesce(
  (SELECT min(b.last_seq) FROM tenure_logs AS b WHERE b.namespace = :namespace AND b.shard = :shard AND b.last_seq >= :through),
  :through)
ORDER BY last_seq;

-- name: logs_tail
SELECT bounded(shard), first_seq, last_seq, token, number, position, bounded(cuts), octet_length(payloads), bounded(payloads) FROM tenure_logs
WHERE namespace = :namespace AND bucket = :bucket AND position > :after AND position <= coalesce(
  (SELECT min(b.position) FROM tenure_logs AS b WHERE b.namespace = :namespace AND b.bucket = :bucket AND b.position >= :through),
  :through)
ORDER BY position;

-- name: logs_positions
SELECT shard, position FROM tenure_logs WHERE namespace = :namespace AND shard = :shard AND last_seq <= :through
ORDER BY last_seq DESC LIMIT 1;

-- name: fence_touch
UPDATE tenure_shards SET token = token
WHERE namespace = :namespace AND shard = :shard AND session = :session AND token = :token
  AND EXISTS (SELECT 1 FROM tenure_namespaces WHERE namespace = :namespace AND store_id = :store_id AND base + revision >= :seen)
RETURNING token;

-- name: roster_insert
INSERT OR IGNORE INTO tenure_rosters (namespace, store_id) VALUES (:namespace, :store_id);

-- name: roster_read roster_lock
SELECT bounded(store_id), revision, '', '' FROM tenure_rosters WHERE namespace = :namespace;

-- name: nodes_delete
DELETE FROM tenure_nodes
WHERE namespace = :namespace AND node IN (SELECT value FROM json_each(:nodes));

-- name: member_hold
SELECT session FROM tenure_members WHERE namespace = :namespace AND session = :session;

-- name: member_lock
SELECT bounded(session), bounded(node), ttl_ns, priority, weight, bounded(meta), draining, updates, supersede
FROM tenure_members WHERE namespace = :namespace AND session = :session;

-- name: members_present members_hold
SELECT m.session, bounded(m.node) FROM json_each(:sessions) AS j CROSS JOIN tenure_members AS m
WHERE m.namespace = :namespace AND m.session = j.value;

-- name: members_lock beats_read
SELECT b.session, b.version FROM json_each(:sessions) AS j CROSS JOIN tenure_beats AS b
WHERE b.namespace = :namespace AND b.session = j.value;

-- name: members_delete
DELETE FROM tenure_members
WHERE namespace = :namespace AND session IN (SELECT value FROM json_each(:sessions));

-- name: beat_lock
SELECT version FROM tenure_beats WHERE namespace = :namespace AND session = :session;

-- name: beats_delete
DELETE FROM tenure_beats
WHERE namespace = :namespace AND session IN (SELECT value FROM json_each(:sessions));

-- name: departures_insert
INSERT INTO tenure_departures (namespace, session, revision)
SELECT :namespace, m.session, :revision FROM json_each(:sessions) AS j CROSS JOIN tenure_members AS m
WHERE m.namespace = :namespace AND m.session = j.value;
