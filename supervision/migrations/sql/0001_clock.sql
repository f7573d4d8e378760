-- The database's clock behind one name, so that tests can shift it and nothing else is ever asked for the time.
CREATE FUNCTION supervision_now_v1() RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT statement_timestamp() + COALESCE(NULLIF(current_setting('supervision.clock_shift', true), ''), '0')::interval $$;

CREATE FUNCTION supervision_clock_v1() RETURNS timestamptz
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT clock_timestamp() + COALESCE(NULLIF(current_setting('supervision.clock_shift', true), ''), '0')::interval $$;

-- A version 7 UUID: ordered by creation, so that the primary key is also "newest first", yet not to be guessed or counted.
CREATE FUNCTION supervision_id_v1() RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$
    SELECT encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid())
                    PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                    FROM 1 FOR 6),
            52, 1), 53, 1),
        'hex')::uuid
$$;
