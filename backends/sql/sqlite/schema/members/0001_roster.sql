-- The checks state the limits of a row, which no valid name, number or value exceeds. The checks do
-- not use octet_length, because people also open such files with releases of SQLite before 3.43,
-- which lack this function.

-- The version of these tables. The table has one row.
CREATE TABLE tenure_schema (version INTEGER NOT NULL) STRICT;
INSERT INTO tenure_schema (version) VALUES (0);

-- One row per namespace, with a copy of the namespace's identity, and a revision that rises
-- whenever a member joins or leaves.
CREATE TABLE tenure_rosters (
    namespace TEXT    NOT NULL PRIMARY KEY,
    store_id  TEXT    NOT NULL,
    revision  INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT rosters_bounds CHECK (
        length(CAST(namespace AS BLOB)) <= 1040 AND length(CAST(store_id AS BLOB)) <= 64 AND revision >= 0)
) STRICT, WITHOUT ROWID;

-- The session that joined last under each node label. If many labels have no member, some of their
-- rows are removed.
CREATE TABLE tenure_nodes (
    namespace TEXT NOT NULL,
    node      TEXT NOT NULL,
    session   TEXT NOT NULL,
    PRIMARY KEY (namespace, node),
    CONSTRAINT nodes_bounds CHECK (
        length(CAST(namespace AS BLOB)) <= 1040 AND length(CAST(node AS BLOB)) <= 128 AND
        length(CAST(session AS BLOB)) <= 64)
) STRICT, WITHOUT ROWID;

-- The live members. A session without a row in this table is permanently dead.
CREATE TABLE tenure_members (
    namespace TEXT    NOT NULL,
    session   TEXT    NOT NULL,
    node      TEXT    NOT NULL,
    ttl_ns    INTEGER NOT NULL, -- nanoseconds
    priority  INTEGER NOT NULL,
    weight    INTEGER NOT NULL,
    meta      TEXT    NOT NULL, -- a JSON object
    supersede INTEGER NOT NULL,
    draining  INTEGER NOT NULL DEFAULT 0,
    updates   INTEGER NOT NULL DEFAULT 0, -- the number of its latest change of itself
    revision  INTEGER NOT NULL, -- of the roster, when it joined
    PRIMARY KEY (namespace, session),
    CONSTRAINT members_bounds CHECK (
        length(CAST(namespace AS BLOB)) <= 1040 AND length(CAST(session AS BLOB)) <= 64 AND
        length(CAST(node AS BLOB)) <= 128 AND length(CAST(meta AS BLOB)) <= 16384 AND ttl_ns > 0 AND
        weight >= 0 AND revision >= 0 AND updates >= 0)
) STRICT, WITHOUT ROWID;
CREATE INDEX tenure_members_revision ON tenure_members (namespace, revision);

-- One counter per member, which the member's heartbeats raise.
CREATE TABLE tenure_beats (
    namespace TEXT    NOT NULL,
    session   TEXT    NOT NULL,
    version   INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (namespace, session),
    CONSTRAINT beats_bounds CHECK (
        length(CAST(namespace AS BLOB)) <= 1040 AND length(CAST(session AS BLOB)) <= 64 AND version > 0)
) STRICT, WITHOUT ROWID;

-- The sessions that ended recently.
CREATE TABLE tenure_departures (
    namespace TEXT    NOT NULL,
    session   TEXT    NOT NULL,
    revision  INTEGER NOT NULL, -- of the roster, when it ended
    PRIMARY KEY (namespace, session),
    CONSTRAINT departures_bounds CHECK (
        length(CAST(namespace AS BLOB)) <= 1040 AND length(CAST(session AS BLOB)) <= 64 AND revision >= 0)
) STRICT, WITHOUT ROWID;
CREATE INDEX tenure_departures_revision ON tenure_departures (namespace, revision);

-- The number of transactions that changed this file, not counting heartbeats. A second file, whose
-- name ends in the name of this table, also contains the number, so that Tenure notices a lost -wal
-- file. The table has one row.
CREATE TABLE tenure_transactions (number INTEGER NOT NULL CHECK (number >= 0)) STRICT;
INSERT INTO tenure_transactions (number) VALUES (0);
