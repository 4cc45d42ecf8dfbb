/* Root reads the seed at every start, so it lies where root alone chooses the names: in the data
 * directory itself. Versions before 2 kept it in `state`, which is the server's: whoever got hold
 * of a server could put there what it liked, a pipe on which every start then waited, or a link. */
#include "server/seed.h"

#define SEED "seed"

static int read_seed(int dir_fd, uid_t owner, uint8_t ret[SHA256_SIZE], struct err *e)
{
	CLEANUP(buf_done) struct buf bytes = BUF_INIT(SHA256_SIZE);
	cleanup_close int fd = file_open_own(dir_fd, SEED, owner, e);

	if (fd < 0)
		return fd;
	if (fd_read_all(fd, &bytes) < 0 || bytes.n != SHA256_SIZE)
		return err_set(e, -EBADMSG, "it is damaged");
	memcpy(ret, bytes.p, SHA256_SIZE);
	explicit_bzero(bytes.p, bytes.n);
	return 0;
}

/* On the disk before it is relied on: the other one goes next. */
static int write_seed(int data_fd, const uint8_t seed[SHA256_SIZE], struct err *e)
{
	int r = file_replace(data_fd, SEED, str_make(seed, SHA256_SIZE), 0600, e);
	cleanup_close int fd = r < 0 ? -EBADF : file_open_own(data_fd, SEED, 0, e);

	if (fd < 0)
		return r < 0 ? r : fd;
	if (fsync(fd) < 0 || fsync(data_fd) < 0)
		return err_sys(e, -errno, "write " SEED);
	return 0;
}

/* Of an older version, or of a backup of one; the server's own may have become its owner there. */
static int read_old(int state_fd, uid_t server, uint8_t ret[SHA256_SIZE], struct err *e)
{
	int r = read_seed(state_fd, 0, ret, e);

	if (r == -EPERM)
		r = read_seed(state_fd, server, ret, e);
	return r;
}

static int make_seed(int data_fd, int state_fd, uid_t server, uint8_t ret[SHA256_SIZE],
	struct err *e)
{
	struct err why = { 0 };
	int r = read_old(state_fd, server, ret, &why);

	if (r == -ENOENT)
		random_bytes(ret, SHA256_SIZE);
	else if (r < 0)
		return err_set(e, r,
			"state/seed: %s: restore it, or remove it to end all tokens and lose what "
			"is sealed",
			why.msg);
	return write_seed(data_fd, ret, e);
}

/* The same as ours: a move that a crash has cut short. Any other is a backup's, say, and not ours
 * to throw away. */
static void drop_old(int state_fd, uid_t server, const uint8_t seed[SHA256_SIZE])
{
	uint8_t old[SHA256_SIZE];
	int r = read_old(state_fd, server, old, NULL);

	if (r == 0 && memcmp(old, seed, SHA256_SIZE) == 0)
		(void)unlinkat(state_fd, SEED, 0);
	else if (r != -ENOENT)
		log_warn("seed.ignored", "err=\"state/seed is none of ours; what counts is seed in "
					 "the data directory: "
					 "remove one of them\"");
	explicit_bzero(old, sizeof old);
}

int seed_open(int data_fd, int state_fd, uid_t server, uint8_t ret[SHA256_SIZE], struct err *e)
{
	struct err why = { 0 };
	int r = read_seed(data_fd, 0, ret, &why);

	if (r == -ENOENT)
		r = make_seed(data_fd, state_fd, server, ret, e);
	else if (r < 0)
		return err_set(e, r, "seed: %s: restore it", why.msg);
	if (r >= 0)
		drop_old(state_fd, server, ret);
	return r;
}
