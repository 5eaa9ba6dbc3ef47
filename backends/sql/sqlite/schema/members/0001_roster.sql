-- The version of these tables. One row.
CREATE TABLE tenure_schema (version INTEGER NOT NULL) STRICT;
INSERT INTO tenure_schema (version) VALUES (0);

-- One row per namespace: a copy of its identity, and a revision that is raised
-- whenever a member joins or goes.
CREATE TABLE tenure_rosters (
    namespace TEXT    NOT NULL PRIMARY KEY,
    store_id  TEXT    NOT NULL,
    revision  INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- The session that joined last under each node label. Removed when many have no member.
CREATE TABLE tenure_nodes (
    namespace TEXT NOT NULL,
    node      TEXT NOT NULL,
    session   TEXT NOT NULL,
    PRIMARY KEY (namespace, node)
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
    revision  INTEGER NOT NULL, -- of the roster, when it joined
    PRIMARY KEY (namespace, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX tenure_members_revision ON tenure_members (namespace, revision);

-- A counter per member, which its heartbeats raise.
CREATE TABLE tenure_beats (
    namespace TEXT    NOT NULL,
    session   TEXT    NOT NULL,
    version   INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (namespace, session)
) STRICT, WITHOUT ROWID;

-- The sessions that ended lately.
CREATE TABLE tenure_departures (
    namespace TEXT    NOT NULL,
    session   TEXT    NOT NULL,
    revision  INTEGER NOT NULL, -- of the roster, when it ended
    PRIMARY KEY (namespace, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX tenure_departures_revision ON tenure_departures (namespace, revision);
