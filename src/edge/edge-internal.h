/* What the files of this room share. */
#pragma once

#include "edge/edge.h"

/* ---- signed.c ---- */
enum signed_kind {
	SIGNED_NOT, /* no signed file URL */
	SIGNED_FOUND,
	SIGNED_WRONG,      /* by nobody's token */
	SIGNED_EXPIRATION, /* whose expiration is no number */
};
/* Which sandbox a file URL was signed for, when nothing else in the request names one. */
enum signed_kind signed_find(const struct sandbox_book *sandboxes, struct http_exchange *x,
	char id[SANDBOX_ID_SIZE]);
