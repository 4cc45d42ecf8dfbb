ALTER TABLE api_keys ADD COLUMN created_by TEXT; -- id of the key that made it; NULL: the system
ALTER TABLE api_keys ADD COLUMN last_used_us BIGINT; -- at most a minute behind

CREATE TABLE template_tags ( -- names beside 'default', which every template has
  template_id TEXT NOT NULL,
  tag TEXT NOT NULL,
  created_us BIGINT NOT NULL,
  PRIMARY KEY (template_id, tag)
);

CREATE TABLE secrets (
  id TEXT PRIMARY KEY,
  team_id TEXT NOT NULL REFERENCES teams (id),
  name TEXT NOT NULL,
  version BIGINT NOT NULL, -- the newest of secret_versions
  metadata TEXT NOT NULL, -- JSON object of strings
  created_us BIGINT NOT NULL,
  updated_us BIGINT NOT NULL,
  UNIQUE (team_id, name)
);

CREATE TABLE secret_versions (
  secret_id TEXT NOT NULL REFERENCES secrets (id),
  version BIGINT NOT NULL,
  box TEXT NOT NULL, -- nonce and secretbox, base64; the key is derived from the server's seed
  created_us BIGINT NOT NULL,
  PRIMARY KEY (secret_id, version)
);

CREATE TABLE volumes (
  id TEXT PRIMARY KEY,
  team_id TEXT NOT NULL REFERENCES teams (id),
  name TEXT NOT NULL,
  created_us BIGINT NOT NULL,
  UNIQUE (team_id, name)
);

CREATE INDEX sandboxes_by_end ON sandboxes (team_id, ended_us);
CREATE INDEX sandboxes_by_template ON sandboxes (team_id, template_id, started_us);
