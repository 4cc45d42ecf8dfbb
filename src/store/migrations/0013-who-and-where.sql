-- Who did it, for people: the key's name as it was then, and the address that the request came from. NULL: not a
-- key, from nowhere, or before there were these columns.
ALTER TABLE events ADD COLUMN actor_name TEXT;
ALTER TABLE events ADD COLUMN source TEXT;
