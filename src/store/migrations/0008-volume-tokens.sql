ALTER TABLE volumes ADD COLUMN token_epoch BIGINT NOT NULL DEFAULT 0; -- how often its token was replaced
