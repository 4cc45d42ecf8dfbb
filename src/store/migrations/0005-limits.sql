ALTER TABLE teams ADD COLUMN limits TEXT NOT NULL DEFAULT '{}'; -- ceilings of its sandboxes: JSON object, what it does not say is as usual
ALTER TABLE events ADD COLUMN team_id TEXT; -- NULL: the server's own, or before there was this column
ALTER TABLE events ADD COLUMN cause TEXT; -- a sentence for people; NULL: the kind says it all
