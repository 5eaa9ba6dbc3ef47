-- The bounds say what a row may hold: no name, number or value is ever beyond.

-- The version of these tables. One row.
CREATE TABLE tenure_schema (version integer NOT NULL);
INSERT INTO tenure_schema (version) VALUES (0);

-- One row per namespace, never deleted. A token is base + revision; the revision
-- is raised once per batch of ownership changes. trimmed is the highest revision of a
-- row that was removed from tenure_shards.
CREATE TABLE tenure_namespaces (
    namespace text   COLLATE "C" NOT NULL PRIMARY KEY,
    store_id  text   COLLATE "C" NOT NULL,
    base      bigint NOT NULL DEFAULT 0,
    revision  bigint NOT NULL DEFAULT 0,
    trimmed   bigint NOT NULL DEFAULT 0,
    -- The server's history under which the namespace was used last: its system identifier
    -- and timeline.
    incarnation text COLLATE "C" NOT NULL DEFAULT '',
    CONSTRAINT namespaces_bounds CHECK (
        octet_length(namespace) <= 1040 AND octet_length(store_id) <= 64 AND octet_length(incarnation) <= 64 AND
        base >= 0 AND revision >= 0 AND trimmed >= 0)
) WITH (fillfactor = 50);

-- One row per shard, deleted only if it is a free lock without commits: who owns it, under which token, and the head
-- of its commits and its log. session is '' when nobody holds it, and token stays
-- that of the last lease. A session that has no row in tenure_members is dead.
CREATE TABLE tenure_shards (
    namespace    text   COLLATE "C" NOT NULL,
    shard        text   COLLATE "C" NOT NULL,
    session      text   COLLATE "C" NOT NULL,
    token        bigint NOT NULL,
    granted_from bigint NOT NULL,           -- the token before this one
    revision     bigint NOT NULL,           -- of the namespace, at the last change of owner
    number       bigint NOT NULL DEFAULT 0, -- commits so far
    seq          bigint NOT NULL DEFAULT 0, -- last entry of the log
    oldest       bigint NOT NULL DEFAULT 0, -- first entry that is left
    nonce        bigint NOT NULL DEFAULT 0, -- of the last commit
    commit_token bigint NOT NULL DEFAULT 0, -- of the lease that made the last commit
    grants       text   COLLATE "C" NOT NULL DEFAULT '', -- the last changes of owner, for people
    PRIMARY KEY (namespace, shard),
    CONSTRAINT shards_bounds CHECK (
        octet_length(namespace) <= 1040 AND octet_length(shard) <= 128 AND octet_length(session) <= 64 AND
        octet_length(grants) <= 200 AND token > 0 AND granted_from >= 0 AND revision >= 0)
) WITH (fillfactor = 70);
CREATE INDEX ON tenure_shards (namespace, revision);

-- Keys and values written under leases. version is the number of the shard's
-- commit that wrote the value.
CREATE TABLE tenure_items (
    namespace text   COLLATE "C" NOT NULL,
    shard     text   COLLATE "C" NOT NULL,
    key       text   COLLATE "C" NOT NULL,
    version   bigint NOT NULL,
    value     bytea  NOT NULL,
    PRIMARY KEY (namespace, shard, key),
    CONSTRAINT items_bounds CHECK (
        octet_length(namespace) <= 1040 AND octet_length(shard) <= 128 AND octet_length(key) <= 512 AND
        octet_length(value) <= 1048576 AND version > 0)
);

-- The decision logs: one row per commit that appended, with all its entries, whose
-- numbers are first_seq to last_seq. They count from 1 without gaps in each shard.
-- position orders the entries of all shards of a bucket as they were committed, and
-- is that of the last entry here. tenure_entries shows the entries one by one.
CREATE TABLE tenure_logs (
    namespace text    COLLATE "C" NOT NULL,
    shard     text    COLLATE "C" NOT NULL,
    first_seq bigint  NOT NULL,
    last_seq  bigint  NOT NULL,
    token     bigint  NOT NULL,
    number    bigint  NOT NULL,
    bucket    integer NOT NULL,
    position  bigint  NOT NULL,
    cuts      text    NOT NULL, -- a JSON array: where each payload begins, and the last ends
    payloads  bytea   NOT NULL, -- one after the other
    PRIMARY KEY (namespace, shard, last_seq),
    UNIQUE (namespace, bucket, position),
    CONSTRAINT logs_bounds CHECK (
        octet_length(namespace) <= 1040 AND octet_length(shard) <= 128 AND octet_length(cuts) <= 65536 AND
        octet_length(payloads) <= 1048576 AND first_seq > 0 AND last_seq >= first_seq AND token > 0 AND
        number > 0 AND bucket >= 0 AND position > 0)
);
-- Compressing them would take longer than writing them.
ALTER TABLE tenure_logs ALTER COLUMN payloads SET STORAGE EXTERNAL;

-- One row per entry, for people.
CREATE VIEW tenure_entries AS
SELECT a.namespace, a.shard, a.first_seq - 1 + c.i AS seq, a.token, a.number,
       substring(a.payloads FROM c.start + 1 FOR c.stop - c.start) AS payload
FROM tenure_logs AS a CROSS JOIN LATERAL (
  SELECT i, cut::integer AS start, lead(cut::integer) OVER (ORDER BY i) AS stop
  FROM jsonb_array_elements_text(a.cuts::jsonb) WITH ORDINALITY AS e (cut, i)) AS c
WHERE c.stop IS NOT NULL;

-- The counters behind position. trimmed is the highest position removed.
CREATE TABLE tenure_tails (
    namespace text    COLLATE "C" NOT NULL,
    bucket    integer NOT NULL,
    position  bigint  NOT NULL DEFAULT 0,
    trimmed   bigint  NOT NULL DEFAULT 0,
    PRIMARY KEY (namespace, bucket),
    CONSTRAINT tails_bounds CHECK (
        octet_length(namespace) <= 1040 AND bucket >= 0 AND position >= 0 AND
        (trimmed BETWEEN 0 AND position))
) WITH (fillfactor = 50);

-- Scratch rows by which opening proves that conditions are honoured.
CREATE TABLE tenure_probes (
    id      text   COLLATE "C" NOT NULL PRIMARY KEY,
    version bigint NOT NULL,
    CONSTRAINT probes_bounds CHECK (
        octet_length(id) <= 64 AND version > 0)
);

-- One row per namespace: a copy of its identity, and a revision that is raised
-- whenever a member joins or goes.
CREATE TABLE tenure_rosters (
    namespace text   COLLATE "C" NOT NULL PRIMARY KEY,
    store_id  text   COLLATE "C" NOT NULL,
    revision  bigint NOT NULL DEFAULT 0,
    CONSTRAINT rosters_bounds CHECK (
        octet_length(namespace) <= 1040 AND octet_length(store_id) <= 64 AND revision >= 0)
) WITH (fillfactor = 50);

-- The session that joined last under each node label. Removed when many have no member.
CREATE TABLE tenure_nodes (
    namespace text COLLATE "C" NOT NULL,
    node      text COLLATE "C" NOT NULL,
    session   text COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, node),
    CONSTRAINT nodes_bounds CHECK (
        octet_length(namespace) <= 1040 AND octet_length(node) <= 128 AND octet_length(session) <= 64)
);

-- The members that are alive: a session without a row here is dead for ever.
CREATE TABLE tenure_members (
    namespace text    COLLATE "C" NOT NULL,
    session   text    COLLATE "C" NOT NULL,
    node      text    COLLATE "C" NOT NULL,
    ttl_ns    bigint  NOT NULL, -- nanoseconds
    priority  integer NOT NULL,
    weight    integer NOT NULL,
    meta      text    NOT NULL, -- a JSON object
    supersede boolean NOT NULL,
    draining  boolean NOT NULL DEFAULT false,
    updates   bigint  NOT NULL DEFAULT 0, -- the number of its latest change of itself
    revision  bigint  NOT NULL, -- of the roster, when it joined
    PRIMARY KEY (namespace, session),
    CONSTRAINT members_bounds CHECK (
        octet_length(namespace) <= 1040 AND octet_length(session) <= 64 AND octet_length(node) <= 128 AND
        octet_length(meta) <= 16384 AND ttl_ns > 0 AND weight >= 0 AND revision >= 0 AND updates >= 0)
);
CREATE INDEX ON tenure_members (namespace, revision);

-- A counter per member, which its heartbeats raise. Narrow, half filled and
-- without an index on the counter, so that a heartbeat changes its page only (HOT).
CREATE TABLE tenure_beats (
    namespace text   COLLATE "C" NOT NULL,
    session   text   COLLATE "C" NOT NULL,
    version   bigint NOT NULL DEFAULT 1,
    PRIMARY KEY (namespace, session),
    CONSTRAINT beats_bounds CHECK (
        octet_length(namespace) <= 1040 AND octet_length(session) <= 64 AND version > 0)
) WITH (fillfactor = 50);

-- The sessions that ended lately.
CREATE TABLE tenure_departures (
    namespace text   COLLATE "C" NOT NULL,
    session   text   COLLATE "C" NOT NULL,
    revision  bigint NOT NULL, -- of the roster, when it ended
    PRIMARY KEY (namespace, session),
    CONSTRAINT departures_bounds CHECK (
        octet_length(namespace) <= 1040 AND octet_length(session) <= 64 AND revision >= 0)
);
CREATE INDEX ON tenure_departures (namespace, revision);

-- What tokens are made of never falls, whoever writes it (A2). The condition is looked
-- at where an UPDATE names the column, which commits do not; AFTER, so that the row is
-- not locked once more.
CREATE FUNCTION tenure_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- Who may drop the trigger may remove a namespace.
  IF TG_OP = 'DELETE' AND pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'MEMBER') THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'tenure: % refuses %: tokens, bases and revisions only grow, and only free locks without commits go',
    TG_TABLE_NAME, TG_OP USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER falls AFTER UPDATE OF base, revision ON tenure_namespaces FOR EACH ROW
  WHEN (NEW.base < OLD.base OR NEW.revision < OLD.revision) EXECUTE FUNCTION tenure_refuse();
CREATE TRIGGER falls AFTER UPDATE OF token ON tenure_shards FOR EACH ROW
  WHEN (NEW.token < OLD.token) EXECUTE FUNCTION tenure_refuse();
-- With its row a shard would lose its token and its head.
CREATE TRIGGER goes BEFORE DELETE ON tenure_shards FOR EACH ROW
  WHEN (OLD.session <> '' OR OLD.number <> 0 OR NOT starts_with(OLD.shard, '_lock.')) EXECUTE FUNCTION tenure_refuse();
