/* accept - which form of a file a client would have, by its Accept-Encoding. */
#pragma once

#include "base/base.h"

enum accept_form {
	ACCEPT_PLAIN,
	ACCEPT_GZIP,
	ACCEPT_NOTHING, /* of what we can make */
};

/* Plain unless it is refused (q=0) or gzip is valued above it: a client that merely lists what it
 * understands gets the file as it is, with its length, straight from the disk. */
enum accept_form accept_choose(struct str accept_encoding);
/* False when the plain form is refused: ranges, which are of plain bytes, are not for such a
 * client.
 */
bool accept_plain(struct str accept_encoding);
