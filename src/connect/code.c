/* The code table: names and statuses as the Connect protocol fixes them. */
#include "connect/connect.h"

static const struct {
	const char *name;
	int http;
} codes[] = {
	[CONNECT_CANCELED] = { "canceled", 499 },
	[CONNECT_UNKNOWN] = { "unknown", 500 },
	[CONNECT_INVALID_ARGUMENT] = { "invalid_argument", 400 },
	[CONNECT_DEADLINE_EXCEEDED] = { "deadline_exceeded", 504 },
	[CONNECT_NOT_FOUND] = { "not_found", 404 },
	[CONNECT_ALREADY_EXISTS] = { "already_exists", 409 },
	[CONNECT_PERMISSION_DENIED] = { "permission_denied", 403 },
	[CONNECT_RESOURCE_EXHAUSTED] = { "resource_exhausted", 429 },
	[CONNECT_FAILED_PRECONDITION] = { "failed_precondition", 400 },
	[CONNECT_ABORTED] = { "aborted", 409 },
	[CONNECT_OUT_OF_RANGE] = { "out_of_range", 400 },
	[CONNECT_UNIMPLEMENTED] = { "unimplemented", 501 },
	[CONNECT_INTERNAL] = { "internal", 500 },
	[CONNECT_UNAVAILABLE] = { "unavailable", 503 },
	[CONNECT_DATA_LOSS] = { "data_loss", 500 },
	[CONNECT_UNAUTHENTICATED] = { "unauthenticated", 401 },
};

/* What is not listed is our own trouble: internal. */
static const struct {
	int err_code;
	enum connect_code code;
} of_errno[] = {
	{ -ENOENT, CONNECT_NOT_FOUND },
	{ -ESRCH, CONNECT_NOT_FOUND },
	{ -EEXIST, CONNECT_ALREADY_EXISTS },
	{ -EINVAL, CONNECT_INVALID_ARGUMENT },
	{ -ENOTDIR, CONNECT_INVALID_ARGUMENT },
	{ -EISDIR, CONNECT_INVALID_ARGUMENT },
	{ -ENAMETOOLONG, CONNECT_INVALID_ARGUMENT },
	{ -EPROTO, CONNECT_INVALID_ARGUMENT },
	{ -EBADMSG, CONNECT_INVALID_ARGUMENT },
	{ -EILSEQ, CONNECT_INVALID_ARGUMENT },
	{ -ERANGE, CONNECT_OUT_OF_RANGE },
	{ -EPERM, CONNECT_PERMISSION_DENIED },
	{ -EACCES, CONNECT_PERMISSION_DENIED },
	{ -EROFS, CONNECT_PERMISSION_DENIED },
	{ -EKEYREJECTED, CONNECT_UNAUTHENTICATED },
	{ -ELOOP, CONNECT_FAILED_PRECONDITION },
	{ -ENOTEMPTY, CONNECT_FAILED_PRECONDITION },
	{ -EBUSY, CONNECT_FAILED_PRECONDITION },
	{ -E2BIG, CONNECT_RESOURCE_EXHAUSTED },
	{ -EMSGSIZE, CONNECT_RESOURCE_EXHAUSTED },
	{ -ENOBUFS, CONNECT_RESOURCE_EXHAUSTED },
	{ -ENOMEM, CONNECT_RESOURCE_EXHAUSTED },
	{ -ENOSPC, CONNECT_RESOURCE_EXHAUSTED },
	{ -EDQUOT, CONNECT_RESOURCE_EXHAUSTED },
	{ -EFBIG, CONNECT_RESOURCE_EXHAUSTED },
	{ -EAGAIN, CONNECT_RESOURCE_EXHAUSTED },
	{ -EMFILE, CONNECT_RESOURCE_EXHAUSTED },
	{ -ENFILE, CONNECT_RESOURCE_EXHAUSTED },
	{ -ETIMEDOUT, CONNECT_DEADLINE_EXCEEDED },
	{ -ECANCELED, CONNECT_CANCELED },
	{ -EOPNOTSUPP, CONNECT_UNIMPLEMENTED },
	{ -ENOSYS, CONNECT_UNIMPLEMENTED },
	{ -ECONNREFUSED, CONNECT_UNAVAILABLE },
	{ -ECONNRESET, CONNECT_UNAVAILABLE },
	{ -ENOTCONN, CONNECT_UNAVAILABLE },
	{ -EHOSTUNREACH, CONNECT_UNAVAILABLE },
	{ -ENETUNREACH, CONNECT_UNAVAILABLE },
	{ -EPIPE, CONNECT_UNAVAILABLE },
};

const char *connect_code_name(enum connect_code code)
{
	assert((size_t)code < ARRAY_SIZE(codes));
	return codes[code].name;
}

int connect_code_http(enum connect_code code)
{
	assert((size_t)code < ARRAY_SIZE(codes));
	return codes[code].http;
}

enum connect_code connect_code_of(int err_code)
{
	for (size_t i = 0; i < ARRAY_SIZE(of_errno); i++)
		if (of_errno[i].err_code == err_code)
			return of_errno[i].code;
	return CONNECT_INTERNAL;
}

int connect_code_parse(struct str name, enum connect_code *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		if (str_is(name, codes[i].name)) {
			*ret = (enum connect_code)i;
			return 0;
		}
	}
	return -ENOENT;
}
