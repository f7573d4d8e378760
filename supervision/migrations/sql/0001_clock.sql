-- The database's clock behind one name, so that tests can shift it and nothing else is ever asked for the time.
CREATE FUNCTION supervision_now_v1() RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT statement_timestamp() + COALESCE(NULLIF(current_setting('supervision.clock_shift', true), ''), '0')::interval $$;

CREATE FUNCTION supervision_clock_v1() RETURNS timestamptz
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT clock_timestamp() + COALESCE(NULLIF(current_setting('supervision.clock_shift', true), ''), '0')::interval $$;

-- A version 7 UUID: ordered by creation to the microsecond, so that the primary key is also "newest first" and rows of
-- one statement keep their order; yet not to be guessed or counted.
CREATE FUNCTION supervision_id_v1() RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$
    SELECT encode(
        overlay(uuid_send(gen_random_uuid())
                PLACING substring(int8send(now.us / 1000) FROM 3)
                     || int2send((x'7000'::int + (now.us % 1000) * 4096 / 1000)::int2)
                FROM 1 FOR 8),
        'hex')::uuid
      FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us) AS now
$$;
