-- The checks state the limits of a row, which no valid name, number or value exceeds. The checks
-- have no names, because MySQL requires names that are unique in the database.
--
-- InnoDB keeps the statistics of these tables in memory. It would renew statistics on disk whenever
-- a tenth of a table has changed, and a heartbeat changes a tenth of a small table. During a
-- renewal, InnoDB would hold its dictionary's lock for a flush of each table, and heartbeats would
-- wait for that lock.

-- The version of these tables. The table has one row.
CREATE TABLE IF NOT EXISTS tenure_schema (
    id      INT NOT NULL PRIMARY KEY,
    version INT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC STATS_PERSISTENT = 0;
INSERT INTO tenure_schema (id, version) VALUES (1, 0) ON DUPLICATE KEY UPDATE id = id;

-- One row per namespace, which is never deleted. A token is base + revision. Each batch of
-- ownership changes raises the revision once. trimmed is the highest revision of a row that was
-- removed from tenure_shards.
CREATE TABLE IF NOT EXISTS tenure_namespaces (
    namespace VARCHAR(1040) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    store_id  VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    base      BIGINT NOT NULL DEFAULT 0,
    revision  BIGINT NOT NULL DEFAULT 0,
    trimmed   BIGINT NOT NULL DEFAULT 0,
    incarnation VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '', -- the server_id under which it was used last
    CHECK (
        octet_length(namespace) <= 1040 AND octet_length(store_id) <= 64 AND octet_length(incarnation) <= 64 AND
        base >= 0 AND revision >= 0 AND trimmed >= 0)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC STATS_PERSISTENT = 0;

-- One row per shard, with the owner, the owner's token, and the head of the shard's commits and
-- log. A row is deleted only if the shard is a free lock without commits. If no session holds the
-- shard, session is '' and token is the token of the last lease. A session without a row in
-- tenure_members is dead.
CREATE TABLE IF NOT EXISTS tenure_shards (
    namespace    VARCHAR(1040) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    shard        VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    session      VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    token        BIGINT NOT NULL,
    granted_from BIGINT NOT NULL,           -- the token before this one
    revision     BIGINT NOT NULL,           -- of the namespace, at the last change of owner
    number       BIGINT NOT NULL DEFAULT 0, -- commits so far
    seq          BIGINT NOT NULL DEFAULT 0, -- last entry of the log
    oldest       BIGINT NOT NULL DEFAULT 0, -- first entry that is left
    nonce        BIGINT NOT NULL DEFAULT 0, -- of the last commit
    commit_token BIGINT NOT NULL DEFAULT 0, -- of the lease that made the last commit
    grants       VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '', -- the last changes of owner, for people
    touched      BIGINT NOT NULL DEFAULT 0, -- raised by each fenced transaction, where the server certifies writes
    PRIMARY KEY (namespace, shard),
    INDEX revision (namespace, revision),
    CHECK (
        octet_length(namespace) <= 1040 AND octet_length(shard) <= 128 AND octet_length(session) <= 64 AND
        octet_length(grants) <= 200 AND token > 0 AND granted_from >= 0 AND revision >= 0)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC STATS_PERSISTENT = 0;

-- Keys and values that were written under leases. version is the number of the shard's commit that
-- wrote the value.
CREATE TABLE IF NOT EXISTS tenure_items (
    namespace VARCHAR(1040) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    shard     VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    `key`       VARCHAR(512) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    version   BIGINT NOT NULL,
    value     MEDIUMBLOB NOT NULL,
    PRIMARY KEY (namespace, shard, `key`),
    CHECK (
        octet_length(namespace) <= 1040 AND octet_length(shard) <= 128 AND octet_length(`key`) <= 512 AND
        octet_length(value) <= 1048576 AND version > 0)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC STATS_PERSISTENT = 0;

-- The decision logs, with one row for each commit that appended entries. The row contains all
-- entries of the commit, with the numbers first_seq to last_seq. In each shard, the numbers count
-- from 1 without gaps. position orders the entries of all shards of a bucket in the order of their
-- commits. A row has the position of its last entry. The view tenure_entries shows each entry.
CREATE TABLE IF NOT EXISTS tenure_logs (
    namespace VARCHAR(1040) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    shard     VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    first_seq BIGINT NOT NULL,
    last_seq  BIGINT NOT NULL,
    token     BIGINT NOT NULL,
    number    BIGINT NOT NULL,
    bucket    INT NOT NULL,
    position  BIGINT NOT NULL,
    cuts      MEDIUMTEXT CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- a JSON array: where each payload begins, and the last ends
    payloads  MEDIUMBLOB NOT NULL, -- one after the other
    PRIMARY KEY (namespace, shard, last_seq),
    UNIQUE INDEX position (namespace, bucket, position),
    CHECK (
        octet_length(namespace) <= 1040 AND octet_length(shard) <= 128 AND octet_length(cuts) <= 65536 AND
        octet_length(payloads) <= 1048576 AND first_seq > 0 AND last_seq >= first_seq AND token > 0 AND
        number > 0 AND bucket >= 0 AND position > 0)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC STATS_PERSISTENT = 0;

-- One row per entry, for human readers.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW tenure_entries AS
SELECT a.namespace, a.shard, a.first_seq - 1 + c.i AS seq, a.token, a.number,
       SUBSTRING(a.payloads, c.start + 1, JSON_EXTRACT(a.cuts, CONCAT('$[', c.i, ']')) - c.start) AS payload
FROM tenure_logs AS a
JOIN JSON_TABLE(a.cuts, '$[*]' COLUMNS (i FOR ORDINALITY, start INT PATH '$')) AS c ON c.i <= a.last_seq - a.first_seq + 1;

-- The counters from which positions are taken. trimmed is the highest position that was removed.
CREATE TABLE IF NOT EXISTS tenure_tails (
    namespace VARCHAR(1040) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    bucket    INT NOT NULL,
    position  BIGINT  NOT NULL DEFAULT 0,
    trimmed   BIGINT  NOT NULL DEFAULT 0,
    PRIMARY KEY (namespace, bucket),
    CHECK (
        octet_length(namespace) <= 1040 AND bucket >= 0 AND position >= 0 AND
        (trimmed BETWEEN 0 AND position))
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC STATS_PERSISTENT = 0;

-- Scratch rows with which Open checks that the database honors conditions, and at most 64 rows for
-- barriers. The backend writes a barrier's row before it returns data that it has just read.
CREATE TABLE IF NOT EXISTS tenure_probes (
    id      VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL,
    CHECK (
        octet_length(id) <= 64 AND version > 0)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC STATS_PERSISTENT = 0;

-- One row per namespace, with a copy of the namespace's identity, and a revision that rises
-- whenever a member joins or leaves.
CREATE TABLE IF NOT EXISTS tenure_rosters (
    namespace VARCHAR(1040) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    store_id  VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    revision  BIGINT NOT NULL DEFAULT 0,
    CHECK (
        octet_length(namespace) <= 1040 AND octet_length(store_id) <= 64 AND revision >= 0)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC STATS_PERSISTENT = 0;

-- The session that joined last under each node label. If many labels have no member, some of their
-- rows are removed.
CREATE TABLE IF NOT EXISTS tenure_nodes (
    namespace VARCHAR(1040) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    node      VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    session   VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    PRIMARY KEY (namespace, node),
    CHECK (
        octet_length(namespace) <= 1040 AND octet_length(node) <= 128 AND octet_length(session) <= 64)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC STATS_PERSISTENT = 0;

-- The live members. A session without a row in this table is permanently dead.
CREATE TABLE IF NOT EXISTS tenure_members (
    namespace VARCHAR(1040) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    session   VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    node      VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    ttl_ns    BIGINT  NOT NULL, -- nanoseconds
    priority  INT NOT NULL,
    weight    INT NOT NULL,
    meta      TEXT CHARACTER SET utf8mb4    NOT NULL, -- a JSON object
    supersede BOOLEAN NOT NULL,
    draining  BOOLEAN NOT NULL DEFAULT FALSE,
    updates   BIGINT  NOT NULL DEFAULT 0, -- the number of its latest change of itself
    revision  BIGINT  NOT NULL, -- of the roster, when it joined
    touched   BIGINT  NOT NULL DEFAULT 0, -- raised by each grant to it, where the server certifies writes
    PRIMARY KEY (namespace, session),
    INDEX revision (namespace, revision),
    CHECK (
        octet_length(namespace) <= 1040 AND octet_length(session) <= 64 AND octet_length(node) <= 128 AND
        octet_length(meta) <= 16384 AND ttl_ns > 0 AND weight >= 0 AND revision >= 0 AND updates >= 0)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC STATS_PERSISTENT = 0;

-- One counter per member, which the member's heartbeats raise. The table is narrow, and has no
-- index on the counter.
CREATE TABLE IF NOT EXISTS tenure_beats (
    namespace VARCHAR(1040) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    session   VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    version   BIGINT NOT NULL DEFAULT 1,
    PRIMARY KEY (namespace, session),
    CHECK (
        octet_length(namespace) <= 1040 AND octet_length(session) <= 64 AND version > 0)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC STATS_PERSISTENT = 0;

-- The sessions that ended recently.
CREATE TABLE IF NOT EXISTS tenure_departures (
    namespace VARCHAR(1040) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    session   VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    revision  BIGINT NOT NULL, -- of the roster, when it ended
    PRIMARY KEY (namespace, session),
    INDEX revision (namespace, revision),
    CHECK (
        octet_length(namespace) <= 1040 AND octet_length(session) <= 64 AND revision >= 0)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC STATS_PERSISTENT = 0;
