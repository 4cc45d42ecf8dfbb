#include "warden/warden.h"

#include <getopt.h>

static int number(const char *name, const char *text, int64_t min, int64_t max, int64_t *ret,
	struct err *e)
{
	if (str_to_int(str_of(text), min, max, ret) < 0)
		return err_set(e, -EINVAL, "--%s '%s' is not a number from %" PRId64 " to %" PRId64,
			name, text, min, max);
	return 0;
}

static const struct option names[] = {
	{ "data", required_argument, NULL, 'd' },
	{ "templates", required_argument, NULL, 't' },
	{ "server-uid", required_argument, NULL, 'u' },
	{ "network", required_argument, NULL, 'n' },
	{ "pool", required_argument, NULL, 'p' },
	{ "pool-template", required_argument, NULL, 'T' },
	{ "disk-mb", required_argument, NULL, 's' },
	{ "hold-seconds", required_argument, NULL, 'h' },
	{ "disk-overcommit", required_argument, NULL, 'o' },
	{ "guest", required_argument, NULL, 'g' },
	{ "plain-layers", no_argument, NULL, 'L' },
	{ "attach-layers", no_argument, NULL, 'A' },
	{ "no-pool", no_argument, NULL, 'X' },
	{ "debug", no_argument, NULL, 'D' },
	{ "probe", no_argument, NULL, 'P' },
	{ "check", no_argument, NULL, 'C' },
	{ "sweep", no_argument, NULL, 'S' },
	{ "allow-private", required_argument, NULL, 'a' },
	{ "lend-images", no_argument, NULL, 'I' },
	{ "hold-volume", required_argument, NULL, 'V' },
	{ 0 },
};

static int take(int c, struct options *o, struct err *e)
{
	switch (c) {
	case 'd':
		o->data_dir = optarg;
		return 0;
	case 't':
		o->templates_dir = optarg;
		return 0;
	case 'u':
		return number("server-uid", optarg, 0, INT32_MAX, &o->server_uid, e);
	case 'n':
		o->network = optarg;
		return 0;
	case 'p':
		return number("pool", optarg, 0, 1024, &o->pool, e);
	case 'T':
		o->template_name = optarg;
		return 0;
	case 's':
		return number("disk-mb", optarg, 16, 1 << 24, &o->disk_mb, e);
	case 'h':
		return number("hold-seconds", optarg, 1, 1 << 20, &o->hold_seconds, e);
	case 'o':
		return number("disk-overcommit", optarg, 0, 1 << 20, &o->disk_overcommit, e);
	case 'g':
		o->guest_path = optarg;
		return 0;
	case 'L':
		o->plain_layers = true;
		return 0;
	case 'A':
		o->attach_layers = true;
		return 0;
	case 'X':
		o->no_pool = true;
		return 0;
	case 'D':
		o->debug = true;
		return 0;
	case 'P':
		o->probe = true;
		return 0;
	case 'C':
		o->check = true;
		return 0;
	case 'V':
		o->hold_volume = optarg;
		return 0;
	case 'I':
		o->lend_images = true;
		return 0;
	case 'a':
		return private_list_add(&o->opened, str_of(optarg), e);
	case 'S':
		o->sweep = true;
		return 0;
	default:
		return err_set(e, -EINVAL, "unknown option");
	}
}

int options_parse(int argc, char *argv[], struct options *ret, struct err *e)
{
	struct options o = { .network = "10.199.0.0/16",
		.template_name = "base",
		.server_uid = WARDEN_FIRST_UID,
		.pool = 4,
		.disk_mb = 10240,
		.hold_seconds = 60 };
	int c, r;

	opterr = 0;
	while ((c = getopt_long(argc, argv, "", names, NULL)) >= 0) {
		r = take(c, &o, e);
		if (r < 0)
			return r;
	}
	if (optind < argc)
		return err_set(e, -EINVAL, "unexpected argument '%s'", argv[optind]);
	if (!o.data_dir && !o.probe && !o.sweep)
		return err_set(e, -EINVAL, "--data is missing");
	*ret = o;
	return 0;
}
