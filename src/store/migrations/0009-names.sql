-- Whose a snapshot's name is: an agent's, who alone finds it by that name; NULL: the team's.
ALTER TABLE snapshots ADD COLUMN named_by TEXT;
UPDATE snapshots SET named_by = agent_id;
-- What one agent and the team, or another agent, had named alike was one id. The part of the image's
-- name behind its first letter is as random, and nobody else's.
UPDATE snapshots SET template_id = SUBSTR(image, 2) WHERE EXISTS (SELECT 1 FROM snapshots o
  WHERE o.template_id = snapshots.template_id AND COALESCE(o.agent_id, '') < COALESCE(snapshots.agent_id, ''));
-- Ids and names share no space: what was named like an id has no name any more, and is found by its own.
UPDATE snapshots SET alias = NULL
  WHERE LENGTH(alias) = 20 AND alias NOT LIKE '%-%' AND alias NOT LIKE '%!_%' ESCAPE '!';
