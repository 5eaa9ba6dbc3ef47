-- The bounds say what a row may hold: no name, number or value is ever beyond. (Releases of
-- SQLite before 3.43, with which people look at such files, do not know octet_length.)

-- The version of these tables. One row.
CREATE TABLE tenure_schema (version INTEGER NOT NULL) STRICT;
INSERT INTO tenure_schema (version) VALUES (0);

-- One row per namespace: a copy of its identity, and a revision that is raised
-- whenever a member joins or goes.
CREATE TABLE tenure_rosters (
    namespace TEXT    NOT NULL PRIMARY KEY,
    store_id  TEXT    NOT NULL,
    revision  INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT rosters_bounds CHECK (
        length(CAST(namespace AS BLOB)) <= 1040 AND length(CAST(store_id AS BLOB)) <= 64 AND revision >= 0)
) STRICT, WITHOUT ROWID;

-- The session that joined last under each node label. Removed when many have no member.
CREATE TABLE tenure_nodes (
    namespace TEXT NOT NULL,
    node      TEXT NOT NULL,
    session   TEXT NOT NULL,
    PRIMARY KEY (namespace, node),
    CONSTRAINT nodes_bounds CHECK (
        length(CAST(namespace AS BLOB)) <= 1040 AND length(CAST(node AS BLOB)) <= 128 AND
        length(CAST(session AS BLOB)) <= 64)
) STRICT, WITHOUT ROWID;

-- The members that are alive: a session without a row here is dead for ever.
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

-- A counter per member, which its heartbeats raise.
CREATE TABLE tenure_beats (
    namespace TEXT    NOT NULL,
    session   TEXT    NOT NULL,
    version   INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (namespace, session),
    CONSTRAINT beats_bounds CHECK (
        length(CAST(namespace AS BLOB)) <= 1040 AND length(CAST(session AS BLOB)) <= 64 AND version > 0)
) STRICT, WITHOUT ROWID;

-- The sessions that ended lately.
CREATE TABLE tenure_departures (
    namespace TEXT    NOT NULL,
    session   TEXT    NOT NULL,
    revision  INTEGER NOT NULL, -- of the roster, when it ended
    PRIMARY KEY (namespace, session),
    CONSTRAINT departures_bounds CHECK (
        length(CAST(namespace AS BLOB)) <= 1040 AND length(CAST(session AS BLOB)) <= 64 AND revision >= 0)
) STRICT, WITHOUT ROWID;
CREATE INDEX tenure_departures_revision ON tenure_departures (namespace, revision);

-- How many transactions changed this file, but for heartbeats. The file beside this one with
-- the name of this table at its end has the number as well, so that a lost -wal file is noticed. One row.
CREATE TABLE tenure_transactions (number INTEGER NOT NULL CHECK (number >= 0)) STRICT;
INSERT INTO tenure_transactions (number) VALUES (0);
