ALTER TABLE sandboxes ADD COLUMN base_template TEXT NOT NULL DEFAULT 'base'; -- the tree it runs on
ALTER TABLE sandboxes ADD COLUMN run_started_us BIGINT NOT NULL DEFAULT 0; -- of the current run
ALTER TABLE sandboxes ADD COLUMN paused_us BIGINT;
ALTER TABLE sandboxes ADD COLUMN image TEXT; -- paused to disk: the saved image
ALTER TABLE sandboxes ADD COLUMN env_sealed TEXT; -- environment, encrypted: a fresh boot needs it

CREATE TABLE snapshots (
  image TEXT PRIMARY KEY,
  team_id TEXT NOT NULL REFERENCES teams (id),
  template_id TEXT NOT NULL,
  alias TEXT, -- NULL: unnamed
  tag TEXT NOT NULL,
  base_template TEXT NOT NULL,
  sandbox_id TEXT NOT NULL,
  cpu_count BIGINT NOT NULL,
  memory_mb BIGINT NOT NULL,
  disk_mb BIGINT NOT NULL,
  created_us BIGINT NOT NULL
);
CREATE INDEX snapshots_by_team ON snapshots (team_id, created_us);
