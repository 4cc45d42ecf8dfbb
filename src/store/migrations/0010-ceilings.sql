-- How much of the database each team takes: added up with every change of the rows that it counts,
-- by what these say of themselves (bytes), so that nobody has to count rows to know.
CREATE TABLE team_bytes (
  team_id TEXT PRIMARY KEY,
  history BIGINT NOT NULL, -- of sandboxes and their runs
  commands BIGINT NOT NULL, -- of executions and runs
  output BIGINT NOT NULL,
  events BIGINT NOT NULL
);
ALTER TABLE sandboxes ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0; -- of the row and its runs
ALTER TABLE executions ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0; -- of the row
ALTER TABLE executions ADD COLUMN output_bytes BIGINT NOT NULL DEFAULT 0; -- of its output, as it is stored
ALTER TABLE executions ADD COLUMN told_seq BIGINT NOT NULL DEFAULT 0; -- while it runs: the newest number, of what is not kept too
ALTER TABLE events ADD COLUMN bytes BIGINT NOT NULL DEFAULT 512; -- of those from before: about
CREATE INDEX executions_by_team ON executions (team_id, ended_us);
CREATE INDEX executions_with_output ON executions (team_id, ended_us) WHERE output_bytes > 0;
CREATE INDEX runs_by_team ON runs (team_id, ended_us);
CREATE INDEX runs_by_sandbox ON runs (sandbox_id);

-- What only one that lives needs. An ended sandbox kept it until now.
UPDATE sandboxes SET options = '{}', env_sealed = NULL WHERE state = 'ended';

UPDATE sandboxes SET bytes = 1024 + LENGTH(metadata) + LENGTH(options) + COALESCE(LENGTH(env_sealed), 0)
  + 256 * (SELECT COUNT(*) FROM sandbox_runs WHERE sandbox_id = sandboxes.id);
UPDATE executions SET bytes = 1024 + LENGTH(command) + COALESCE(LENGTH(cwd), 0);
-- What is kept of a stream is what it wrote, up to keep_bytes; as base64, in rows.
UPDATE executions SET output_bytes = 128 * last_seq + (4 * (
    CASE WHEN stdout_bytes < keep_bytes THEN stdout_bytes ELSE keep_bytes END +
    CASE WHEN stderr_bytes < keep_bytes THEN stderr_bytes ELSE keep_bytes END)) / 3
  WHERE last_seq > 0;

INSERT INTO team_bytes (team_id, history, commands, output, events) SELECT id,
    CAST((SELECT COALESCE(SUM(bytes), 0) FROM sandboxes WHERE team_id = teams.id) AS BIGINT),
    CAST((SELECT COALESCE(SUM(bytes), 0) FROM executions WHERE team_id = teams.id) AS BIGINT)
      + 512 * (SELECT COUNT(*) FROM runs WHERE team_id = teams.id),
    CAST((SELECT COALESCE(SUM(output_bytes), 0) FROM executions WHERE team_id = teams.id) AS BIGINT),
    CAST((SELECT COALESCE(SUM(bytes), 0) FROM events WHERE team_id = teams.id) AS BIGINT)
  FROM teams;
