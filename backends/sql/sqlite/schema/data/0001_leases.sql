-- The checks state the limits of a row, which no valid name, number or value exceeds. The checks do
-- not use octet_length, because people also open such files with releases of SQLite before 3.43,
-- which lack this function.

-- The version of these tables. The table has one row.
CREATE TABLE tenure_schema (version INTEGER NOT NULL) STRICT;
INSERT INTO tenure_schema (version) VALUES (0);

-- One row per namespace, which is never deleted. A token is base + revision. Each batch of
-- ownership changes raises the revision once. trimmed is the highest revision of a row that was
-- removed from tenure_shards.
CREATE TABLE tenure_namespaces (
    namespace TEXT    NOT NULL PRIMARY KEY,
    store_id  TEXT    NOT NULL,
    base      INTEGER NOT NULL DEFAULT 0,
    revision  INTEGER NOT NULL DEFAULT 0,
    trimmed   INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT namespaces_bounds CHECK (
        length(CAST(namespace AS BLOB)) <= 1040 AND length(CAST(store_id AS BLOB)) <= 64 AND base >= 0 AND
        revision >= 0 AND trimmed >= 0)
) STRICT, WITHOUT ROWID;

-- One row per shard, with the owner, the owner's token, and the head of the shard's commits and
-- log. A row is deleted only if the shard is a free lock without commits. If no session holds the
-- shard, session is '' and token is the token of the last lease. A session without a row in
-- tenure_members is dead.
CREATE TABLE tenure_shards (
    namespace    TEXT    NOT NULL,
    shard        TEXT    NOT NULL,
    session      TEXT    NOT NULL,
    token        INTEGER NOT NULL,
    granted_from INTEGER NOT NULL,           -- the token before this one
    revision     INTEGER NOT NULL,           -- of the namespace, at the last change of owner
    number       INTEGER NOT NULL DEFAULT 0, -- commits so far
    seq          INTEGER NOT NULL DEFAULT 0, -- last entry of the log
    oldest       INTEGER NOT NULL DEFAULT 0, -- first entry that is left
    nonce        INTEGER NOT NULL DEFAULT 0, -- of the last commit
    commit_token INTEGER NOT NULL DEFAULT 0, -- of the lease that made the last commit
    grants       TEXT    NOT NULL DEFAULT '', -- the last changes of owner, for people
    PRIMARY KEY (namespace, shard),
    CONSTRAINT shards_bounds CHECK (
        length(CAST(namespace AS BLOB)) <= 1040 AND length(CAST(shard AS BLOB)) <= 128 AND
        length(CAST(session AS BLOB)) <= 64 AND token > 0 AND granted_from >= 0 AND revision >= 0 AND
        length(CAST(grants AS BLOB)) <= 200)
) STRICT, WITHOUT ROWID;
CREATE INDEX tenure_shards_revision ON tenure_shards (namespace, revision);

-- Keys and values that were written under leases. version is the number of the shard's commit that
-- wrote the value.
CREATE TABLE tenure_items (
    namespace TEXT    NOT NULL,
    shard     TEXT    NOT NULL,
    key       TEXT    NOT NULL,
    version   INTEGER NOT NULL,
    value     BLOB    NOT NULL,
    PRIMARY KEY (namespace, shard, key),
    CONSTRAINT items_bounds CHECK (
        length(CAST(namespace AS BLOB)) <= 1040 AND length(CAST(shard AS BLOB)) <= 128 AND
        length(CAST(key AS BLOB)) <= 512 AND length(value) <= 1048576 AND version > 0)
) STRICT;

-- The decision logs, with one row for each commit that appended entries. The row contains all
-- entries of the commit, with the numbers first_seq to last_seq. In each shard, the numbers count
-- from 1 without gaps. position orders the entries of all shards of a bucket in the order of their
-- commits. A row has the position of its last entry. The view tenure_entries shows each entry.
CREATE TABLE tenure_logs (
    namespace TEXT    NOT NULL,
    shard     TEXT    NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq  INTEGER NOT NULL,
    token     INTEGER NOT NULL,
    number    INTEGER NOT NULL,
    bucket    INTEGER NOT NULL,
    position  INTEGER NOT NULL,
    cuts      TEXT    NOT NULL, -- a JSON array: where each payload begins, and the last ends
    payloads  BLOB    NOT NULL, -- one after the other
    PRIMARY KEY (namespace, shard, last_seq),
    CONSTRAINT logs_bounds CHECK (
        length(CAST(namespace AS BLOB)) <= 1040 AND length(CAST(shard AS BLOB)) <= 128 AND
        length(CAST(cuts AS BLOB)) <= 65536 AND length(payloads) <= 1048576 AND first_seq > 0 AND
        last_seq >= first_seq AND token > 0 AND number > 0 AND bucket >= 0 AND position > 0)
) STRICT;
CREATE UNIQUE INDEX tenure_logs_position ON tenure_logs (namespace, bucket, position);

-- One row per entry, for human readers.
CREATE VIEW tenure_entries AS
SELECT a.namespace, a.shard, a.first_seq + c.key AS seq, a.token, a.number,
       coalesce(substr(a.payloads, c.value + 1, (a.cuts ->> (c.key + 1)) - c.value), x'') AS payload
FROM tenure_logs AS a JOIN json_each(a.cuts) AS c ON c.key <= a.last_seq - a.first_seq;

-- The counters from which positions are taken. trimmed is the highest position that was removed.
CREATE TABLE tenure_tails (
    namespace TEXT    NOT NULL,
    bucket    INTEGER NOT NULL,
    position  INTEGER NOT NULL DEFAULT 0,
    trimmed   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (namespace, bucket),
    CONSTRAINT tails_bounds CHECK (
        length(CAST(namespace AS BLOB)) <= 1040 AND bucket >= 0 AND position >= 0 AND
        (trimmed BETWEEN 0 AND position))
) STRICT, WITHOUT ROWID;

-- Scratch rows with which Open checks that the database honors conditions.
CREATE TABLE tenure_probes (
    id      TEXT    NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    CONSTRAINT probes_bounds CHECK (
        length(CAST(id AS BLOB)) <= 64 AND version > 0)
) STRICT, WITHOUT ROWID;

-- The number of transactions that changed this file, not counting heartbeats. A second file, whose
-- name ends in the name of this table, also contains the number, so that Tenure notices a lost -wal
-- file. The table has one row.
CREATE TABLE tenure_transactions (number INTEGER NOT NULL CHECK (number >= 0)) STRICT;
INSERT INTO tenure_transactions (number) VALUES (0);
