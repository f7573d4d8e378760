-- Tells a change that a client could act on to whoever waits for it, and costs a look into memory where nobody does: a
-- NOTIFY at each change would make all commits queue for one lock.
CREATE FUNCTION supervision_tell_watchers_v1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF pg_try_advisory_lock(x'53555056'::int, hashtext(NEW.id::text)) THEN
        PERFORM pg_advisory_unlock(x'53555056'::int, hashtext(NEW.id::text));
    ELSE
        PERFORM pg_notify('supervision_changed', NEW.id::text);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER supervision_task_tell_watchers AFTER UPDATE OF generation ON supervision_task
    FOR EACH ROW WHEN (OLD.generation IS DISTINCT FROM NEW.generation)
    EXECUTE FUNCTION supervision_tell_watchers_v1();
