-- Histories of machines are append-only like the log. Its two doors are marks on the standing: erasure of payloads and
-- notes, and a history that leaves whole, with its standing, or not at all.

ALTER TABLE supervision_standing SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

CREATE FUNCTION supervision_refuse_machineevent_update_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    after_text supervision_machineevent := NEW;
BEGIN
    IF EXISTS (SELECT 1 FROM supervision_standing s WHERE s.id = OLD.standing_id AND s.erased_at IS NOT NULL)
       AND (NEW.payload IS NOT DISTINCT FROM OLD.payload OR NEW.payload = '{"erased": true}'::jsonb)
       AND NEW.note IN (OLD.note, '[erased]')
    THEN
        after_text.payload := OLD.payload;
        after_text.note := OLD.note;
        IF after_text IS NOT DISTINCT FROM OLD THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'supervision: the history of machines is append-only'
        USING ERRCODE = 'restrict_violation',
              HINT = 'Personal data is erased by supervision.engines.machines.histories.erase(), and in no other way.';
END $$;

CREATE TRIGGER supervision_machineevent_no_update BEFORE UPDATE ON supervision_machineevent
    FOR EACH ROW EXECUTE FUNCTION supervision_refuse_machineevent_update_v1();

CREATE FUNCTION supervision_refuse_machineevent_delete_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM supervision_standing s WHERE s.id = OLD.standing_id AND s.is_leaving) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'supervision: the history of machines is append-only'
        USING ERRCODE = 'restrict_violation',
              HINT = 'Old histories are removed whole by supervision.engines.machines.histories.prune().';
END $$;

CREATE TRIGGER supervision_machineevent_no_delete BEFORE DELETE ON supervision_machineevent
    FOR EACH ROW EXECUTE FUNCTION supervision_refuse_machineevent_delete_v1();

CREATE FUNCTION supervision_refuse_machineevent_truncate_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM supervision_machineevent) THEN
        RAISE EXCEPTION 'supervision: machines have a history, which is append-only and can''t be truncated'
            USING ERRCODE = 'restrict_violation',
                  HINT = 'In a test-suite, add supervision.testing.PruneBeforeFlush to the TransactionTestCase.';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER supervision_machineevent_no_truncate BEFORE TRUNCATE ON supervision_machineevent
    FOR EACH STATEMENT EXECUTE FUNCTION supervision_refuse_machineevent_truncate_v1();
CREATE TRIGGER supervision_standing_no_truncate BEFORE TRUNCATE ON supervision_standing
    FOR EACH STATEMENT EXECUTE FUNCTION supervision_refuse_machineevent_truncate_v1();

CREATE FUNCTION supervision_guard_standing_delete_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.is_leaving OR NOT EXISTS (SELECT 1 FROM supervision_machineevent e WHERE e.standing_id = OLD.id) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'supervision: standing % can''t be deleted, its history would be lost', OLD.id
        USING ERRCODE = 'restrict_violation',
              HINT = 'Old histories are removed whole by supervision.engines.machines.histories.prune().';
END $$;

CREATE TRIGGER supervision_standing_no_delete BEFORE DELETE ON supervision_standing
    FOR EACH ROW EXECUTE FUNCTION supervision_guard_standing_delete_v1();

-- at commit: the whole history is gone, or nothing is
CREATE FUNCTION supervision_history_left_whole_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM supervision_standing s WHERE s.id = NEW.id)
       OR EXISTS (SELECT 1 FROM supervision_machineevent e WHERE e.standing_id = NEW.id) THEN
        RAISE EXCEPTION 'supervision: the history of standing % was removed in part', NEW.id
            USING ERRCODE = 'restrict_violation', HINT = 'Delete it and all of its events in one transaction.';
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER supervision_standing_whole AFTER UPDATE ON supervision_standing
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.is_leaving)
    EXECUTE FUNCTION supervision_history_left_whole_v1();
