-- The server_id under which the namespace was used last. Empty until a process that
-- knows the column opens it. MySQL has no ADD COLUMN IF NOT EXISTS, and this can be
-- repeated where it was interrupted.
SET @tenure = IF((SELECT COUNT(*) FROM information_schema.columns
    WHERE CONCAT('`', table_schema, '`.', table_name) = 'tenure_namespaces' AND column_name = 'incarnation') = 0,
  'ALTER TABLE tenure_namespaces ADD COLUMN incarnation VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT ''''', 'DO 0');
PREPARE tenure FROM @tenure;
EXECUTE tenure;
DEALLOCATE PREPARE tenure;
