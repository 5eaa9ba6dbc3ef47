-- The statements that are the same in every dialect. The file of a dialect adds other statements,
-- and may replace a statement of this file.

-- name: namespace_raise
UPDATE tenure_namespaces SET revision = :revision WHERE namespace = :namespace;

-- name: namespace_rebase
UPDATE tenure_namespaces SET base = :base WHERE namespace = :namespace;

-- name: namespace_trim
UPDATE tenure_namespaces SET trimmed = :trimmed WHERE namespace = :namespace;

-- name: tails_read
SELECT bucket, position, trimmed FROM tenure_tails WHERE namespace = :namespace ORDER BY bucket;

-- name: shards_all
SELECT bounded(shard), bounded(session), token FROM tenure_shards WHERE namespace = :namespace ORDER BY shard;

-- name: shards_since
SELECT bounded(shard), bounded(session), token, number, seq, oldest, nonce, commit_token FROM tenure_shards
WHERE namespace = :namespace AND revision > :revision ORDER BY revision, shard;

-- name: locks_free
SELECT bounded(shard), token, revision FROM tenure_shards
WHERE namespace = :namespace AND shard >= :low AND shard < :high AND session = '' AND number = 0
ORDER BY revision DESC, shard LIMIT :limit OFFSET :keep;

-- name: head_read
SELECT shard, number, seq, oldest, nonce, commit_token FROM tenure_shards
WHERE namespace = :namespace AND shard = :shard;

-- name: heads_all
SELECT bounded(shard), number, seq, oldest, nonce, commit_token FROM tenure_shards
WHERE namespace = :namespace AND number > 0 ORDER BY shard;

-- name: probe_insert
INSERT INTO tenure_probes (id, version) VALUES (:id, 1);

-- name: probe_update
UPDATE tenure_probes SET version = :version WHERE id = :id AND version = :seen;

-- name: probe_delete
DELETE FROM tenure_probes WHERE id = :id;

-- name: roster_raise
UPDATE tenure_rosters SET revision = :revision WHERE namespace = :namespace;

-- name: node_read
SELECT bounded(session) FROM tenure_nodes WHERE namespace = :namespace AND node = :node;

-- name: nodes_all
SELECT bounded(node) FROM tenure_nodes WHERE namespace = :namespace AND node NOT LIKE '!%' ORDER BY node;

-- name: nodes_idle
SELECT bounded(n.node) FROM tenure_nodes AS n WHERE n.namespace = :namespace AND n.node NOT LIKE '!%' AND NOT EXISTS (
  SELECT 1 FROM tenure_members AS m WHERE m.namespace = n.namespace AND m.session = n.session)
ORDER BY n.node LIMIT :limit;

-- name: member_insert
INSERT INTO tenure_members (namespace, session, node, ttl_ns, priority, weight, meta, draining, updates,
  supersede, revision)
VALUES (:namespace, :session, :node, :ttl_ns, :priority, :weight, :meta, :draining, :updates, :supersede, :revision);

-- name: member_node
SELECT bounded(node) FROM tenure_members WHERE namespace = :namespace AND session = :session;

-- name: member_update
UPDATE tenure_members SET priority = :priority, weight = :weight, meta = :meta, draining = :draining,
  updates = :updates, revision = :revision
WHERE namespace = :namespace AND session = :session;

-- name: members_all
SELECT bounded(session), bounded(node), ttl_ns, priority, weight, bounded(meta), draining, updates, supersede
FROM tenure_members WHERE namespace = :namespace ORDER BY session;

-- name: members_since
SELECT bounded(session), bounded(node), ttl_ns, priority, weight, bounded(meta), draining, updates, supersede
FROM tenure_members WHERE namespace = :namespace AND revision > :revision ORDER BY revision, session;

-- name: beat_insert
INSERT INTO tenure_beats (namespace, session) VALUES (:namespace, :session);

-- name: beat_write
UPDATE tenure_beats SET version = :version WHERE namespace = :namespace AND session = :session;

-- name: departure_read
SELECT revision FROM tenure_departures WHERE namespace = :namespace AND session = :session;

-- name: departures_since
SELECT bounded(session) FROM tenure_departures
WHERE namespace = :namespace AND revision > :revision ORDER BY revision, session;

-- name: departures_trim
DELETE FROM tenure_departures WHERE namespace = :namespace AND revision <= :revision;

-- name: owner_read
SELECT bounded(session), token FROM tenure_shards WHERE namespace = :namespace AND shard = :shard;

-- name: grants_read
SELECT bounded(grants) FROM tenure_shards WHERE namespace = :namespace AND shard = :shard;

-- name: item_read
SELECT version, octet_length(value), bounded(value) FROM tenure_items WHERE namespace = :namespace AND shard = :shard AND key = :key;

-- name: logs_trim
DELETE FROM tenure_logs WHERE namespace = :namespace AND shard = :shard AND last_seq <= :through;

-- name: node_write
INSERT INTO tenure_nodes (namespace, node, session) VALUES (:namespace, :node, :session)
ON CONFLICT (namespace, node) DO UPDATE SET session = excluded.session;
