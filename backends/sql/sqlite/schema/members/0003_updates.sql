-- What a member changes while it lives, beside its priority, weight and metadata: whether
-- it is draining, and the number of its latest update.
ALTER TABLE tenure_members ADD COLUMN draining INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tenure_members ADD COLUMN updates INTEGER NOT NULL DEFAULT 0 CHECK (updates >= 0);
