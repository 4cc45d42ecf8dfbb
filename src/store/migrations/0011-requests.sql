-- What was asked for with an Idempotency-Key, so that the next server does not do it again. Written before
-- it is begun, once more with the answer, and removed when it failed or ten minutes have passed.
CREATE TABLE requests (
  name TEXT PRIMARY KEY, -- a digest of whose, what and the key
  body TEXT NOT NULL, -- a digest of what was asked
  team_id TEXT NOT NULL,
  asked_us BIGINT NOT NULL,
  status BIGINT NOT NULL, -- of the answer; 0: it was begun, 1: it was done, and its answer not kept
  answer TEXT -- sealed
);
CREATE INDEX requests_by_time ON requests (asked_us);
