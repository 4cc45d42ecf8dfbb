-- Those that ended long ago are looked for by that alone (--history-retention).
CREATE INDEX sandboxes_ended ON sandboxes (ended_us) WHERE ended_us IS NOT NULL;
