-- What all sandboxes of a team have in their environment, as a JSON object. NULL: nothing.
ALTER TABLE teams ADD COLUMN environment TEXT;
