/* Cookies that a service in a sandbox sets. One with a Domain is sent to every host below that
 * domain: to other sandboxes, and to the server itself. Without it, it belongs to the host that set
 * it, which is what most services mean; those that name their own host lose nothing. */
#include "edge/edge-internal.h"

/* As browsers read it: names are trimmed, and letter case does not count. */
static bool is_domain(struct str attribute)
{
	struct str rest = attribute, name = STR_NONE;

	(void)str_split(&rest, '=', &name);
	return str_eq_nocase(str_trim(name), STR("Domain"));
}

void cookie_host_only(struct str cookie, struct buf *out)
{
	struct str part;
	bool is_pair = true; /* the first part is the cookie itself, whatever its name */

	while (str_split(&cookie, ';', &part)) {
		if (!is_pair && is_domain(part))
			continue;
		if (!is_pair)
			(void)buf_addc(out, ';');
		(void)buf_add_str(out, part);
		is_pair = false;
	}
}
