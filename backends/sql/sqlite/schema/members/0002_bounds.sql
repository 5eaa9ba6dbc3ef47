-- What a row may hold: no name, number or value is ever beyond. SQLite adds a check to a
-- table only by making the table anew. The copy leaves the checks out: what is there
-- already is reported as damaged when it is read. (Releases of SQLite before 3.43, with
-- which people look at such files, do not know octet_length.)
PRAGMA ignore_check_constraints = 1;

-- One row per namespace: a copy of its identity, and a revision that is raised
-- whenever a member joins or goes.
ALTER TABLE tenure_rosters RENAME TO tenure_rosters_unbounded;
CREATE TABLE tenure_rosters (
    namespace TEXT    NOT NULL PRIMARY KEY,
    store_id  TEXT    NOT NULL,
    revision  INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT rosters_bounds CHECK (
        length(CAST(namespace AS BLOB)) <= 1040 AND length(CAST(store_id AS BLOB)) <= 64 AND revision >= 0)
) STRICT, WITHOUT ROWID;
INSERT INTO tenure_rosters SELECT * FROM tenure_rosters_unbounded;
DROP TABLE tenure_rosters_unbounded;

-- The session that joined last under each node label. Removed when many have no member.
ALTER TABLE tenure_nodes RENAME TO tenure_nodes_unbounded;
CREATE TABLE tenure_nodes (
    namespace TEXT NOT NULL,
    node      TEXT NOT NULL,
    session   TEXT NOT NULL,
    PRIMARY KEY (namespace, node),
    CONSTRAINT nodes_bounds CHECK (
        length(CAST(namespace AS BLOB)) <= 1040 AND length(CAST(node AS BLOB)) <= 128 AND
        length(CAST(session AS BLOB)) <= 64)
) STRICT, WITHOUT ROWID;
INSERT INTO tenure_nodes SELECT * FROM tenure_nodes_unbounded;
DROP TABLE tenure_nodes_unbounded;

-- The members that are alive: a session without a row here is dead for ever.
ALTER TABLE tenure_members RENAME TO tenure_members_unbounded;
CREATE TABLE tenure_members (
    namespace TEXT    NOT NULL,
    session   TEXT    NOT NULL,
    node      TEXT    NOT NULL,
    ttl_ns    INTEGER NOT NULL, -- nanoseconds
    priority  INTEGER NOT NULL,
    weight    INTEGER NOT NULL,
    meta      TEXT    NOT NULL, -- a JSON object
    supersede INTEGER NOT NULL,
    revision  INTEGER NOT NULL, -- of the roster, when it joined
    PRIMARY KEY (namespace, session),
    CONSTRAINT members_bounds CHECK (
        length(CAST(namespace AS BLOB)) <= 1040 AND length(CAST(session AS BLOB)) <= 64 AND
        length(CAST(node AS BLOB)) <= 128 AND length(CAST(meta AS BLOB)) <= 16384 AND ttl_ns > 0 AND
        weight >= 0 AND revision >= 0)
) STRICT, WITHOUT ROWID;
INSERT INTO tenure_members SELECT * FROM tenure_members_unbounded;
DROP TABLE tenure_members_unbounded;
CREATE INDEX tenure_members_revision ON tenure_members (namespace, revision);

-- A counter per member, which its heartbeats raise.
ALTER TABLE tenure_beats RENAME TO tenure_beats_unbounded;
CREATE TABLE tenure_beats (
    namespace TEXT    NOT NULL,
    session   TEXT    NOT NULL,
    version   INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (namespace, session),
    CONSTRAINT beats_bounds CHECK (
        length(CAST(namespace AS BLOB)) <= 1040 AND length(CAST(session AS BLOB)) <= 64 AND version > 0)
) STRICT, WITHOUT ROWID;
INSERT INTO tenure_beats SELECT * FROM tenure_beats_unbounded;
DROP TABLE tenure_beats_unbounded;

-- The sessions that ended lately.
ALTER TABLE tenure_departures RENAME TO tenure_departures_unbounded;
CREATE TABLE tenure_departures (
    namespace TEXT    NOT NULL,
    session   TEXT    NOT NULL,
    revision  INTEGER NOT NULL, -- of the roster, when it ended
    PRIMARY KEY (namespace, session),
    CONSTRAINT departures_bounds CHECK (
        length(CAST(namespace AS BLOB)) <= 1040 AND length(CAST(session AS BLOB)) <= 64 AND revision >= 0)
) STRICT, WITHOUT ROWID;
INSERT INTO tenure_departures SELECT * FROM tenure_departures_unbounded;
DROP TABLE tenure_departures_unbounded;
CREATE INDEX tenure_departures_revision ON tenure_departures (namespace, revision);

PRAGMA ignore_check_constraints = 0;
