-- The statements of the PostgreSQL backend. Transactions are READ COMMITTED. Therefore, the
-- statement that reads the rows for a decision also locks these rows. A list is sent as one JSON
-- array. A sub-select for each item (LATERAL) makes the planner look up each item by primary key,
-- in the order of the list, regardless of its estimates of table sizes. A clause prevents the
-- planner from merging the sub-select. ctid names the rows that were found. The statements with =
-- ANY are for few rows. {incarnation} distinguishes one history of the server from another.

-- name: namespace_insert
INSERT INTO tenure_namespaces (namespace, store_id, incarnation) VALUES (:namespace, :store_id, {incarnation})
ON CONFLICT DO NOTHING;

-- name: namespace_read
SELECT bounded(store_id), base, revision, trimmed, bounded(incarnation), {incarnation} FROM tenure_namespaces WHERE namespace = :namespace;

-- name: namespace_lock
SELECT bounded(store_id), base, revision, trimmed,
  bounded(incarnation), {incarnation} FROM tenure_namespaces WHERE namespace = :namespace FOR NO KEY UPDATE;

-- name: clock_read
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- name: namespace_lift
UPDATE tenure_namespaces SET base = :base::bigint, revision = :revision::bigint, incarnation = :incarnation::text
WHERE namespace = :namespace;

-- name: tail_insert
INSERT INTO tenure_tails (namespace, bucket) VALUES (:namespace, :bucket::integer)
ON CONFLICT DO NOTHING;

-- name: tails_lock
SELECT FROM jsonb_array_elements(:rows::jsonb) AS j CROSS JOIN LATERAL (
  SELECT FROM tenure_tails AS r WHERE r.namespace = :namespace AND r.bucket = (j ->> 0)::integer FOR NO KEY UPDATE) AS s;

-- name: tails_move
UPDATE tenure_tails AS t SET position = t.position + (j ->> 1)::bigint, trimmed = greatest(t.trimmed, (j ->> 2)::bigint)
FROM jsonb_array_elements(:rows::jsonb) AS j
WHERE t.namespace = :namespace AND t.bucket = (j ->> 0)::integer;

-- name: shards_claim
SELECT s.shard, bounded(s.session), s.token, s.granted_from, s.number, s.seq, s.oldest, s.nonce, s.commit_token
FROM jsonb_array_elements_text(:shards::jsonb) AS j CROSS JOIN LATERAL (
  SELECT * FROM tenure_shards AS r WHERE r.namespace = :namespace AND r.shard = j FOR UPDATE SKIP LOCKED) AS s;

-- name: shards_lock
SELECT s.shard, bounded(s.session), s.token, s.granted_from, s.number, s.seq, s.oldest, s.nonce, s.commit_token
FROM jsonb_array_elements_text(:shards::jsonb) AS j CROSS JOIN LATERAL (
  SELECT * FROM tenure_shards AS r WHERE r.namespace = :namespace AND r.shard = j FOR UPDATE) AS s;

-- name: shards_hold
SELECT s.shard, bounded(s.session), s.token, s.granted_from, s.number, s.seq, s.oldest, s.nonce, s.commit_token
FROM jsonb_array_elements_text(:shards::jsonb) AS j CROSS JOIN LATERAL (
  SELECT * FROM tenure_shards AS r WHERE r.namespace = :namespace AND r.shard = j FOR NO KEY UPDATE) AS s;

-- name: shards_try
SELECT s.shard, bounded(s.session), s.token, s.granted_from, s.number, s.seq, s.oldest, s.nonce, s.commit_token
FROM jsonb_array_elements_text(:shards::jsonb) AS j CROSS JOIN LATERAL (
  SELECT * FROM tenure_shards AS r WHERE r.namespace = :namespace AND r.shard = j FOR NO KEY UPDATE SKIP LOCKED) AS s;

-- name: shards_read
SELECT s.shard, bounded(s.session), s.token, s.granted_from, s.number, s.seq, s.oldest, s.nonce, s.commit_token
FROM jsonb_array_elements_text(:shards::jsonb) AS j CROSS JOIN LATERAL (
  SELECT * FROM tenure_shards AS r WHERE r.namespace = :namespace AND r.shard = j OFFSET 0) AS s;

-- name: shards_insert
INSERT INTO tenure_shards (namespace, shard, session, token, granted_from, revision, grants)
SELECT :namespace::text, j, :session::text, :token::bigint, :from::bigint, :revision::bigint, :note::text
FROM jsonb_array_elements_text(:shards::jsonb) AS j;

-- name: shards_grant
UPDATE tenure_shards SET session = :session::text, token = :token::bigint,
  granted_from = CASE WHEN :from::bigint < 0 THEN token ELSE :from::bigint END, revision = :revision::bigint,
  grants = left(:note::text || CASE WHEN octet_length(grants) <= 200 AND grants ~ '^[!-~]*$' THEN grants ELSE '' END, 200)
WHERE ctid = ANY (ARRAY(SELECT k.ctid FROM jsonb_array_elements_text(:shards::jsonb) AS j CROSS JOIN LATERAL (
  SELECT r.ctid FROM tenure_shards AS r WHERE r.namespace = :namespace AND r.shard = j OFFSET 0) AS k));

-- name: shards_lift
-- The statement skips damaged rows, because the schema refuses any change of such rows.
UPDATE tenure_shards SET granted_from = token, token = :token::bigint, revision = :revision::bigint
WHERE namespace = :namespace AND token > 0 AND octet_length(session) <= 64;

-- name: shards_release
UPDATE tenure_shards SET session = '', revision = :revision::bigint,
  grants = left(:note::text || CASE WHEN octet_length(grants) <= 200 AND grants ~ '^[!-~]*$' THEN grants ELSE '' END, 200)
WHERE ctid = ANY (ARRAY(SELECT k.ctid FROM jsonb_array_elements_text(:shards::jsonb) AS j CROSS JOIN LATERAL (
  SELECT r.ctid FROM tenure_shards AS r WHERE r.namespace = :namespace AND r.shard = j OFFSET 0) AS k));

-- name: shards_delete
DELETE FROM tenure_shards
WHERE ctid = ANY (ARRAY(SELECT k.ctid FROM jsonb_array_elements_text(:shards::jsonb) AS j CROSS JOIN LATERAL (
  SELECT r.ctid FROM tenure_shards AS r WHERE r.namespace = :namespace AND r.shard = j OFFSET 0) AS k));

-- name: heads_write
-- The rows exist. An INSERT looks up each row by primary key, regardless of the estimates of the
-- planner.
INSERT INTO tenure_shards AS s (namespace, shard, session, token, granted_from, revision, number, seq, oldest, nonce, commit_token)
SELECT :namespace::text, j ->> 0, '', 1, 0, 0, (j ->> 1)::bigint, (j ->> 2)::bigint, (j ->> 3)::bigint, (j ->> 4)::bigint, (j ->> 5)::bigint
FROM jsonb_array_elements(:rows::jsonb) AS j
ON CONFLICT (namespace, shard) DO UPDATE SET number = excluded.number, seq = excluded.seq, oldest = excluded.oldest,
  nonce = excluded.nonce, commit_token = excluded.commit_token;

-- name: items_versions
SELECT s.shard, s.key, s.version
FROM jsonb_array_elements(:rows::jsonb) AS j CROSS JOIN LATERAL (
  SELECT * FROM tenure_items AS r WHERE r.namespace = :namespace AND r.shard = j ->> 0 AND r.key = j ->> 1 OFFSET 0) AS s;

-- name: items_put
INSERT INTO tenure_items (namespace, shard, key, version, value)
SELECT :namespace::text, j ->> 0, j ->> 1, (j ->> 2)::bigint, decode(j ->> 3, 'base64')
FROM jsonb_array_elements(:rows::jsonb) AS j
ON CONFLICT (namespace, shard, key) DO UPDATE SET version = excluded.version, value = excluded.value;

-- name: items_delete
DELETE FROM tenure_items
WHERE ctid = ANY (ARRAY(SELECT k.ctid FROM jsonb_array_elements(:rows::jsonb) AS j CROSS JOIN LATERAL (
  SELECT r.ctid FROM tenure_items AS r WHERE r.namespace = :namespace AND r.shard = j ->> 0 AND r.key = j ->> 1 OFFSET 0) AS k));

-- name: items_list
SELECT bounded(key), version, octet_length(value), CASE WHEN octet_length(value) <= :largest::bigint THEN bounded(value) END FROM tenure_items
WHERE namespace = :namespace AND shard = :shard AND key >= :low AND (:high::text = '' OR key < :high::text)
ORDER BY key LIMIT :limit::bigint;

-- name: logs_insert
INSERT INTO tenure_logs (namespace, shard, first_seq, last_seq, token, number, bucket, position, cuts, payloads)
SELECT :namespace::text, j ->> 0, (j ->> 1)::bigint, (j ->> 2)::bigint, (j ->> 3)::bigint, (j ->> 4)::bigint, (j ->> 5)::integer,
  t.position - (j ->> 6)::bigint, j ->> 7, decode(j ->> 8, 'base64')
FROM jsonb_array_elements(:rows::jsonb) AS j LEFT JOIN tenure_tails AS t ON t.namespace = :namespace AND t.bucket = (j ->> 5)::integer;

-- name: log_append
-- The conditions on the shard are part of the UPDATE, which checks them again if it had to wait for
-- the row. A sub-select would keep the values that it saw before the wait (F1). The tail counter is
-- locked after the shard. Without a counter, the position is NULL and the statement fails.
WITH ns AS (
  SELECT base + revision AS floor FROM tenure_namespaces
  WHERE namespace = :namespace AND store_id = :store_id AND {incarnation} IN (incarnation, '')
), held AS (
  UPDATE tenure_shards SET number = :number::bigint, seq = seq + :count::bigint, oldest = greatest(oldest, 1),
    nonce = :nonce::bigint, commit_token = :token::bigint
  WHERE namespace = :namespace AND shard = :shard AND session = :session AND token = :token::bigint
    AND number = :number::bigint - 1 AND (SELECT floor FROM ns) >= :seen::bigint
    AND (number = 0 AND seq = 0 AND oldest = 0 OR
      seq BETWEEN 0 AND 4611686018427387904 AND oldest BETWEEN 1 AND seq + 1 AND commit_token > 0 AND nonce <> 0)
  RETURNING seq, oldest
), tail AS (
  UPDATE tenure_tails SET position = position + :count::bigint
  WHERE namespace = :namespace AND bucket = :bucket::integer AND EXISTS (SELECT FROM held)
  RETURNING position
), entry AS (
  INSERT INTO tenure_logs (namespace, shard, first_seq, last_seq, token, number, bucket, position, cuts, payloads)
  SELECT :namespace::text, :shard::text, h.seq - :count::bigint + 1, h.seq, :token::bigint, :number::bigint,
    :bucket::integer, t.position, :cuts::text, :payloads::bytea
  FROM held AS h LEFT JOIN tail AS t ON true
)
SELECT ns.floor, held.seq, held.oldest FROM ns CROSS JOIN held;

-- name: logs_append
-- INSERT looks up each row by primary key, regardless of the estimates of the planner. DO UPDATE
-- checks its conditions again if it had to wait (F1). The tail counters are locked after all
-- shards. A shard without a row gets a row with revision 0. With that revision, or without a
-- counter, the position is NULL and the statement fails. Only the wait for shards is limited.
WITH ns AS (
  SELECT base + revision AS floor, set_config('lock_timeout', :patience::text, true) FROM tenure_namespaces
  WHERE namespace = :namespace AND store_id = :store_id AND {incarnation} IN (incarnation, '') AND base + revision >= :seen::bigint
), held AS (
  INSERT INTO tenure_shards AS s (namespace, shard, session, token, granted_from, revision, number, seq, nonce)
  SELECT :namespace::text, u.shard, u.session, u.token, 0, 0, u.number, u.count, u.nonce
  FROM ns CROSS JOIN unnest(
      :shards::text[], :sessions::text[], :tokens::bigint[], :numbers::bigint[], :nonces::bigint[], :counts::bigint[])
    AS u (shard, session, token, number, nonce, count)
  ON CONFLICT (namespace, shard) DO UPDATE SET number = excluded.number, seq = s.seq + excluded.seq, oldest = greatest(s.oldest, 1),
    nonce = excluded.nonce, commit_token = excluded.token
  WHERE s.session = excluded.session AND s.token = excluded.token AND s.number = excluded.number - 1
    AND (s.number = 0 AND s.seq = 0 AND s.oldest = 0 OR
      s.seq BETWEEN 0 AND 4611686018427387904 AND s.oldest BETWEEN 1 AND s.seq + 1 AND s.commit_token > 0 AND s.nonce <> 0)
  RETURNING shard, seq, oldest, revision
), tail AS (
  INSERT INTO tenure_tails AS t (namespace, bucket, position)
  SELECT :namespace::text, u.bucket, u.count FROM unnest(:buckets::integer[], :totals::bigint[]) AS u (bucket, count) CROSS JOIN LATERAL (
    SELECT FROM tenure_tails AS r WHERE r.namespace = :namespace AND r.bucket = u.bucket OFFSET 0) AS k
  WHERE CASE WHEN (SELECT count(*) FROM held) > 0 THEN set_config('lock_timeout', '0', true) = '0' END
  ON CONFLICT (namespace, bucket) DO UPDATE SET position = t.position + excluded.position
  RETURNING bucket, position
), entry AS (
  INSERT INTO tenure_logs (namespace, shard, first_seq, last_seq, token, number, bucket, position, cuts, payloads)
  SELECT :namespace::text, u.shard, h.seq - u.count + 1, h.seq, u.token, u.number, u.bucket,
    CASE WHEN h.revision > 0 THEN t.position - u.back END, u.cuts, u.payloads
  FROM unnest(:shards::text[], :tokens::bigint[], :numbers::bigint[], :counts::bigint[], :places::integer[], :backs::bigint[],
      :cuts::text[], :payloads::bytea[])
    AS u (shard, token, number, count, bucket, back, cuts, payloads)
  JOIN held AS h USING (shard) LEFT JOIN tail AS t USING (bucket)
)
SELECT floor, shard, seq, oldest FROM ns CROSS JOIN held;

-- name: logs_read
-- The result ends with the row whose payloads exceed the limit, because the server would otherwise
-- send all requested rows, even if the reader does not need them. One surplus row costs only its
-- length.
SELECT bounded(shard), first_seq, last_seq, token, number, position, bounded(cuts), octet_length(payloads), bounded(payloads) FROM (
  SELECT *, sum(octet_length(payloads) + octet_length(cuts)) OVER (ORDER BY last_seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier
  FROM tenure_logs
  WHERE namespace = :namespace AND shard = :shard AND last_seq > :after::bigint AND last_seq <= coalesce(
    (SELECT min(b.last_seq) FROM tenure_logs AS b WHERE b.namespace = :namespace AND b.shard = :shard AND b.last_seq >= :through::bigint),
    :through::bigint)
  ORDER BY last_seq LIMIT 1024) AS r
WHERE earlier IS NULL OR earlier < :bytes::bigint
ORDER BY last_seq;

-- name: logs_tail
SELECT bounded(shard), first_seq, last_seq, token, number, position, bounded(cuts), octet_length(payloads), bounded(payloads) FROM (
  SELECT *, sum(octet_length(payloads) + octet_length(cuts)) OVER (ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier
  FROM tenure_logs
  WHERE namespace = :namespace AND bucket = :bucket::integer AND position > :after::bigint AND position <= coalesce(
    (SELECT min(b.position) FROM tenure_logs AS b WHERE b.namespace = :namespace AND b.bucket = :bucket::integer AND b.position >= :through::bigint),
    :through::bigint)
  ORDER BY position LIMIT 1024) AS r
WHERE earlier IS NULL OR earlier < :bytes::bigint
ORDER BY position;

-- name: logs_positions
SELECT j ->> 0, s.position
FROM jsonb_array_elements(:rows::jsonb) AS j CROSS JOIN LATERAL (
  SELECT r.position FROM tenure_logs AS r WHERE r.namespace = :namespace AND r.shard = j ->> 0 AND r.last_seq <= (j ->> 1)::bigint
  ORDER BY r.last_seq DESC LIMIT 1) AS s;

-- name: logs_trim
DELETE FROM tenure_logs
WHERE ctid = ANY (ARRAY(SELECT k.ctid FROM jsonb_array_elements(:rows::jsonb) AS j CROSS JOIN LATERAL (
  SELECT r.ctid FROM tenure_logs AS r WHERE r.namespace = :namespace AND r.shard = j ->> 0 AND r.last_seq <= (j ->> 1)::bigint OFFSET 0) AS k));

-- name: fence_touch
SELECT s.token FROM tenure_shards AS s
WHERE s.namespace = :namespace AND s.shard = :shard AND s.session = :session AND s.token = :token::bigint
  AND EXISTS (SELECT FROM tenure_namespaces AS n WHERE n.namespace = :namespace AND n.store_id = :store_id
    AND {incarnation} IN (n.incarnation, '') AND n.base + n.revision >= :seen::bigint)
FOR KEY SHARE OF s;

-- name: barrier_write
-- A commit is visible even if its writer stopped waiting for the standbys. This commit locks
-- nothing and leaves no row. The commit is acknowledged when the standbys have it and all earlier
-- commits.
SELECT pg_logical_emit_message(true, 'tenure', :id::text);

-- name: roster_insert
INSERT INTO tenure_rosters (namespace, store_id) VALUES (:namespace, :store_id)
ON CONFLICT DO NOTHING;

-- name: roster_read
SELECT bounded(store_id), revision, coalesce((SELECT bounded(n.incarnation) FROM tenure_namespaces AS n WHERE n.namespace = :namespace), ''), {incarnation}
FROM tenure_rosters WHERE namespace = :namespace;

-- name: roster_lock
SELECT bounded(store_id), revision, coalesce((SELECT bounded(n.incarnation) FROM tenure_namespaces AS n WHERE n.namespace = :namespace), ''), {incarnation}
FROM tenure_rosters WHERE namespace = :namespace FOR NO KEY UPDATE;

-- name: nodes_delete
DELETE FROM tenure_nodes
WHERE namespace = :namespace AND node = ANY (ARRAY(SELECT jsonb_array_elements_text(:nodes::jsonb)));

-- name: member_hold
SELECT session FROM tenure_members WHERE namespace = :namespace AND session = :session FOR KEY SHARE;

-- name: members_hold
SELECT s.session, bounded(s.node)
FROM jsonb_array_elements_text(:sessions::jsonb) AS j CROSS JOIN LATERAL (
  SELECT * FROM tenure_members AS r WHERE r.namespace = :namespace AND r.session = j FOR KEY SHARE) AS s;

-- name: member_lock
SELECT bounded(session), bounded(node), ttl_ns, priority, weight, bounded(meta), draining, updates, supersede
FROM tenure_members WHERE namespace = :namespace AND session = :session FOR NO KEY UPDATE SKIP LOCKED;

-- name: members_present
SELECT s.session, bounded(s.node)
FROM jsonb_array_elements_text(:sessions::jsonb) AS j CROSS JOIN LATERAL (
  SELECT * FROM tenure_members AS r WHERE r.namespace = :namespace AND r.session = j OFFSET 0) AS s;

-- name: members_lock
SELECT m.session, b.version FROM tenure_members AS m JOIN tenure_beats AS b USING (namespace, session)
WHERE m.namespace = :namespace AND m.session = ANY (ARRAY(SELECT jsonb_array_elements_text(:sessions::jsonb)))
ORDER BY m.session FOR UPDATE SKIP LOCKED;

-- name: members_delete
DELETE FROM tenure_members
WHERE namespace = :namespace AND session = ANY (ARRAY(SELECT jsonb_array_elements_text(:sessions::jsonb)));

-- name: beat_try
SELECT version FROM tenure_beats WHERE namespace = :namespace AND session = :session FOR NO KEY UPDATE SKIP LOCKED;

-- name: beat_lock
SELECT version FROM tenure_beats WHERE namespace = :namespace AND session = :session FOR NO KEY UPDATE;

-- name: beats_lift
UPDATE tenure_beats SET version = version + :by::bigint WHERE namespace = :namespace AND version BETWEEN 1 AND 4611686018427387904;

-- name: beats_read
SELECT s.session, s.version
FROM jsonb_array_elements_text(:sessions::jsonb) AS j CROSS JOIN LATERAL (
  SELECT * FROM tenure_beats AS r WHERE r.namespace = :namespace AND r.session = j OFFSET 0) AS s;

-- name: beats_delete
DELETE FROM tenure_beats
WHERE namespace = :namespace AND session = ANY (ARRAY(SELECT jsonb_array_elements_text(:sessions::jsonb)));

-- name: departures_insert
INSERT INTO tenure_departures (namespace, session, revision)
SELECT namespace, session, :revision::bigint FROM tenure_members
WHERE namespace = :namespace AND session = ANY (ARRAY(SELECT jsonb_array_elements_text(:sessions::jsonb)));
