#include "guest/compat.h"

#include <sys/stat.h>

static bool refuses_automount(void)
{
	struct stat st;

	return fstatat(AT_FDCWD, "/", &st, AT_NO_AUTOMOUNT) < 0 && errno == EINVAL;
}

bool compat_prepare(void)
{
	struct str bytes = str_make(compat_preload, compat_preload_size);

	return refuses_automount() &&
	       file_replace(AT_FDCWD, COMPAT_PRELOAD, bytes, 0555, NULL) >= 0;
}
