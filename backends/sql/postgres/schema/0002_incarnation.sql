-- The server's history under which the namespace was used last: its system
-- identifier and timeline. Empty until a process that knows the column opens it.
ALTER TABLE tenure_namespaces ADD COLUMN incarnation text COLLATE "C" NOT NULL DEFAULT '';
