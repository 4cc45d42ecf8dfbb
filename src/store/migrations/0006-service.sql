-- Whose it is: the agent and the task behind a key, a sandbox, an event. NULL: nobody in particular.
ALTER TABLE sandboxes ADD COLUMN agent_id TEXT;
ALTER TABLE sandboxes ADD COLUMN task_id TEXT;
ALTER TABLE sandboxes ADD COLUMN traceparent TEXT; -- of the request that made it
CREATE INDEX sandboxes_by_agent ON sandboxes (team_id, agent_id, started_us);
CREATE INDEX sandboxes_by_task ON sandboxes (team_id, task_id, started_us);

ALTER TABLE snapshots ADD COLUMN agent_id TEXT; -- whose alone it is; NULL: all of the team's
ALTER TABLE snapshots ADD COLUMN size_mb BIGINT NOT NULL DEFAULT 0; -- that its image takes, shared with others or not

ALTER TABLE events ADD COLUMN agent_id TEXT;
ALTER TABLE events ADD COLUMN task_id TEXT;
CREATE INDEX events_by_team ON events (team_id, seq);
CREATE INDEX events_by_time ON events (at_us);

ALTER TABLE api_keys ADD COLUMN agent_id TEXT; -- a key of one agent: it sees that agent's only
ALTER TABLE api_keys ADD COLUMN scopes TEXT NOT NULL DEFAULT ''; -- words with a space between; empty: all
ALTER TABLE api_keys ADD COLUMN expires_us BIGINT;
ALTER TABLE api_keys ADD COLUMN replaced_by TEXT; -- the key that it was rotated to
ALTER TABLE teams ADD COLUMN quota TEXT NOT NULL DEFAULT '{}'; -- JSON object, what it does not say is as usual

CREATE TABLE command_rules ( -- what may be run: programs by name or path
  team_id TEXT NOT NULL REFERENCES teams (id),
  agent_id TEXT NOT NULL, -- empty: all of the team
  programs TEXT NOT NULL, -- JSON array
  updated_us BIGINT NOT NULL,
  PRIMARY KEY (team_id, agent_id)
);

CREATE TABLE sandbox_runs ( -- the spans in which it ran, for usage and cost
  sandbox_id TEXT NOT NULL REFERENCES sandboxes (id),
  started_us BIGINT NOT NULL,
  ended_us BIGINT, -- NULL: it runs
  seen_us BIGINT NOT NULL DEFAULT 0, -- when it was last known to run
  cpu_us BIGINT NOT NULL DEFAULT 0,
  egress_bytes BIGINT NOT NULL DEFAULT 0,
  cpu_base_us BIGINT NOT NULL DEFAULT 0, -- what the kernel had counted when the span began
  egress_base BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (sandbox_id, started_us)
);
CREATE INDEX sandbox_runs_by_end ON sandbox_runs (ended_us);
INSERT INTO sandbox_runs (sandbox_id, started_us, ended_us)
  SELECT id, started_us, ended_us FROM sandboxes WHERE state = 'ended';
INSERT INTO sandbox_runs (sandbox_id, started_us, seen_us)
  SELECT id, CASE WHEN run_started_us > 0 THEN run_started_us ELSE started_us END, started_us
  FROM sandboxes WHERE state = 'running';

CREATE TABLE executions (
  sandbox_id TEXT NOT NULL REFERENCES sandboxes (id),
  n BIGINT NOT NULL, -- counted from 1 in each sandbox
  team_id TEXT NOT NULL REFERENCES teams (id),
  agent_id TEXT,
  task_id TEXT,
  actor TEXT NOT NULL,
  command TEXT NOT NULL, -- JSON object: shell or argv; secrets masked
  cwd TEXT,
  username TEXT,
  tag TEXT NOT NULL, -- of its process: how the next server finds it again
  state TEXT NOT NULL, -- starting, running, ended
  started_us BIGINT NOT NULL,
  deadline_us BIGINT NOT NULL,
  ended_us BIGINT,
  exit_code BIGINT,
  signal TEXT,
  ended_by TEXT, -- process, user, timeout, memory, sandbox, infrastructure
  ended_why TEXT,
  stdout_bytes BIGINT NOT NULL DEFAULT 0, -- all it wrote; of them kept is what output holds
  stderr_bytes BIGINT NOT NULL DEFAULT 0,
  last_seq BIGINT NOT NULL DEFAULT 0, -- the newest that output holds
  truncated BIGINT NOT NULL DEFAULT 0,
  traceparent TEXT,
  -- For the next server, while it runs. All that is sealed is NULL once it has ended.
  keep_bytes BIGINT NOT NULL DEFAULT 0, -- of each stream
  guest_seq BIGINT NOT NULL DEFAULT 0, -- the last of the guest's own events that was dealt with
  held_sealed TEXT, -- of them, what may be the beginning of a secret
  secrets_sealed TEXT, -- what to mask
  PRIMARY KEY (sandbox_id, n)
);
CREATE INDEX executions_by_end ON executions (ended_us); -- NULL: they run
CREATE INDEX executions_by_task ON executions (team_id, task_id, started_us);

CREATE TABLE output ( -- of executions, in chunks
  sandbox_id TEXT NOT NULL,
  n BIGINT NOT NULL,
  seq BIGINT NOT NULL, -- counted from 1 in each execution, over both streams
  at_us BIGINT NOT NULL,
  stream BIGINT NOT NULL, -- 1: stdout, 2: stderr
  data TEXT NOT NULL, -- base64; secrets masked
  PRIMARY KEY (sandbox_id, n, seq)
);

CREATE TABLE runs ( -- a sandbox for one command, ended whatever happens
  id TEXT PRIMARY KEY,
  team_id TEXT NOT NULL REFERENCES teams (id),
  agent_id TEXT,
  task_id TEXT,
  actor TEXT NOT NULL,
  sandbox_id TEXT, -- NULL: not made yet
  started_us BIGINT NOT NULL,
  ended_us BIGINT, -- NULL: it runs, and its sandbox is still to be ended
  ended_why TEXT -- NULL: as it should
);
CREATE INDEX runs_by_end ON runs (ended_us);

CREATE TABLE artifacts (
  id TEXT PRIMARY KEY,
  team_id TEXT NOT NULL REFERENCES teams (id),
  agent_id TEXT,
  task_id TEXT,
  sandbox_id TEXT NOT NULL,
  path TEXT NOT NULL, -- where it was in the sandbox
  bytes BIGINT NOT NULL,
  sha256 TEXT NOT NULL,
  created_us BIGINT NOT NULL,
  expires_us BIGINT NOT NULL
);
CREATE INDEX artifacts_by_end ON artifacts (expires_us);

CREATE TABLE cursors ( -- how far a reader of the event log has come
  name TEXT PRIMARY KEY,
  seq BIGINT NOT NULL
);
