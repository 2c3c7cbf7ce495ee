-- Messages, outcomes and attempts stand in partitions of so many numbers each, named alike by where they begin. Old ones
-- are retired (`retirement.sql`). What an import brings of long ago stands in the first ones.
CREATE TABLE message_kept PARTITION OF message FOR VALUES FROM (MINVALUE) TO (0);
CREATE TABLE outcome_kept PARTITION OF outcome FOR VALUES FROM (MINVALUE) TO (0);
CREATE TABLE attempt_kept PARTITION OF attempt FOR VALUES FROM (MINVALUE) TO (0);
CREATE INDEX outcome_kept_age ON outcome_kept (at) WHERE status <> 2;

CREATE TABLE partition (
    first    bigint PRIMARY KEY,
    past_end bigint NOT NULL,
    -- Of a range that has been retired: how many messages were kept of it.
    kept     bigint,
    -- And whether what tells its recipients (`parties.sql`) is made anew.
    tidied   boolean NOT NULL DEFAULT false
);

-- Makes sure of a partition beyond the one that is being filled. One session at a time does so.
-- Attached, not created in place: that stands in nobody's way. Whoever may execute it need not own the tables; temporary
-- tables of theirs come last.
CREATE FUNCTION ensure_partitions(p_messages bigint) RETURNS integer LANGUAGE plpgsql VOLATILE
SECURITY DEFINER SET search_path TO tidegate, pg_temp AS $$
DECLARE
    next_seq bigint := (SELECT last_value + is_called::integer FROM message_seq);
    first bigint;
    made integer := 0;
    name text;
BEGIN
    SELECT coalesce(max(past_end), 0) INTO first FROM partition;
    IF first > next_seq + p_messages THEN
        RETURN 0;
    ELSIF first <= next_seq THEN
        -- There is none for the next message: whoever is making it is waited for.
        PERFORM pg_advisory_xact_lock(hashtextextended('tidegate partitions', 0));
    ELSIF NOT pg_try_advisory_xact_lock(hashtextextended('tidegate partitions', 0)) THEN
        RETURN 0;
    END IF;
    -- Numbers that nobody will draw any more need no partition.
    SELECT greatest(max(past_end), next_seq) INTO first FROM partition;
    WHILE first <= next_seq + p_messages LOOP
        FOREACH name IN ARRAY ARRAY['message', 'outcome', 'attempt'] LOOP
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', name || '_' || first, name);
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
                name, name || '_' || first, first, first + p_messages);
        END LOOP;
        INSERT INTO partition VALUES (first, first + p_messages);
        first := first + p_messages;
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;
