-- Whether namespaces may be made inside of what starts from it, as in what it was taken of.
ALTER TABLE snapshots ADD COLUMN is_nested BIGINT NOT NULL DEFAULT 0;
