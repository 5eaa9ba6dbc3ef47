-- The checks state the limits of a row, which no valid name, number or value exceeds.

-- The version of these tables. The table has one row.
CREATE TABLE tenure_schema (version integer NOT NULL);
INSERT INTO tenure_schema (version) VALUES (0);

-- One row per namespace, which is never deleted. A token is base + revision. Each batch of
-- ownership changes raises the revision once. trimmed is the highest revision of a row that was
-- removed from tenure_shards.
CREATE TABLE tenure_namespaces (
    namespace text   COLLATE "C" NOT NULL PRIMARY KEY,
    store_id  text   COLLATE "C" NOT NULL,
    base      bigint NOT NULL DEFAULT 0,
    revision  bigint NOT NULL DEFAULT 0,
    trimmed   bigint NOT NULL DEFAULT 0,
    -- The history of the server under which the namespace was last used. The value consists of the
    -- server's system identifier and timeline.
    incarnation text COLLATE "C" NOT NULL DEFAULT '',
    CONSTRAINT namespaces_bounds CHECK (
        octet_length(namespace) <= 1040 AND octet_length(store_id) <= 64 AND octet_length(incarnation) <= 64 AND
        base >= 0 AND revision >= 0 AND trimmed >= 0)
) WITH (fillfactor = 50);

-- One row per shard, with the owner, the owner's token, and the head of the shard's commits and
-- log. A row is deleted only if the shard is a free lock without commits. If no session holds the
-- shard, session is '' and token is the token of the last lease. A session without a row in
-- tenure_members is dead.
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

-- Keys and values that were written under leases. version is the number of the shard's commit that
-- wrote the value.
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

-- The decision logs, with one row for each commit that appended entries. The row contains all
-- entries of the commit, with the numbers first_seq to last_seq. In each shard, the numbers count
-- from 1 without gaps. position orders the entries of all shards of a bucket in the order of their
-- commits. A row has the position of its last entry. The view tenure_entries shows each entry.
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
-- Compressing the payloads would take longer than writing them.
ALTER TABLE tenure_logs ALTER COLUMN payloads SET STORAGE EXTERNAL;

-- One row per entry, for human readers.
CREATE VIEW tenure_entries AS
SELECT a.namespace, a.shard, a.first_seq - 1 + c.i AS seq, a.token, a.number,
       substring(a.payloads FROM c.start + 1 FOR c.stop - c.start) AS payload
FROM tenure_logs AS a CROSS JOIN LATERAL (
  SELECT i, cut::integer AS start, lead(cut::integer) OVER (ORDER BY i) AS stop
  FROM jsonb_array_elements_text(a.cuts::jsonb) WITH ORDINALITY AS e (cut, i)) AS c
WHERE c.stop IS NOT NULL;

-- The counters from which positions are taken. trimmed is the highest position that was removed.
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

-- Scratch rows with which Open checks that the database honors conditions.
CREATE TABLE tenure_probes (
    id      text   COLLATE "C" NOT NULL PRIMARY KEY,
    version bigint NOT NULL,
    CONSTRAINT probes_bounds CHECK (
        octet_length(id) <= 64 AND version > 0)
);

-- One row per namespace, with a copy of the namespace's identity, and a revision that rises
-- whenever a member joins or leaves.
CREATE TABLE tenure_rosters (
    namespace text   COLLATE "C" NOT NULL PRIMARY KEY,
    store_id  text   COLLATE "C" NOT NULL,
    revision  bigint NOT NULL DEFAULT 0,
    CONSTRAINT rosters_bounds CHECK (
        octet_length(namespace) <= 1040 AND octet_length(store_id) <= 64 AND revision >= 0)
) WITH (fillfactor = 50);

-- The session that joined last under each node label. If many labels have no member, some of their
-- rows are removed.
CREATE TABLE tenure_nodes (
    namespace text COLLATE "C" NOT NULL,
    node      text COLLATE "C" NOT NULL,
    session   text COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, node),
    CONSTRAINT nodes_bounds CHECK (
        octet_length(namespace) <= 1040 AND octet_length(node) <= 128 AND octet_length(session) <= 64)
);

-- The live members. A session without a row in this table is permanently dead.
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

-- One counter per member, which the member's heartbeats raise. The table is narrow, its pages are
-- half filled, and it has no index on the counter. Therefore, a heartbeat changes only one page
-- (HOT).
CREATE TABLE tenure_beats (
    namespace text   COLLATE "C" NOT NULL,
    session   text   COLLATE "C" NOT NULL,
    version   bigint NOT NULL DEFAULT 1,
    PRIMARY KEY (namespace, session),
    CONSTRAINT beats_bounds CHECK (
        octet_length(namespace) <= 1040 AND octet_length(session) <= 64 AND version > 0)
) WITH (fillfactor = 50);

-- The sessions that ended recently.
CREATE TABLE tenure_departures (
    namespace text   COLLATE "C" NOT NULL,
    session   text   COLLATE "C" NOT NULL,
    revision  bigint NOT NULL, -- of the roster, when it ended
    PRIMARY KEY (namespace, session),
    CONSTRAINT departures_bounds CHECK (
        octet_length(namespace) <= 1040 AND octet_length(session) <= 64 AND revision >= 0)
);
CREATE INDEX ON tenure_departures (namespace, revision);

-- The numbers from which tokens are derived never decrease, regardless of the writer (A2). The
-- server checks the condition only if an UPDATE names the column, and commits do not name these
-- columns. The trigger runs AFTER the UPDATE, so that the row is not locked a second time.
CREATE FUNCTION tenure_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- A role that may drop the trigger may also remove a namespace.
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
-- Without its row, a shard would lose its token and its head.
CREATE TRIGGER goes BEFORE DELETE ON tenure_shards FOR EACH ROW
  WHEN (OLD.session <> '' OR OLD.number <> 0 OR NOT starts_with(OLD.shard, '_lock.')) EXECUTE FUNCTION tenure_refuse();
