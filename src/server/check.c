#include "server/check.h"
#include "server/db.h"
#include "server/note.h"
#include "server/prepare.h"
#include "server/program.h"
#include "server/renew.h"
#include "warden/proto.h"

enum {
	HELPER_MS = 20000
};

/* It speaks this build's protocol, and says so. A warden asks each sandbox that lives as well. */
static int check_helper(const char *name, const char *word, const char *data, struct err *e)
{
	CLEANUP(buf_done) struct buf said = BUF_INIT(4096);
	char path[PROGRAM_PATH_SIZE], want[32];
	const char *const argv[] = { path, word, data ? "--data" : NULL, data, NULL };
	int r = program_find_helper(name, path, e);

	if (r >= 0)
		r = program_check_owner(path, e);
	if (r >= 0)
		r = program_try(argv, HELPER_MS, &said, e);
	if (r < 0)
		return r;
	(void)snprintf(want, sizeof want, "protocol %d\n", WARDEN_VERSION);
	if (!str_is(buf_str(&said), want))
		return err_set(e, -EPROTO,
			"%s is of another build than %s: put all three programs in place", path,
			"atoll");
	return 0;
}

static int check_certificate(const struct config *config, struct err *e)
{
	struct tls_identity *identity = NULL;
	int r = config->tls_cert
			? tls_identity_open(config->tls_cert, config->tls_key, &identity, e)
			: 0;

	(void)tls_identity_free(identity);
	return r;
}

int check_start(const struct config *config, struct err *e)
{
	struct note_program own;
	int r = prepare_check(config, e);

	if (r >= 0)
		r = check_certificate(config, e);
	if (r >= 0)
		r = check_helper("atoll-guest", "--protocol", NULL, e);
	if (r >= 0)
		r = check_helper("atoll-warden", "--check", config->data, e);
	if (r >= 0)
		r = db_check_version(config, e);
	if (r < 0)
		return r;
	note_program_own(&own);
	(void)printf("atoll %s (%s) would start\n", own.version, own.build);
	return 0;
}
