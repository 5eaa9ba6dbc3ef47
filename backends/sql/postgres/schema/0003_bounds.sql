-- What a row may hold: no name, number or value is ever beyond. NOT VALID: what is there
-- already is not looked at, and is reported as damaged when it is read.
ALTER TABLE tenure_namespaces ADD CONSTRAINT namespaces_bounds CHECK (
    octet_length(namespace) <= 1040 AND octet_length(store_id) <= 64 AND octet_length(incarnation) <= 64 AND
    base >= 0 AND revision >= 0) NOT VALID;
ALTER TABLE tenure_shards ADD CONSTRAINT shards_bounds CHECK (
    octet_length(namespace) <= 1040 AND octet_length(shard) <= 128 AND octet_length(session) <= 64 AND
    token > 0 AND granted_from >= 0 AND revision >= 0) NOT VALID;
ALTER TABLE tenure_items ADD CONSTRAINT items_bounds CHECK (
    octet_length(namespace) <= 1040 AND octet_length(shard) <= 128 AND octet_length(key) <= 512 AND
    octet_length(value) <= 1048576 AND version > 0) NOT VALID;
ALTER TABLE tenure_logs ADD CONSTRAINT logs_bounds CHECK (
    octet_length(namespace) <= 1040 AND octet_length(shard) <= 128 AND octet_length(cuts) <= 65536 AND
    octet_length(payloads) <= 1048576 AND first_seq > 0 AND last_seq >= first_seq AND token > 0 AND
    number > 0 AND bucket >= 0 AND position > 0) NOT VALID;
ALTER TABLE tenure_tails ADD CONSTRAINT tails_bounds CHECK (
    octet_length(namespace) <= 1040 AND bucket >= 0 AND position >= 0 AND
    (trimmed BETWEEN 0 AND position)) NOT VALID;
ALTER TABLE tenure_probes ADD CONSTRAINT probes_bounds CHECK (
    octet_length(id) <= 64 AND version > 0) NOT VALID;
ALTER TABLE tenure_rosters ADD CONSTRAINT rosters_bounds CHECK (
    octet_length(namespace) <= 1040 AND octet_length(store_id) <= 64 AND revision >= 0) NOT VALID;
ALTER TABLE tenure_nodes ADD CONSTRAINT nodes_bounds CHECK (
    octet_length(namespace) <= 1040 AND octet_length(node) <= 128 AND octet_length(session) <= 64) NOT VALID;
ALTER TABLE tenure_members ADD CONSTRAINT members_bounds CHECK (
    octet_length(namespace) <= 1040 AND octet_length(session) <= 64 AND octet_length(node) <= 128 AND
    octet_length(meta) <= 16384 AND ttl_ns > 0 AND weight >= 0 AND revision >= 0) NOT VALID;
ALTER TABLE tenure_beats ADD CONSTRAINT beats_bounds CHECK (
    octet_length(namespace) <= 1040 AND octet_length(session) <= 64 AND version > 0) NOT VALID;
ALTER TABLE tenure_departures ADD CONSTRAINT departures_bounds CHECK (
    octet_length(namespace) <= 1040 AND octet_length(session) <= 64 AND revision >= 0) NOT VALID;
