-- How far what is done in a sandbox was read from its guest, and from which one.
ALTER TABLE sandboxes ADD COLUMN guest_epoch TEXT;
ALTER TABLE sandboxes ADD COLUMN guest_seq BIGINT;
-- How much of that is told: all, processes or none. NULL: as the server's setting is.
ALTER TABLE teams ADD COLUMN activity TEXT;
