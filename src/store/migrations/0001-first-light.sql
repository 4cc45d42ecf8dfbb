CREATE TABLE teams (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  created_us BIGINT NOT NULL
);

CREATE TABLE api_keys (
  id TEXT PRIMARY KEY,
  team_id TEXT NOT NULL REFERENCES teams (id),
  name TEXT NOT NULL,
  hash TEXT NOT NULL UNIQUE, -- SHA-256 of the key's bytes, hex; the key itself is never stored
  mask_start TEXT NOT NULL,
  mask_end TEXT NOT NULL,
  created_us BIGINT NOT NULL,
  revoked_us BIGINT
);

CREATE TABLE sandboxes (
  id TEXT PRIMARY KEY,
  team_id TEXT NOT NULL REFERENCES teams (id),
  template_id TEXT NOT NULL,
  template_name TEXT NOT NULL,
  runtime TEXT NOT NULL,
  state TEXT NOT NULL, -- running, ended
  secure BIGINT NOT NULL,
  cpu_count BIGINT NOT NULL,
  memory_mb BIGINT NOT NULL,
  disk_mb BIGINT NOT NULL,
  timeout_s BIGINT NOT NULL,
  metadata TEXT NOT NULL, -- JSON object of strings
  options TEXT NOT NULL, -- JSON object: network, lifecycle and what else the request asked for
  started_us BIGINT NOT NULL,
  end_us BIGINT NOT NULL,
  ended_us BIGINT,
  ended_by TEXT, -- user, timeout, agent, memory, infrastructure
  ended_why TEXT
);
CREATE INDEX sandboxes_by_team ON sandboxes (team_id, state, started_us);

CREATE TABLE events (
  seq BIGINT PRIMARY KEY,
  at_us BIGINT NOT NULL,
  actor TEXT NOT NULL,
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  data TEXT NOT NULL -- JSON object
);
CREATE INDEX events_by_subject ON events (subject, seq);
