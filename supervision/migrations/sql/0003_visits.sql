-- Visits are append-only like the log, with its two doors; they leave whole, with the task of their run.

ALTER TABLE supervision_pointer SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

CREATE FUNCTION supervision_refuse_visit_update_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    after_text supervision_visit := NEW;
BEGIN
    IF EXISTS (SELECT 1 FROM supervision_erasure e WHERE e.task_id = OLD.run_id)
       AND NEW.errors IN (OLD.errors, '[erased]') AND NEW.note IN (OLD.note, '[erased]')
    THEN
        after_text.errors := OLD.errors;
        after_text.note := OLD.note;
        IF after_text IS NOT DISTINCT FROM OLD THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'supervision: visits are append-only'
        USING ERRCODE = 'restrict_violation',
              HINT = 'Personal data is erased by supervision.kernel.retention.erase(), and in no other way.';
END $$;

CREATE TRIGGER supervision_visit_no_update BEFORE UPDATE ON supervision_visit
    FOR EACH ROW EXECUTE FUNCTION supervision_refuse_visit_update_v1();

CREATE FUNCTION supervision_refuse_visit_delete_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM supervision_tombstone t WHERE t.task_id = OLD.run_id) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'supervision: visits are append-only'
        USING ERRCODE = 'restrict_violation',
              HINT = 'Old runs are removed whole by supervision.kernel.retention.prune(), and in no other way.';
END $$;

CREATE TRIGGER supervision_visit_no_delete BEFORE DELETE ON supervision_visit
    FOR EACH ROW EXECUTE FUNCTION supervision_refuse_visit_delete_v1();

CREATE FUNCTION supervision_refuse_visit_truncate_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM supervision_visit) THEN
        RAISE EXCEPTION 'supervision: visits are append-only and there are some, so they can''t be truncated'
            USING ERRCODE = 'restrict_violation',
                  HINT = 'In a test-suite, add supervision.testing.PruneBeforeFlush to the TransactionTestCase.';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER supervision_visit_no_truncate BEFORE TRUNCATE ON supervision_visit
    FOR EACH STATEMENT EXECUTE FUNCTION supervision_refuse_visit_truncate_v1();
