ALTER TABLE snapshots ADD COLUMN runtime TEXT NOT NULL DEFAULT 'local'; -- of what is started from it
