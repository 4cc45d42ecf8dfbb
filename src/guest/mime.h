/* mime - what a file is called on the wire. */
#pragma once

#include "base/base.h"

/* The media type by the name's ending; application/octet-stream for the rest. */
const char *mime_of(struct str name);
/* `inline; filename=...`, quoted or percent-encoded as the name needs. */
void mime_disposition(struct str name, struct buf *out);
