-- Every version of every configuration; the newest is active.
CREATE TABLE slot_config (
    name             text COLLATE "C" NOT NULL,
    version          integer NOT NULL,
    max_per_window   bigint NOT NULL,
    window_ms        bigint NOT NULL,
    headroom_windows bigint NOT NULL,
    calendar         text NOT NULL,
    created_at       bigint NOT NULL,
    PRIMARY KEY (name, version)
);

-- What is active. Whoever takes or gives back a slot of a configuration holds this row: a batch does so once, and
-- decides all its events meanwhile, so that nobody queues for single windows.
CREATE TABLE slot_book (
    name           text COLLATE "C" PRIMARY KEY,
    version        integer NOT NULL,
    max_per_window bigint NOT NULL,
    window_ms      bigint NOT NULL,
    -- Counts the window sizes.
    generation     integer NOT NULL,
    held           bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE slot (
    event        text COLLATE "C" PRIMARY KEY,
    config       text COLLATE "C" NOT NULL,
    generation   integer NOT NULL,
    requested    bigint NOT NULL,
    scheduled    bigint NOT NULL,
    window_no    bigint NOT NULL,
    window_start bigint NOT NULL,
    created_at   bigint NOT NULL,
    -- When both its window and its reservation lie behind.
    over_at      bigint NOT NULL,
    message_seq  bigint
);
CREATE INDEX slot_age ON slot (over_at);

-- How many slots lie in a window of the active size, whichever version assigned them.
CREATE TABLE slot_window (
    config    text COLLATE "C" NOT NULL,
    window_no bigint NOT NULL,
    count     bigint NOT NULL,
    PRIMARY KEY (config, window_no)
) WITH (fillfactor = 70);

-- Full windows as runs, never adjacent: the first open window is found at once, however many are full.
CREATE TABLE slot_run (
    config   text COLLATE "C" NOT NULL,
    first    bigint NOT NULL,
    past_end bigint NOT NULL,
    PRIMARY KEY (config, first)
);

-- The number of the window that holds an instant. A division of integers rounds towards zero, also before 1970.
CREATE FUNCTION slot_window_of(p_at bigint, p_window_ms bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT p_at / p_window_ms - (p_at % p_window_ms < 0)::integer
$$;

-- The first window with room: the requested one, if it holds less than its share, or the first that is not full within
-- the ranges of open windows (from, and one past the end). A range that ends before it begins stands for those that the
-- caller has left out.
CREATE FUNCTION slot_place(p_config text, p_first bigint, p_share bigint, p_from bigint[], p_past bigint[])
RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    place bigint;
    run_ends bigint;
BEGIN
    IF p_share > 0 AND p_share > coalesce(
        (SELECT w.count FROM slot_window w WHERE w.config = p_config AND w.window_no = p_first), 0)
    THEN
        RETURN p_first;
    END IF;
    FOR i IN 1 .. cardinality(p_from) LOOP
        IF p_past[i] < p_from[i] THEN
            RAISE EXCEPTION 'more open windows are needed' USING ERRCODE = 'TG003';
        END IF;
        SELECT r.past_end INTO run_ends FROM slot_run r
        WHERE r.config = p_config AND r.first <= p_from[i] ORDER BY r.first DESC LIMIT 1;
        place := greatest(p_from[i], run_ends);
        IF place < p_past[i] THEN
            RETURN place;
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;

-- Takes a place in a window. A window that is full now joins the runs beside it.
CREATE FUNCTION slot_take(p_config text, p_window bigint, p_max bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now_held bigint;
    run_first bigint := p_window;
    run_past bigint := p_window + 1;
    r record;
BEGIN
    INSERT INTO slot_window AS w (config, window_no, count) VALUES (p_config, p_window, 1)
    ON CONFLICT (config, window_no) DO UPDATE SET count = w.count + 1 RETURNING w.count INTO now_held;
    IF now_held <> p_max THEN
        RETURN;
    END IF;
    SELECT * INTO r FROM slot_run o WHERE o.config = p_config AND o.first < p_window ORDER BY o.first DESC LIMIT 1;
    IF r.past_end = p_window THEN
        run_first := r.first;
    END IF;
    DELETE FROM slot_run o WHERE o.config = p_config AND o.first = p_window + 1 RETURNING o.past_end INTO r;
    run_past := coalesce(r.past_end, run_past);
    INSERT INTO slot_run AS o (config, first, past_end) VALUES (p_config, run_first, run_past)
    ON CONFLICT (config, first) DO UPDATE SET past_end = excluded.past_end;
END
$$;

-- Gives a place back. A window that is full no longer parts its run.
CREATE FUNCTION slot_give_back(p_config text, p_window bigint, p_max bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    left_held bigint;
    run slot_run;
BEGIN
    UPDATE slot_window w SET count = w.count - 1 WHERE w.config = p_config AND w.window_no = p_window
    RETURNING w.count INTO left_held;
    IF left_held = 0 THEN
        DELETE FROM slot_window w WHERE w.config = p_config AND w.window_no = p_window;
    END IF;
    IF left_held IS NULL OR left_held <> p_max - 1 THEN
        RETURN;
    END IF;
    SELECT * INTO run FROM slot_run o WHERE o.config = p_config AND o.first <= p_window ORDER BY o.first DESC LIMIT 1;
    IF run.past_end IS NULL OR run.past_end <= p_window THEN
        RETURN;
    END IF;
    DELETE FROM slot_run o WHERE o.config = p_config AND o.first = run.first;
    INSERT INTO slot_run (config, first, past_end)
    SELECT p_config, h.first, h.past FROM (VALUES (run.first, p_window), (p_window + 1, run.past_end)) AS h (first, past)
    WHERE h.first < h.past;
END
$$;
