-- What a row may hold: no name, number or value is ever beyond. MySQL has no ADD
-- CONSTRAINT IF NOT EXISTS, and this can be repeated where it was interrupted. Its names
-- of checks are the schema's, which may hold tables of several prefixes.
SET @tenure = IF((SELECT COUNT(*) FROM information_schema.table_constraints
    WHERE CONCAT('`', table_schema, '`.', table_name) = 'tenure_namespaces' AND constraint_name = CONCAT('namespaces_bounds_', CRC32('tenure_namespaces'))) = 0,
  CONCAT('ALTER TABLE tenure_namespaces ADD CONSTRAINT namespaces_bounds_', CRC32('tenure_namespaces'), ' CHECK (
      octet_length(namespace) <= 1040 AND octet_length(store_id) <= 64 AND octet_length(incarnation) <= 64 AND
      base >= 0 AND revision >= 0)'), 'DO 0');
PREPARE tenure FROM @tenure;
EXECUTE tenure;
SET @tenure = IF((SELECT COUNT(*) FROM information_schema.table_constraints
    WHERE CONCAT('`', table_schema, '`.', table_name) = 'tenure_shards' AND constraint_name = CONCAT('shards_bounds_', CRC32('tenure_shards'))) = 0,
  CONCAT('ALTER TABLE tenure_shards ADD CONSTRAINT shards_bounds_', CRC32('tenure_shards'), ' CHECK (
      octet_length(namespace) <= 1040 AND octet_length(shard) <= 128 AND octet_length(session) <= 64 AND
      token > 0 AND granted_from >= 0 AND revision >= 0)'), 'DO 0');
PREPARE tenure FROM @tenure;
EXECUTE tenure;
SET @tenure = IF((SELECT COUNT(*) FROM information_schema.table_constraints
    WHERE CONCAT('`', table_schema, '`.', table_name) = 'tenure_items' AND constraint_name = CONCAT('items_bounds_', CRC32('tenure_items'))) = 0,
  CONCAT('ALTER TABLE tenure_items ADD CONSTRAINT items_bounds_', CRC32('tenure_items'), ' CHECK (
      octet_length(namespace) <= 1040 AND octet_length(shard) <= 128 AND octet_length(`key`) <= 512 AND
      octet_length(value) <= 1048576 AND version > 0)'), 'DO 0');
PREPARE tenure FROM @tenure;
EXECUTE tenure;
SET @tenure = IF((SELECT COUNT(*) FROM information_schema.table_constraints
    WHERE CONCAT('`', table_schema, '`.', table_name) = 'tenure_logs' AND constraint_name = CONCAT('logs_bounds_', CRC32('tenure_logs'))) = 0,
  CONCAT('ALTER TABLE tenure_logs ADD CONSTRAINT logs_bounds_', CRC32('tenure_logs'), ' CHECK (
      octet_length(namespace) <= 1040 AND octet_length(shard) <= 128 AND octet_length(cuts) <= 65536 AND
      octet_length(payloads) <= 1048576 AND first_seq > 0 AND last_seq >= first_seq AND token > 0 AND
      number > 0 AND bucket >= 0 AND position > 0)'), 'DO 0');
PREPARE tenure FROM @tenure;
EXECUTE tenure;
SET @tenure = IF((SELECT COUNT(*) FROM information_schema.table_constraints
    WHERE CONCAT('`', table_schema, '`.', table_name) = 'tenure_tails' AND constraint_name = CONCAT('tails_bounds_', CRC32('tenure_tails'))) = 0,
  CONCAT('ALTER TABLE tenure_tails ADD CONSTRAINT tails_bounds_', CRC32('tenure_tails'), ' CHECK (
      octet_length(namespace) <= 1040 AND bucket >= 0 AND position >= 0 AND
      (trimmed BETWEEN 0 AND position))'), 'DO 0');
PREPARE tenure FROM @tenure;
EXECUTE tenure;
SET @tenure = IF((SELECT COUNT(*) FROM information_schema.table_constraints
    WHERE CONCAT('`', table_schema, '`.', table_name) = 'tenure_probes' AND constraint_name = CONCAT('probes_bounds_', CRC32('tenure_probes'))) = 0,
  CONCAT('ALTER TABLE tenure_probes ADD CONSTRAINT probes_bounds_', CRC32('tenure_probes'), ' CHECK (
      octet_length(id) <= 64 AND version > 0)'), 'DO 0');
PREPARE tenure FROM @tenure;
EXECUTE tenure;
SET @tenure = IF((SELECT COUNT(*) FROM information_schema.table_constraints
    WHERE CONCAT('`', table_schema, '`.', table_name) = 'tenure_rosters' AND constraint_name = CONCAT('rosters_bounds_', CRC32('tenure_rosters'))) = 0,
  CONCAT('ALTER TABLE tenure_rosters ADD CONSTRAINT rosters_bounds_', CRC32('tenure_rosters'), ' CHECK (
      octet_length(namespace) <= 1040 AND octet_length(store_id) <= 64 AND revision >= 0)'), 'DO 0');
PREPARE tenure FROM @tenure;
EXECUTE tenure;
SET @tenure = IF((SELECT COUNT(*) FROM information_schema.table_constraints
    WHERE CONCAT('`', table_schema, '`.', table_name) = 'tenure_nodes' AND constraint_name = CONCAT('nodes_bounds_', CRC32('tenure_nodes'))) = 0,
  CONCAT('ALTER TABLE tenure_nodes ADD CONSTRAINT nodes_bounds_', CRC32('tenure_nodes'), ' CHECK (
      octet_length(namespace) <= 1040 AND octet_length(node) <= 128 AND octet_length(session) <= 64)'), 'DO 0');
PREPARE tenure FROM @tenure;
EXECUTE tenure;
SET @tenure = IF((SELECT COUNT(*) FROM information_schema.table_constraints
    WHERE CONCAT('`', table_schema, '`.', table_name) = 'tenure_members' AND constraint_name = CONCAT('members_bounds_', CRC32('tenure_members'))) = 0,
  CONCAT('ALTER TABLE tenure_members ADD CONSTRAINT members_bounds_', CRC32('tenure_members'), ' CHECK (
      octet_length(namespace) <= 1040 AND octet_length(session) <= 64 AND octet_length(node) <= 128 AND
      octet_length(meta) <= 16384 AND ttl_ns > 0 AND weight >= 0 AND revision >= 0)'), 'DO 0');
PREPARE tenure FROM @tenure;
EXECUTE tenure;
SET @tenure = IF((SELECT COUNT(*) FROM information_schema.table_constraints
    WHERE CONCAT('`', table_schema, '`.', table_name) = 'tenure_beats' AND constraint_name = CONCAT('beats_bounds_', CRC32('tenure_beats'))) = 0,
  CONCAT('ALTER TABLE tenure_beats ADD CONSTRAINT beats_bounds_', CRC32('tenure_beats'), ' CHECK (
      octet_length(namespace) <= 1040 AND octet_length(session) <= 64 AND version > 0)'), 'DO 0');
PREPARE tenure FROM @tenure;
EXECUTE tenure;
SET @tenure = IF((SELECT COUNT(*) FROM information_schema.table_constraints
    WHERE CONCAT('`', table_schema, '`.', table_name) = 'tenure_departures' AND constraint_name = CONCAT('departures_bounds_', CRC32('tenure_departures'))) = 0,
  CONCAT('ALTER TABLE tenure_departures ADD CONSTRAINT departures_bounds_', CRC32('tenure_departures'), ' CHECK (
      octet_length(namespace) <= 1040 AND octet_length(session) <= 64 AND revision >= 0)'), 'DO 0');
PREPARE tenure FROM @tenure;
EXECUTE tenure;
DEALLOCATE PREPARE tenure;
