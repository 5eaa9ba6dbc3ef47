-- What a member changes while it lives, beside its priority, weight and metadata: whether
-- it is draining, and the number of its latest update.
SET @tenure = IF((SELECT COUNT(*) FROM information_schema.columns
    WHERE CONCAT('`', table_schema, '`.', table_name) = 'tenure_members' AND column_name = 'draining') = 0,
  'ALTER TABLE tenure_members ADD COLUMN draining BOOLEAN NOT NULL DEFAULT FALSE', 'DO 0');
PREPARE tenure FROM @tenure;
EXECUTE tenure;
SET @tenure = IF((SELECT COUNT(*) FROM information_schema.columns
    WHERE CONCAT('`', table_schema, '`.', table_name) = 'tenure_members' AND column_name = 'updates') = 0,
  'ALTER TABLE tenure_members ADD COLUMN updates BIGINT NOT NULL DEFAULT 0 CHECK (updates >= 0)', 'DO 0');
PREPARE tenure FROM @tenure;
EXECUTE tenure;
DEALLOCATE PREPARE tenure;
