#include "guest/accept.h"

enum {
	FULL_WEIGHT = 1000,
	UNNAMED = -1,
};

struct weights {
	int plain, gzip, any;
};

/* "q=0.5" among the parameters, in thousandths; what does not parse counts in full. */
static int weight_of(struct str params)
{
	struct str param;
	int weight, digit;

	while (str_split(&params, ';', &param)) {
		param = str_trim(param);
		if (param.n < 3 || (param.p[0] != 'q' && param.p[0] != 'Q') || param.p[1] != '=')
			continue;
		if (param.p[2] != '0')
			return FULL_WEIGHT;
		weight = 0;
		digit = FULL_WEIGHT / 10;
		for (size_t i = 4; i < param.n && digit > 0; i++, digit /= 10)
			if (param.p[i] >= '0' && param.p[i] <= '9')
				weight += (param.p[i] - '0') * digit;
		return weight;
	}
	return FULL_WEIGHT;
}

static struct weights read_weights(struct str header)
{
	struct weights w = { UNNAMED, UNNAMED, UNNAMED };
	struct str item, name;

	while (header.n && str_split(&header, ',', &item)) {
		if (!str_split(&item, ';', &name))
			continue;
		name = str_trim(name);
		if (str_eq_nocase(name, STR("identity")))
			w.plain = weight_of(item);
		else if (str_eq_nocase(name, STR("gzip")) || str_eq_nocase(name, STR("x-gzip")))
			w.gzip = weight_of(item);
		else if (str_is(name, "*"))
			w.any = weight_of(item);
	}
	/* What is not named is worth what the star says; without one, plain is welcome. */
	if (w.plain == UNNAMED)
		w.plain = w.any == UNNAMED ? FULL_WEIGHT : w.any;
	if (w.gzip == UNNAMED)
		w.gzip = MAX(w.any, 0);
	return w;
}

enum accept_form accept_choose(struct str accept_encoding)
{
	struct weights w = read_weights(accept_encoding);

	if (w.gzip > w.plain)
		return ACCEPT_GZIP;
	return w.plain > 0 ? ACCEPT_PLAIN : ACCEPT_NOTHING;
}

bool accept_plain(struct str accept_encoding)
{
	return read_weights(accept_encoding).plain > 0;
}
