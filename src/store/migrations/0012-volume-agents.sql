ALTER TABLE volumes ADD COLUMN agent_id TEXT; -- the one agent whose key made it; NULL: the team's
-- The log knows of those from before, unless that was long ago: then they are the team's.
UPDATE volumes SET agent_id = (SELECT MAX(k.agent_id) FROM events e JOIN api_keys k ON k.id = e.actor
  WHERE e.kind = 'volume.created' AND e.subject = volumes.id AND k.team_id = volumes.team_id);
