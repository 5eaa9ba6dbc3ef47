-- The statements of the MySQL and MariaDB backend. Transactions are READ COMMITTED. Therefore, the
-- statement that reads the rows for a decision also locks these rows. That statement locks the rows
-- by primary key, because another index would lock other rows. A list is sent as one JSON array,
-- which the optimizer must take first (STRAIGHT_JOIN). Rows are locked in the order of the array or
-- in the order of the key. For counters, the two orders are the same.

-- name: namespace_insert
INSERT IGNORE INTO tenure_namespaces (namespace, store_id, incarnation) VALUES (:namespace, :store_id, CAST(@@global.server_id AS CHAR CHARACTER SET ascii));

-- name: namespace_read
SELECT bounded(store_id), base, revision, trimmed, bounded(incarnation), CAST(@@global.server_id AS CHAR CHARACTER SET ascii)
FROM tenure_namespaces WHERE namespace = :namespace;

-- name: namespace_lock
SELECT bounded(store_id), base, revision, trimmed, bounded(incarnation), CAST(@@global.server_id AS CHAR CHARACTER SET ascii)
FROM tenure_namespaces WHERE namespace = :namespace FOR UPDATE;

-- name: clock_read
SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);

-- name: namespace_lift
UPDATE tenure_namespaces SET base = :base, revision = :revision, incarnation = :incarnation WHERE namespace = :namespace;

-- name: tail_insert
INSERT IGNORE INTO tenure_tails (namespace, bucket) VALUES (:namespace, :bucket);

-- name: tail_move
UPDATE tenure_tails SET position = position + :count, trimmed = greatest(trimmed, :trimmed)
WHERE namespace = :namespace AND bucket = :bucket;

-- name: tails_move
UPDATE tenure_tails FORCE INDEX (PRIMARY) SET position = position + CAST(ELT(FIELD(bucket, each(16, :bucket)), each(16, :count)) AS SIGNED),
  trimmed = greatest(trimmed, CAST(ELT(FIELD(bucket, each(16, :bucket)), each(16, :trimmed)) AS SIGNED))
WHERE namespace = :namespace AND bucket IN (each(16, :bucket));

-- name: shards_claim shards_try
SELECT s.shard, bounded(s.session), s.token, s.granted_from, s.number, s.seq, s.oldest, s.nonce, s.commit_token
FROM JSON_TABLE(:shards, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j
STRAIGHT_JOIN tenure_shards AS s FORCE INDEX (PRIMARY) ON s.namespace = :namespace AND s.shard = j.name FOR UPDATE SKIP LOCKED;

-- name: shards_lock shards_hold
SELECT s.shard, bounded(s.session), s.token, s.granted_from, s.number, s.seq, s.oldest, s.nonce, s.commit_token
FROM JSON_TABLE(:shards, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j
STRAIGHT_JOIN tenure_shards AS s FORCE INDEX (PRIMARY) ON s.namespace = :namespace AND s.shard = j.name FOR UPDATE;

-- name: shards_read
SELECT s.shard, bounded(s.session), s.token, s.granted_from, s.number, s.seq, s.oldest, s.nonce, s.commit_token
FROM JSON_TABLE(:shards, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j
STRAIGHT_JOIN tenure_shards AS s FORCE INDEX (PRIMARY) ON s.namespace = :namespace AND s.shard = j.name;

-- name: shards_insert
INSERT INTO tenure_shards (namespace, shard, session, token, granted_from, revision, grants)
SELECT :namespace, j.name, :session, :token, :from, :revision, :note
FROM JSON_TABLE(:shards, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j;

-- name: shards_grant
-- This statement is not an upsert, because MariaDB requires permission to change the primary key
-- for an upsert. The assignments are made from left to right.
UPDATE JSON_TABLE(:shards, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j
STRAIGHT_JOIN tenure_shards AS s FORCE INDEX (PRIMARY) ON s.namespace = :namespace AND s.shard = j.name
SET s.granted_from = CASE WHEN :from < 0 THEN s.token ELSE :from END, s.session = :session, s.token = :token, s.revision = :revision,
  s.grants = LEFT(CONCAT(:note, s.grants), 200);

-- name: shards_lift
-- The statement skips damaged rows, because the schema refuses any change of such rows. The
-- assignments are made from left to right.
UPDATE tenure_shards SET granted_from = token, token = :token, revision = :revision
WHERE namespace = :namespace AND token > 0 AND octet_length(session) <= 64;

-- name: shards_release
UPDATE JSON_TABLE(:shards, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j
STRAIGHT_JOIN tenure_shards AS s FORCE INDEX (PRIMARY) ON s.namespace = :namespace AND s.shard = j.name
SET s.session = '', s.revision = :revision, s.grants = LEFT(CONCAT(:note, s.grants), 200);

-- name: shards_delete
DELETE d FROM JSON_TABLE(:shards, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j
STRAIGHT_JOIN tenure_shards AS d FORCE INDEX (PRIMARY) ON d.namespace = :namespace AND d.shard = j.name;

-- name: locks_free
SELECT bounded(shard), token, revision FROM tenure_shards FORCE INDEX (PRIMARY)
WHERE namespace = :namespace AND shard >= :low AND shard < :high AND session = '' AND number = 0
ORDER BY revision DESC, shard LIMIT :limit OFFSET :keep;

-- name: owner_read
-- This statement runs in a transaction of the application, whose snapshot may be older than the
-- current owner.
SELECT bounded(session), token FROM tenure_shards WHERE namespace = :namespace AND shard = :shard LOCK IN SHARE MODE;

-- name: head_write
UPDATE tenure_shards SET number = :number, seq = :seq, oldest = :oldest, nonce = :nonce, commit_token = :token
WHERE namespace = :namespace AND shard = :shard;

-- name: heads_write
UPDATE JSON_TABLE(:rows, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]', number BIGINT PATH '$[1]',
  seq BIGINT PATH '$[2]', oldest BIGINT PATH '$[3]', nonce BIGINT PATH '$[4]', token BIGINT PATH '$[5]')) AS j
STRAIGHT_JOIN tenure_shards AS s FORCE INDEX (PRIMARY) ON s.namespace = :namespace AND s.shard = j.name
SET s.number = j.number, s.seq = j.seq, s.oldest = j.oldest, s.nonce = j.nonce, s.commit_token = j.token;

-- name: heads_few
-- This statement takes a third of the time of heads_write, because a single table needs no
-- temporary table. The time grows with the square of the number of rows.
UPDATE tenure_shards FORCE INDEX (PRIMARY) SET
  number = number + 1, commit_token = token,
  seq = ELT(FIELD(shard, each(64, :shard)), each(64, :seq)),
  oldest = ELT(FIELD(shard, each(64, :shard)), each(64, :oldest)),
  nonce = ELT(FIELD(shard, each(64, :shard)), each(64, :nonce))
WHERE namespace = :namespace AND shard IN (each(64, :shard));

-- name: items_versions
SELECT i.shard, i.`key`, i.version FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
  name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]', item VARCHAR(512) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]')) AS j
STRAIGHT_JOIN tenure_items AS i FORCE INDEX (PRIMARY) ON i.namespace = :namespace AND i.shard = j.name AND i.`key` = j.item;

-- name: items_put
INSERT INTO tenure_items (namespace, shard, `key`, version, value)
SELECT :namespace, j.name, j.item, j.version, FROM_BASE64(j.bytes)
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]',
  item VARCHAR(512) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]', version BIGINT PATH '$[2]',
  bytes LONGTEXT CHARACTER SET ascii PATH '$[3]')) AS j
WHERE true -- or ON would belong to the join
ON DUPLICATE KEY UPDATE version = VALUES(version), value = VALUES(value);

-- name: items_delete
DELETE i FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
  name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]', item VARCHAR(512) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]')) AS j
STRAIGHT_JOIN tenure_items AS i FORCE INDEX (PRIMARY) ON i.namespace = :namespace AND i.shard = j.name AND i.`key` = j.item;

-- name: item_read
SELECT version, octet_length(value), bounded(value) FROM tenure_items WHERE namespace = :namespace AND shard = :shard AND `key` = :key;

-- name: items_list
SELECT bounded(`key`), version, octet_length(value), CASE WHEN octet_length(value) <= :largest THEN bounded(value) END FROM tenure_items
WHERE namespace = :namespace AND shard = :shard AND `key` >= :low AND (:high = '' OR `key` < :high)
ORDER BY `key` LIMIT :limit;

-- name: log_insert
INSERT INTO tenure_logs (namespace, shard, first_seq, last_seq, token, number, bucket, position, cuts, payloads)
VALUES (:namespace, :shard, :first, :last, :token, :number, :bucket,
  (SELECT t.position FROM tenure_tails AS t WHERE t.namespace = :namespace AND t.bucket = :bucket) - :back, :cuts, :bytes);

-- name: logs_insert
INSERT INTO tenure_logs (namespace, shard, first_seq, last_seq, token, number, bucket, position, cuts, payloads)
SELECT :namespace, j.name, j.first, j.last, j.token, j.number, j.bucket,
  (SELECT t.position FROM tenure_tails AS t WHERE t.namespace = :namespace AND t.bucket = j.bucket) - j.back,
  j.cuts, FROM_BASE64(j.bytes)
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]',
  first BIGINT PATH '$[1]', last BIGINT PATH '$[2]', token BIGINT PATH '$[3]', number BIGINT PATH '$[4]', bucket INT PATH '$[5]',
  back BIGINT PATH '$[6]', cuts MEDIUMTEXT CHARACTER SET ascii COLLATE ascii_bin PATH '$[7]',
  bytes LONGTEXT CHARACTER SET ascii PATH '$[8]')) AS j;

-- name: logs_read
-- The result ends with the row whose payloads exceed the limit, because the server would otherwise
-- send all requested rows, even if the reader does not need them. If the payloads do not end at the
-- last cut, they are not sent.
SELECT bounded(l.shard), l.first_seq, l.last_seq, l.token, l.number, l.position, bounded(l.cuts), octet_length(l.payloads),
  CASE WHEN octet_length(l.payloads) = r.ends THEN bounded(l.payloads) END FROM (
  SELECT last_seq, ends, sum(ends + width) OVER (ORDER BY last_seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier FROM (
    SELECT a.last_seq, octet_length(a.cuts) AS width,
      least(CAST(SUBSTRING_INDEX(TRIM(TRAILING ']' FROM bounded(a.cuts)), ',', -1) AS UNSIGNED), 16777216) AS ends FROM tenure_logs AS a
    WHERE a.namespace = :namespace AND a.shard = :shard AND a.last_seq > :after AND a.last_seq <= coalesce(
      (SELECT min(b.last_seq) FROM tenure_logs AS b WHERE b.namespace = :namespace AND b.shard = :shard AND b.last_seq >= :through),
      :through)
    ORDER BY a.last_seq LIMIT 1024) AS few) AS r
STRAIGHT_JOIN tenure_logs AS l FORCE INDEX (PRIMARY) ON l.namespace = :namespace AND l.shard = :shard AND l.last_seq = r.last_seq
WHERE r.earlier IS NULL OR r.earlier < :bytes
ORDER BY l.last_seq;

-- name: logs_tail
SELECT bounded(l.shard), l.first_seq, l.last_seq, l.token, l.number, l.position, bounded(l.cuts), octet_length(l.payloads),
  CASE WHEN octet_length(l.payloads) = r.ends THEN bounded(l.payloads) END FROM (
  SELECT shard, last_seq, position, ends, sum(ends + width) OVER (ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier FROM (
    SELECT a.shard, a.last_seq, a.position, octet_length(a.cuts) AS width,
      least(CAST(SUBSTRING_INDEX(TRIM(TRAILING ']' FROM bounded(a.cuts)), ',', -1) AS UNSIGNED), 16777216) AS ends FROM tenure_logs AS a
    WHERE a.namespace = :namespace AND a.bucket = :bucket AND a.position > :after AND a.position <= coalesce(
      (SELECT min(b.position) FROM tenure_logs AS b WHERE b.namespace = :namespace AND b.bucket = :bucket AND b.position >= :through),
      :through)
    ORDER BY a.position LIMIT 1024) AS few) AS r
STRAIGHT_JOIN tenure_logs AS l FORCE INDEX (PRIMARY) ON l.namespace = :namespace AND l.shard = r.shard AND l.last_seq = r.last_seq
WHERE r.earlier IS NULL OR r.earlier < :bytes
ORDER BY r.position;

-- name: logs_positions
-- This statement and the next statement run once for each shard, because a join would read the
-- whole log of a shard.
SELECT shard, position FROM tenure_logs WHERE namespace = :namespace AND shard = :shard AND last_seq <= :through
ORDER BY last_seq DESC LIMIT 1;

-- name: fence_touch
SELECT s.token FROM tenure_shards AS s
WHERE s.namespace = :namespace AND s.shard = :shard AND s.session = :session AND s.token = :token
  AND EXISTS (SELECT 1 FROM tenure_namespaces AS n WHERE n.namespace = :namespace AND n.store_id = :store_id
    AND n.incarnation = CAST(@@global.server_id AS CHAR CHARACTER SET ascii) AND n.base + n.revision >= :seen)
LOCK IN SHARE MODE;

-- name: fence_change
UPDATE tenure_shards SET touched = touched + 1
WHERE namespace = :namespace AND shard = :shard AND session = :session AND token = :token;

-- name: barrier_write
-- Commits are visible before they are in the redo log. This commit is acknowledged when the redo
-- log contains this commit and all earlier commits.
UPDATE tenure_probes SET version = version % 1000000 + 1 WHERE id = :id;

-- name: barrier_insert
INSERT IGNORE INTO tenure_probes (id, version) VALUES (:id, 1);

-- name: roster_insert
INSERT IGNORE INTO tenure_rosters (namespace, store_id) VALUES (:namespace, :store_id);

-- name: roster_read
SELECT bounded(store_id), revision, COALESCE((SELECT bounded(n.incarnation) FROM tenure_namespaces AS n WHERE n.namespace = :namespace), ''),
  CAST(@@global.server_id AS CHAR CHARACTER SET ascii)
FROM tenure_rosters WHERE namespace = :namespace;

-- name: roster_lock
SELECT bounded(store_id), revision, COALESCE((SELECT bounded(n.incarnation) FROM tenure_namespaces AS n WHERE n.namespace = :namespace), ''),
  CAST(@@global.server_id AS CHAR CHARACTER SET ascii)
FROM tenure_rosters WHERE namespace = :namespace FOR UPDATE;

-- name: node_write
INSERT INTO tenure_nodes (namespace, node, session) VALUES (:namespace, :node, :session)
ON DUPLICATE KEY UPDATE session = VALUES(session);

-- name: nodes_delete
DELETE d FROM JSON_TABLE(:nodes, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j
STRAIGHT_JOIN tenure_nodes AS d FORCE INDEX (PRIMARY) ON d.namespace = :namespace AND d.node = j.name;

-- name: member_hold
SELECT session FROM tenure_members WHERE namespace = :namespace AND session = :session LOCK IN SHARE MODE;

-- name: members_hold
SELECT m.session, bounded(m.node) FROM JSON_TABLE(:sessions, '$[*]' COLUMNS (name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j
STRAIGHT_JOIN tenure_members AS m FORCE INDEX (PRIMARY) ON m.namespace = :namespace AND m.session = j.name LOCK IN SHARE MODE;

-- name: members_change
UPDATE JSON_TABLE(:sessions, '$[*]' COLUMNS (name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j
STRAIGHT_JOIN tenure_members AS m FORCE INDEX (PRIMARY) ON m.namespace = :namespace AND m.session = j.name
SET m.touched = m.touched + 1;

-- name: member_lock
SELECT bounded(session), bounded(node), ttl_ns, priority, weight, bounded(meta), draining, updates, supersede
FROM tenure_members WHERE namespace = :namespace AND session = :session FOR UPDATE SKIP LOCKED;

-- name: members_present
SELECT m.session, bounded(m.node) FROM JSON_TABLE(:sessions, '$[*]' COLUMNS (name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j
STRAIGHT_JOIN tenure_members AS m FORCE INDEX (PRIMARY) ON m.namespace = :namespace AND m.session = j.name;

-- name: members_lock
SELECT m.session, b.version FROM JSON_TABLE(:sessions, '$[*]' COLUMNS (name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j
STRAIGHT_JOIN tenure_members AS m FORCE INDEX (PRIMARY) ON m.namespace = :namespace AND m.session = j.name
STRAIGHT_JOIN tenure_beats AS b FORCE INDEX (PRIMARY) ON b.namespace = :namespace AND b.session = j.name
FOR UPDATE SKIP LOCKED;

-- name: members_delete
DELETE d FROM JSON_TABLE(:sessions, '$[*]' COLUMNS (name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j
STRAIGHT_JOIN tenure_members AS d FORCE INDEX (PRIMARY) ON d.namespace = :namespace AND d.session = j.name;

-- name: beat_try
SELECT version FROM tenure_beats WHERE namespace = :namespace AND session = :session FOR UPDATE SKIP LOCKED;

-- name: beat_lock
SELECT version FROM tenure_beats WHERE namespace = :namespace AND session = :session FOR UPDATE;

-- name: beats_lift
UPDATE tenure_beats SET version = version + :by WHERE namespace = :namespace AND version BETWEEN 1 AND 4611686018427387904;

-- name: beats_read
SELECT b.session, b.version FROM JSON_TABLE(:sessions, '$[*]' COLUMNS (name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j
STRAIGHT_JOIN tenure_beats AS b FORCE INDEX (PRIMARY) ON b.namespace = :namespace AND b.session = j.name;

-- name: look_read
SELECT bounded(n.store_id), n.base, n.revision, n.trimmed, bounded(n.incarnation), CAST(@@global.server_id AS CHAR CHARACTER SET ascii),
  bounded(r.store_id), r.revision, COALESCE(b.session, ''), COALESCE(b.version, 0)
FROM tenure_namespaces AS n STRAIGHT_JOIN tenure_rosters AS r ON r.namespace = n.namespace
LEFT JOIN JSON_TABLE(:sessions, '$[*]' COLUMNS (name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j ON TRUE
LEFT JOIN tenure_beats AS b FORCE INDEX (PRIMARY) ON b.namespace = :namespace AND b.session = j.name
WHERE n.namespace = :namespace;

-- name: beats_delete
DELETE d FROM JSON_TABLE(:sessions, '$[*]' COLUMNS (name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j
STRAIGHT_JOIN tenure_beats AS d FORCE INDEX (PRIMARY) ON d.namespace = :namespace AND d.session = j.name;

-- name: departures_insert
INSERT INTO tenure_departures (namespace, session, revision)
SELECT m.namespace, m.session, :revision FROM JSON_TABLE(:sessions, '$[*]' COLUMNS (name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j
STRAIGHT_JOIN tenure_members AS m FORCE INDEX (PRIMARY) ON m.namespace = :namespace AND m.session = j.name;
