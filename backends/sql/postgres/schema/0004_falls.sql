-- What tokens are made of never falls, whoever writes it (A2). The condition is looked
-- at where an UPDATE names the column, which commits do not; AFTER, so that the row is
-- not locked once more.
CREATE FUNCTION tenure_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'tenure: % would fall: tokens, bases and revisions only grow', TG_TABLE_NAME
    USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER falls AFTER UPDATE OF base, revision ON tenure_namespaces FOR EACH ROW
  WHEN (NEW.base < OLD.base OR NEW.revision < OLD.revision) EXECUTE FUNCTION tenure_refuse();
CREATE TRIGGER falls AFTER UPDATE OF token ON tenure_shards FOR EACH ROW
  WHEN (NEW.token < OLD.token) EXECUTE FUNCTION tenure_refuse();
