-- Names sort by their bytes ("C"), as they do in every other ledger.

-- The one door to time: every decision of the ledger reads the clock here, once.
CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

CREATE TABLE meta (
    one  boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- Ids of two ledgers differ by it: 22 bits.
    salt integer NOT NULL
);
INSERT INTO meta (salt) VALUES (floor(random() * 4194304)::integer);

-- Numbers messages in the order of admission, and requeued ones in the order of their return.
CREATE SEQUENCE message_seq;
-- Fencing tokens. Logged before it is used, so that it never repeats itself after a crash.
CREATE SEQUENCE lease_seq;
-- Gateways, one number for each life.
CREATE SEQUENCE life_seq;

-- A queue is known from its first message on, or from its first pause, until it is forgotten (`forget_queues`).
CREATE TABLE queue (
    name       text COLLATE "C" PRIMARY KEY,
    paused     boolean NOT NULL DEFAULT false,
    -- What its books said at the last look, if it was looked at since its last new book, and since when they have said so.
    seen       bigint[] NOT NULL DEFAULT '{}',
    looked_at  bigint NOT NULL DEFAULT 0,
    idle_since bigint NOT NULL DEFAULT 0
);

-- Written once, save for texts that are edited or erased. What became of a message stands in the tables beside it.
CREATE TABLE message (
    seq          bigint PRIMARY KEY,
    admitted_at  bigint NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    recipient    text COLLATE "C",
    -- Whether it waits for the earlier ones of its recipient.
    chained      boolean NOT NULL,
    lane         smallint NOT NULL,
    user_id      text COLLATE "C",
    expires_at   bigint,
    headers      text,
    ack_required boolean NOT NULL,
    body         bytea NOT NULL,
    checksum     bigint NOT NULL
) PARTITION BY RANGE (seq);

-- How a message ended, with the attempt that ended it. status: 1 delivered, 2 dead, 3 expired, 4 deleted.
CREATE TABLE outcome (
    seq        bigint PRIMARY KEY,
    status     smallint NOT NULL,
    at         bigint NOT NULL,
    due_at     bigint NOT NULL,
    reason     text,
    number     integer,
    latency_ms bigint
) PARTITION BY RANGE (seq);
CREATE INDEX outcome_dead ON outcome (seq) WHERE status = 2;

-- Attempts that left their message pending. result: 0 delivered, 1 failed, 2 accepted, 4 requeued.
CREATE TABLE attempt (
    seq        bigint NOT NULL,
    number     integer NOT NULL,
    at         bigint NOT NULL,
    latency_ms bigint NOT NULL,
    result     smallint NOT NULL,
    reason     text,
    PRIMARY KEY (seq, number)
) PARTITION BY RANGE (seq);

-- What waits or is under way.
CREATE TABLE pending (
    seq          bigint PRIMARY KEY,
    admitted_at  bigint NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    recipient    text COLLATE "C",
    chained      boolean NOT NULL,
    -- Its place in its chain.
    place        bigint NOT NULL,
    lane         smallint NOT NULL,
    is_head      boolean NOT NULL,
    -- A head's: the highest lane waiting in its chain.
    line_lane    smallint NOT NULL,
    due_at       bigint NOT NULL,
    -- When it is due, unless it is held for longer.
    claimable_at bigint NOT NULL,
    expires_at   bigint,
    -- The number of the last attempt that was spent on it, and how many of them count as failures or as accepted.
    spent        integer NOT NULL DEFAULT 0,
    failures     integer NOT NULL DEFAULT 0,
    acks         integer NOT NULL DEFAULT 0,
    -- Whoever holds it, and until when. One that has ended stands here until it is noticed (`lapse`).
    token        bigint,
    ends_at      bigint,
    -- It is on its way to a sender: no attempt has begun, and none is spent when the lease ends.
    in_transit   boolean NOT NULL DEFAULT false
);
CREATE INDEX pending_line ON pending (queue, line_lane, claimable_at, seq) WHERE is_head AND token IS NULL;
CREATE INDEX pending_leased ON pending (queue, in_transit, ends_at) WHERE token IS NOT NULL;
CREATE INDEX pending_chain ON pending (queue, recipient, place) WHERE chained;
CREATE INDEX pending_expiry ON pending (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX pending_queue_expiry ON pending (queue, expires_at) WHERE expires_at IS NOT NULL;

-- One row for each recipient with pending messages, by lane. Whoever adds or removes one of them, or waits for a lock
-- on one, holds this row. Rows are taken in the order of their key.
CREATE TABLE chain (
    queue     text COLLATE "C" NOT NULL,
    recipient text COLLATE "C" NOT NULL,
    high      integer NOT NULL,
    normal    integer NOT NULL,
    low       integer NOT NULL,
    PRIMARY KEY (queue, recipient)
);

CREATE TABLE key (
    key         bytea PRIMARY KEY,
    fingerprint bytea NOT NULL,
    seq         bigint NOT NULL,
    admitted_at bigint NOT NULL
);
CREATE INDEX key_age ON key (admitted_at);

CREATE TABLE quota (
    user_id    text COLLATE "C" PRIMARY KEY,
    max        bigint NOT NULL,
    window_ms  bigint NOT NULL,
    count      bigint NOT NULL,
    since      bigint NOT NULL,
    -- Deferred messages that are still to go out: when, and how many. Those before the current window's end are part of count.
    later_at   bigint[] NOT NULL DEFAULT '{}',
    later      bigint[] NOT NULL DEFAULT '{}',
    -- Whether messages of the high lane pass when the window is full, uncounted.
    exempts_high boolean NOT NULL DEFAULT false
);
-- A maximum of 0, which no quota has, stands for a deleted one. What was deferred is kept until it has gone out.
CREATE INDEX quota_deleted ON quota (user_id) WHERE max = 0;

-- Rows that are inserted and deleted all day: look at them often.
ALTER TABLE pending SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE chain SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
