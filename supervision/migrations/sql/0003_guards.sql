-- Append-only, terminal, and the two doors: enforced by the database, since the table's owner bypasses every REVOKE.
-- What the checkpoint statement touches gets no trigger that runs a query.

ALTER TABLE supervision_task SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE supervision_heartbeat SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- ---------------------------------------------------------------------------------------------------- log entries
CREATE FUNCTION supervision_refuse_log_update_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM supervision_erasure e WHERE e.task_id = OLD.task_id)
       AND NEW.payload = '{"erased": true}'::jsonb
       AND (NEW.task_id, NEW.sequence_num, NEW.event, NEW.name, NEW.lease, NEW.actor_ref, NEW.created_at)
           IS NOT DISTINCT FROM
           (OLD.task_id, OLD.sequence_num, OLD.event, OLD.name, OLD.lease, OLD.actor_ref, OLD.created_at)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'supervision: log entries are append-only'
        USING ERRCODE = 'restrict_violation',
              HINT = 'Personal data is erased by supervision.kernel.retention.erase(), and in no other way.';
END $$;

CREATE TRIGGER supervision_logentry_no_update BEFORE UPDATE ON supervision_logentry
    FOR EACH ROW EXECUTE FUNCTION supervision_refuse_log_update_v1();

CREATE FUNCTION supervision_refuse_log_delete_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM supervision_tombstone t WHERE t.task_id = OLD.task_id) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'supervision: log entries are append-only'
        USING ERRCODE = 'restrict_violation',
              HINT = 'Old tasks are removed whole by supervision.kernel.retention.prune(), and in no other way.';
END $$;

CREATE TRIGGER supervision_logentry_no_delete BEFORE DELETE ON supervision_logentry
    FOR EACH ROW EXECUTE FUNCTION supervision_refuse_log_delete_v1();

CREATE FUNCTION supervision_refuse_truncate_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM supervision_logentry) THEN
        RAISE EXCEPTION 'supervision: the log is append-only and not empty, so it can''t be truncated'
            USING ERRCODE = 'restrict_violation',
                  HINT = 'In a test-suite, add supervision.testing.PruneBeforeFlush to the TransactionTestCase.';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER supervision_logentry_no_truncate BEFORE TRUNCATE ON supervision_logentry
    FOR EACH STATEMENT EXECUTE FUNCTION supervision_refuse_truncate_v1();

-- row triggers don't see a TRUNCATE, and the log has no foreign key that would hold its tasks
CREATE TRIGGER supervision_task_no_truncate BEFORE TRUNCATE ON supervision_task
    FOR EACH STATEMENT EXECUTE FUNCTION supervision_refuse_truncate_v1();
CREATE TRIGGER supervision_question_no_truncate BEFORE TRUNCATE ON supervision_question
    FOR EACH STATEMENT EXECUTE FUNCTION supervision_refuse_truncate_v1();
CREATE TRIGGER supervision_signal_no_truncate BEFORE TRUNCATE ON supervision_signal
    FOR EACH STATEMENT EXECUTE FUNCTION supervision_refuse_truncate_v1();
CREATE TRIGGER supervision_tombstone_no_truncate BEFORE TRUNCATE ON supervision_tombstone
    FOR EACH STATEMENT EXECUTE FUNCTION supervision_refuse_truncate_v1();
CREATE TRIGGER supervision_erasure_no_truncate BEFORE TRUNCATE ON supervision_erasure
    FOR EACH STATEMENT EXECUTE FUNCTION supervision_refuse_truncate_v1();

-- ------------------------------------------------------------------------------------------------- terminal tasks
CREATE FUNCTION supervision_refuse_terminal_change_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    after_owner supervision_task := NEW;
BEGIN
    -- deleting a user takes the owner's key; owner_ref stays
    IF NEW.owner_id IS NULL THEN
        after_owner.owner_id := OLD.owner_id;
    END IF;
    IF EXISTS (SELECT 1 FROM supervision_erasure e WHERE e.task_id = OLD.id) THEN
        -- by the marker, or by nothing at all
        IF NEW.arguments = '{"erased": true}'::jsonb THEN
            after_owner.arguments := OLD.arguments;
        END IF;
        IF NEW.locked_decisions = '{"erased": true}'::jsonb THEN
            after_owner.locked_decisions := OLD.locked_decisions;
        END IF;
        IF NEW.result IS NULL THEN
            after_owner.result := OLD.result;
        END IF;
        IF NEW.failure = '' THEN
            after_owner.failure := OLD.failure;
        END IF;
    END IF;
    -- deleting a content type takes the link to the subject; its text stays
    IF NEW.subject_type_id IS NULL THEN
        after_owner.subject_type_id := OLD.subject_type_id;
    END IF;
    IF after_owner IS DISTINCT FROM OLD THEN
        RAISE EXCEPTION 'supervision: task % has ended (%), and ended tasks never change', OLD.id, OLD.current_state
            USING ERRCODE = 'restrict_violation', HINT = 'Fork it: supervision.kernel.forks.fork().';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER supervision_task_terminal_stays BEFORE UPDATE ON supervision_task
    FOR EACH ROW WHEN (OLD.current_state IN ('completed', 'failed', 'expired', 'cancelled'))
    EXECUTE FUNCTION supervision_refuse_terminal_change_v1();

CREATE FUNCTION supervision_refuse_task_delete_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM supervision_tombstone t WHERE t.task_id = OLD.id) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'supervision: task % can''t be deleted, its log would be lost', OLD.id
        USING ERRCODE = 'restrict_violation',
              HINT = 'Old tasks are removed whole by supervision.kernel.retention.prune(), and in no other way.';
END $$;

CREATE TRIGGER supervision_task_no_delete BEFORE DELETE ON supervision_task
    FOR EACH ROW EXECUTE FUNCTION supervision_refuse_task_delete_v1();

-- ---------------------------------------------------------------------------------------------------- tombstones
CREATE FUNCTION supervision_guard_tombstone_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        RAISE EXCEPTION 'supervision: tombstones stay' USING ERRCODE = 'restrict_violation';
    END IF;
    IF NOT EXISTS (
        SELECT 1 FROM supervision_task t
         WHERE t.id = NEW.task_id AND t.current_state IN ('completed', 'failed', 'expired', 'cancelled')
    ) THEN
        RAISE EXCEPTION 'supervision: only a task that has ended can be pruned (%)', NEW.task_id
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER supervision_tombstone_guard BEFORE INSERT OR UPDATE OR DELETE ON supervision_tombstone
    FOR EACH ROW EXECUTE FUNCTION supervision_guard_tombstone_v1();

-- at commit: the whole task is gone, or nothing is
CREATE FUNCTION supervision_pruned_whole_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM supervision_task t WHERE t.id = NEW.task_id)
       OR EXISTS (SELECT 1 FROM supervision_logentry e WHERE e.task_id = NEW.task_id) THEN
        RAISE EXCEPTION 'supervision: task % was pruned in part', NEW.task_id
            USING ERRCODE = 'restrict_violation', HINT = 'Delete the task and all of its entries in one transaction.';
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER supervision_tombstone_whole AFTER INSERT ON supervision_tombstone
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION supervision_pruned_whole_v1();

-- ------------------------------------------------------------------------------------------------------ erasures
CREATE FUNCTION supervision_guard_erasure_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM supervision_task t
         WHERE t.id = NEW.task_id AND t.current_state IN ('completed', 'failed', 'expired', 'cancelled')
    ) THEN
        RAISE EXCEPTION 'supervision: only the data of a task that has ended can be erased (%)', NEW.task_id
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER supervision_erasure_guard BEFORE INSERT OR UPDATE ON supervision_erasure
    FOR EACH ROW EXECUTE FUNCTION supervision_guard_erasure_v1();
