-- What a member changes while it lives, beside its priority, weight and metadata: whether
-- it is draining, and the number of its latest update.
ALTER TABLE tenure_members ADD COLUMN draining boolean NOT NULL DEFAULT false;
ALTER TABLE tenure_members ADD COLUMN updates bigint NOT NULL DEFAULT 0 CHECK (updates >= 0);
